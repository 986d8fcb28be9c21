//! Calls that wait for a change of one lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;
use tollgate_core::LockName;

use super::driver::Inner;

/// The locks that calls wait for.
#[derive(Default)]
pub(super) struct Watchers {
    by_name: RefCell<HashMap<LockName, Weak<Notify>>>,
}

/// A call that waits for a change of one lock.
pub(super) struct Watch<'a> {
    inner: &'a Inner,
    name: LockName,
    notify: Rc<Notify>,
}

impl Watchers {
    /// Wakes the calls that wait for these locks.
    pub(super) fn wake(&self, changed: &[LockName]) {
        if changed.is_empty() {
            return;
        }
        let by_name = self.by_name.borrow();
        for name in changed {
            if let Some(notify) = by_name.get(name).and_then(Weak::upgrade) {
                notify.notify_waiters();
            }
        }
    }
}

impl<'a> Watch<'a> {
    /// Watches a lock from now on.
    pub(super) fn new(inner: &'a Inner, name: &LockName) -> Self {
        let mut by_name = inner.watchers.by_name.borrow_mut();
        if by_name.is_empty() {
            inner.table.borrow_mut().set_watched(true);
        }
        let known = by_name.get(name).and_then(Weak::upgrade);
        let notify = known.unwrap_or_else(|| {
            let notify = Rc::new(Notify::new());
            by_name.insert(name.clone(), Rc::downgrade(&notify));
            notify
        });
        drop(by_name);
        Self { inner, name: name.clone(), notify }
    }

    /// A future that completes at the next change after it was made with this call.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // This handle is the last one.
        if Rc::strong_count(&self.notify) == 1 {
            let mut by_name = self.inner.watchers.by_name.borrow_mut();
            by_name.remove(&self.name);
            if by_name.is_empty() {
                self.inner.table.borrow_mut().set_watched(false);
            }
        }
    }
}
