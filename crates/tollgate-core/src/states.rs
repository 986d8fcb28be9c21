//! Every change of a guard's state, for those who want to follow it.

use tokio::sync::watch;

use crate::backend::LossCause;
use crate::hold::GuardState;

/// Follows the state of a guard. What it gives are copies: nothing that a user keeps can hold up the keeper.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-states").await?;
/// use tollgate::GuardState;
///
/// let guard = locks.lock("orders/42").acquire().await?;
/// let mut states = guard.watch();
/// assert_eq!(states.get(), GuardState::Held);
/// guard.release().await?;
/// assert!(matches!(states.changed().await, GuardState::Lost { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct States(watch::Receiver<GuardState>);

impl States {
    pub(crate) fn new(states: watch::Receiver<GuardState>) -> Self {
        Self(states)
    }

    /// The last state that was told. [`Lease::state`](crate::Lease::state) reads the clock too.
    pub fn get(&self) -> GuardState {
        *self.0.borrow()
    }

    /// Waits for a change and gives the new state. After the last one, `Lost`, it gives that again.
    pub async fn changed(&mut self) -> GuardState {
        if self.0.changed().await.is_err() {
            return GuardState::Lost { cause: LossCause::Released };
        }
        *self.0.borrow_and_update()
    }

    /// Waits until `wanted` says yes of the state that was told last, and gives it.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(GuardState) -> bool) -> GuardState {
        match self.0.wait_for(|state| wanted(*state)).await.map(|state| *state) {
            Ok(state) => state,
            Err(_) => GuardState::Lost { cause: LossCause::Released },
        }
    }

    /// Waits for the end.
    pub(crate) async fn lost(mut self) -> LossCause {
        match self.wait_for(|state| matches!(state, GuardState::Lost { .. })).await {
            GuardState::Lost { cause } => cause,
            GuardState::Held | GuardState::Jeopardy => LossCause::Released,
        }
    }
}
