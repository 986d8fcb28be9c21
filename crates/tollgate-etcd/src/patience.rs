//! How long an answer is waited for.

use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::wire::StatusRequest;
use crate::wire::maintenance_client::MaintenanceClient;

/// How often it is asked whether there was an election, while something is not answered.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Over a connection from which nothing is heard.
    pub(crate) silent: Duration,
    /// Over one that is alive: who has much to do is not helped by being asked again.
    pub(crate) alive: Duration,
}

/// Waits for an answer. Gives up also once there was an election: what was on its way to the leader before it is lost, and nobody
/// says so.
pub(crate) async fn in_time<T>(
    link: &Link,
    asked: Instant,
    Patience { silent, alive }: Patience,
    mut answer: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    // Counted, not read from a clock: while this runtime stood still nothing could be heard.
    let (term, mut waited) = (link.term(), Duration::ZERO);
    let slice = LOOK_EVERY.min(silent);
    while waited < alive && !(waited >= silent && link.is_silent_since(asked)) && link.term() == term {
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
