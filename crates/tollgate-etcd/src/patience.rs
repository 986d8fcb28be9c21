//! How long an answer is waited for.

use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::wire::StatusRequest;
use crate::wire::maintenance_client::MaintenanceClient;

/// How often it is asked whether there was an election, while something is not answered.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Waits for an answer for as long as `limit` allows, or three times as long over a connection that is alive: who has much to do
/// is not helped by being asked again. Gives up once there was an election: what was on its way to the leader before it is
/// lost, and nobody says so.
pub(crate) async fn in_time<T>(
    link: &Link,
    asked: Instant,
    limit: Duration,
    mut answer: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    // Counted, not read from a clock: while this runtime stood still nothing could be heard.
    let (term, mut waited) = (link.term(), Duration::ZERO);
    while waited < limit * 3 && !(waited >= limit && link.is_silent_since(asked)) && link.term() == term {
        let slice = LOOK_EVERY.min(limit);
        if let Ok(answer) = tokio::time::timeout(slice, &mut answer).await {
            return Some(answer);
        }
        waited += slice;
        if link.may_ask_for_term(LOOK_EVERY) {
            tokio::select! {
                biased;
                answer = &mut answer => return Some(answer),
                _ = tokio::time::timeout(LOOK_EVERY, ask_for_term(link)) => {}
            }
        }
    }
    None
}

/// Asks a member for the term of the leader; it need not ask anybody else.
async fn ask_for_term(link: &Link) {
    let mut maintenance = MaintenanceClient::with_origin(link.channel(), link.origin());
    if let Ok(status) = maintenance.status(StatusRequest {}).await {
        link.note_term(status.into_inner().raft_term);
    }
}
