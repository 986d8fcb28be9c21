//! What a connection has to send, and what the server knows of its calls.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::task::Waker;

use tollgate_core::{Moment, OwnerId};
use tollgate_proto::frame::Reply;

/// More than this is not kept of what a client is told unasked and does not read: its connection is
/// dropped, and its claims keep their places.
const MOST_PUSHED: usize = 1 << 20;
/// While so much waits to be sent no more calls are applied, so that answers have a bound, too.
pub(super) const ENOUGH: usize = 256 << 10;

/// One connection, as the rest of the server sees it.
pub(super) struct Outbox {
    pub(super) connection: u64,
    /// The client, as it introduced itself.
    pub(super) client: Cell<u128>,
    bytes: RefCell<Vec<u8>>,
    /// The task of the connection, which waits for something to send.
    waker: RefCell<Option<Waker>>,
    /// How many of these bytes no call asked for.
    pushed: Cell<usize>,
    is_ending: Cell<bool>,
    /// The last call that was read, and when, by the engine's time.
    last_read: Cell<(u32, Moment)>,
    /// Calls about a claim that are not answered.
    open: RefCell<HashMap<u32, Open>>,
}

/// A call about a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) owner: OwnerId,
    /// The claim's party has no age yet, and is told the one it gets.
    pub(super) wants_age: bool,
}

impl Outbox {
    pub(super) fn new(connection: u64) -> Self {
        Self {
            connection,
            client: Cell::new(0),
            bytes: RefCell::default(),
            waker: RefCell::default(),
            pushed: Cell::new(0),
            is_ending: Cell::new(false),
            last_read: Cell::new((0, Moment::ZERO)),
            open: RefCell::default(),
        }
    }

    /// A call was read.
    pub(super) fn has_read(&self, call: u32, now: Moment) {
        self.last_read.set((call, now));
    }

    pub(super) fn last_read(&self) -> (u32, Moment) {
        self.last_read.get()
    }

    /// Remembers a call until it is answered.
    pub(super) fn open(&self, call: u32, open: Open) {
        self.open.borrow_mut().insert(call, open);
    }

    pub(super) fn opened(&self, call: u32) -> Option<Open> {
        self.open.borrow().get(&call).copied()
    }

    pub(super) fn close(&self, call: u32) -> Option<Open> {
        self.open.borrow_mut().remove(&call)
    }

    /// Adds the answer to a call.
    pub(super) fn send(&self, call: u32, reply: &Reply<'_>) {
        reply.write(call, &mut self.bytes.borrow_mut());
        self.wake();
    }

    /// Adds what the client did not ask for, unless there is too much of that already.
    pub(super) fn push(&self, call: u32, reply: &Reply<'_>) {
        if !self.is_overfull() {
            let mut bytes = self.bytes.borrow_mut();
            let before = bytes.len();
            reply.write(call, &mut bytes);
            self.pushed.set(self.pushed.get() + bytes.len() - before);
        }
        self.wake();
    }

    /// The connection ends when everything is sent.
    pub(super) fn end(&self) {
        self.is_ending.set(true);
        self.wake();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.pushed.get() > MOST_PUSHED
    }

    /// How many bytes wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// Moves what waits to be sent into `out`, which is empty.
    pub(super) fn take(&self, out: &mut Vec<u8>) {
        self.pushed.set(0);
        std::mem::swap(&mut *self.bytes.borrow_mut(), out);
    }

    /// Whom to wake when there is something to send.
    pub(super) fn listen(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        match &mut *known {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}
