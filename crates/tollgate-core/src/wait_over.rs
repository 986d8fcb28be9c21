//! The end of a wait: whether the engine answered by then, and what layers are told of it.

use std::time::Duration;

use tollgate_types::Moment;

use crate::backend::Note;
use crate::claim::WaitStatus;
use crate::client::Client;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// How long a waiting claim gives the engine for its first answer, also if the wait itself is shorter.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// How often a claim looks for that answer when its wait is over.
const LOOK_FOR_ANSWER: Duration = Duration::from_millis(10);

/// Completes at `end`, when the wait is over. The engine has at least [`FIRST_ANSWER`] since the claim was `asked` to say
/// that the lock is busy. Answers whether it did.
pub(crate) async fn wait_is_over(clock: &dyn Clock, status: &WaitStatus, end: Moment, asked: Moment) -> bool {
    clock.sleep_until(end).await;
    while !status.is_queued() && clock.now() < asked + FIRST_ANSWER {
        clock.sleep_until(clock.now() + LOOK_FOR_ANSWER).await;
    }
    status.set_over()
}

/// Completes at `end` if the engine has not answered a request that does not wait.
pub(crate) async fn silence(clock: &dyn Clock, status: &WaitStatus, end: Moment) {
    clock.sleep_until(end).await;
    status.set_over();
}

/// Tells the layers what a wait that is over came to, also if the caller gives up meanwhile.
pub(crate) struct WaitOver<'a> {
    pub(crate) client: &'a Client,
    pub(crate) since: Moment,
    pub(crate) answered: bool,
}

impl Drop for WaitOver<'_> {
    fn drop(&mut self) {
        let waited = self.client.clock.now().since(self.since);
        self.client.backend.note(&Note::WaitOver { waited, answered: self.answered });
    }
}

/// The wait is over, and nobody can say whether the lock was busy.
pub(crate) fn unanswered(most: Option<Duration>) -> Error {
    let within =
        most.filter(|most| !most.is_zero()).map_or_else(String::new, |most| format!(" within {most:?}"));
    Error::new(
        ErrorKind::Indeterminate,
        format!(
            "the engine did not answer{within}: the lock may be free or busy. Check whether the engine is \
             up (`tollgate doctor URL`); the request is withdrawn"
        ),
    )
}
