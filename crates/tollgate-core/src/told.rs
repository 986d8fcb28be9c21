//! The last word on a guard's state, and those who listen for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::hold::GuardState;
use crate::states::States;

/// What was said last. Most guards are given back before anybody listens, so nothing is set up for it until somebody does.
pub(crate) struct Told(Mutex<Word>);

struct Word {
    state: GuardState,
    listeners: Option<watch::Sender<GuardState>>,
}

impl Told {
    pub(crate) fn new(state: GuardState) -> Self {
        Self(Mutex::new(Word { state, listeners: None }))
    }

    pub(crate) fn get(&self) -> GuardState {
        self.word().state
    }

    /// Lets `change` say another state, or none, and answers whether it did. One after the other, and all hear them in
    /// the same order.
    pub(crate) fn change(&self, change: impl FnOnce(GuardState) -> Option<GuardState>) -> bool {
        let mut word = self.word();
        let Some(state) = change(word.state) else { return false };
        word.state = state;
        if let Some(listeners) = &word.listeners {
            listeners.send_replace(state);
        }
        true
    }

    pub(crate) fn listen(&self) -> States {
        let mut word = self.word();
        let state = word.state;
        States::new(word.listeners.get_or_insert_with(|| watch::Sender::new(state)).subscribe())
    }

    fn word(&self) -> MutexGuard<'_, Word> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::LossCause;

    #[test]
    fn whoever_listens_late_hears_the_last_word() {
        let lost = GuardState::Lost { cause: LossCause::Gone };
        let told = Told::new(GuardState::Held);
        assert!(told.change(|_| Some(GuardState::Jeopardy)));
        let listener = told.listen();
        assert_eq!(listener.get(), GuardState::Jeopardy);
        assert!(!told.change(|_| None));
        assert!(told.change(|before| (before == GuardState::Jeopardy).then_some(lost)));
        assert_eq!((listener.get(), told.listen().get(), told.get()), (lost, lost, lost));
    }
}
