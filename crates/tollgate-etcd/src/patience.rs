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
    /// Whether it is given up once there was an election: what was on its way to the leader before it is lost, and nobody says
    /// so. When that was is not known: whoever cannot ask again had better wait.
    pub(crate) until_elected: bool,
}

/// Waits for an answer.
pub(crate) async fn in_time<T>(
    link: &Link,
    asked: Instant,
    Patience { silent, alive, until_elected }: Patience,
    mut answer: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    // Counted, not read from a clock: while this runtime stood still nothing could be heard.
    let (term, mut waited) = (link.term(), Duration::ZERO);
    let slice = LOOK_EVERY.min(silent);
    let is_lost = || until_elected && link.term() != term;
    while waited < alive && !(waited >= silent && link.is_silent_since(asked)) && !is_lost() {
        if let Ok(answer) = tokio::time::timeout(slice, &mut answer).await {
            return Some(answer);
        }
        waited += slice;
        if until_elected && link.may_ask_for_term(LOOK_EVERY) {
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
