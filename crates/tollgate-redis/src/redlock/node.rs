//! One node: where it is, and whether it is worth asking.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::ErrorKind;

use crate::endpoint::Endpoint;
use crate::redlock::trouble::Trouble;

/// One node. One that failed is set aside: nobody waits for it until somebody in the background has reached it again.
pub(crate) struct Node {
    /// HOST:PORT, for those who read.
    pub(crate) label: String,
    pub(crate) endpoint: Endpoint,
    aside: AtomicBool,
    /// Why it was of no use the last time.
    last: Mutex<Option<Trouble>>,
    /// Under which id it ran when it was last reached.
    run_id: Mutex<String>,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        let (last, run_id) = (Mutex::default(), Mutex::default());
        Self { label: endpoint.address(), endpoint, aside: AtomicBool::new(false), last, run_id }
    }

    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Acquire)
    }

    /// Sets it aside. Answers whether it was not before.
    pub(crate) fn set_aside(&self, trouble: Trouble) -> bool {
        self.note(trouble);
        !self.aside.swap(true, Ordering::AcqRel)
    }

    /// It answers again.
    pub(crate) fn bring_back(&self) {
        // One that was not set aside may have said just now why it does not vote, and a caller is about to tell that.
        if self.is_aside() {
            *self.last() = None;
            self.aside.store(false, Ordering::Release);
        }
    }

    pub(crate) fn note(&self, trouble: Trouble) {
        *self.last() = Some(trouble);
    }

    /// Whether something is known against it.
    pub(crate) fn is_troubled(&self) -> bool {
        self.last().is_some()
    }

    /// Why it was of no use the last time.
    pub(crate) fn trouble(&self) -> Trouble {
        let last = self.last().clone();
        last.unwrap_or_else(|| Trouble::new(ErrorKind::Unavailable, "the node has not answered yet"))
    }

    pub(crate) fn run_id(&self) -> MutexGuard<'_, String> {
        self.run_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RedisConfig;
    use tollgate_core::url::Host;

    #[test]
    fn another_connection_does_not_hide_why_a_node_is_of_no_use() {
        let speech = RedisConfig::from_url("redis://a").and_then(|config| config.speech()).unwrap();
        let node = Node::new(Endpoint::new(Host { name: "a".to_owned(), port: 1 }, speech));
        node.note(Trouble::new(ErrorKind::Unavailable, "it was restarted"));
        node.bring_back();
        assert_eq!(node.trouble().message, "it was restarted");
        assert!(node.set_aside(Trouble::new(ErrorKind::Unavailable, "it is silent")));
        node.bring_back();
        assert_eq!(node.trouble().message, "the node has not answered yet");
    }
}
