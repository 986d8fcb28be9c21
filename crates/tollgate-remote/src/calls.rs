//! The calls of one connection: which are open, when each was sent, and what they are told.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tollgate_core::{
    Age, Claim, Conflict, Event, LockState, Moment, OwnerId, PartyHandle, Token, WaitStatus,
};
use tollgate_proto::frame::{Call, Malformed, Reply};

use crate::details;

/// The longest pause between two looks at a connection that owes answers.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What a call was answered.
#[derive(Debug)]
pub(crate) enum Told {
    Granted {
        token: Token,
        /// When a call was sent that the server had read, and how long after that the lease ends.
        sent: Moment,
        lasts: Duration,
        age: Option<Age>,
    },
    Busy {
        ahead: usize,
        retry_after: Option<Duration>,
        age: Option<Age>,
    },
    Deadlock {
        conflict: Conflict,
        age: Option<Age>,
    },
    Moved,
    Mismatch,
    NotGranting {
        left: Option<Duration>,
    },
    Exhausted,
    Lost,
    Revoked,
    Released {
        /// An earlier call had released it.
        again: bool,
    },
    Done,
    Broken,
    Asked,
    Admitted,
    Stale {
        mark: Token,
    },
    NeverGiven,
    Mark {
        mark: Option<Token>,
    },
    Age {
        age: Age,
    },
    Seen {
        locks: Vec<LockState>,
        next: Option<u64>,
    },
    Invalid {
        detail: String,
    },
}

/// A claim whose acquire is open, as far as the connection must know it.
pub(crate) struct Waiting {
    ttl: Duration,
    status: WaitStatus,
    party: Option<PartyHandle>,
    was_queued: Arc<AtomicBool>,
}

impl Waiting {
    pub(crate) fn new(claim: &Claim, was_queued: Arc<AtomicBool>) -> Self {
        let (status, party) = (claim.wait_status.clone(), claim.party.clone());
        Self { ttl: claim.ttl, status, party, was_queued }
    }

    fn queued(&self, age: Option<Age>) {
        if let (Some(party), Some(age)) = (&self.party, age) {
            party.note(age);
        }
        self.status.set_queued();
        self.was_queued.store(true, Ordering::Release);
    }
}

/// Who hears what an open call is told.
pub(crate) enum Open {
    Call { answer: oneshot::Sender<Told>, seen: Vec<LockState> },
    Acquire { answer: oneshot::Sender<Told>, waiting: Waiting, is_queued: bool },
    Follow { answer: Option<oneshot::Sender<Told>>, events: mpsc::Sender<Event> },
    Ping,
}

impl Open {
    /// A call with one answer.
    pub(crate) fn call() -> (Self, oneshot::Receiver<Told>) {
        let (answer, told) = oneshot::channel();
        (Self::Call { answer, seen: Vec::new() }, told)
    }
}

/// The calls of one connection.
pub(crate) struct Calls {
    /// What is to be written.
    pub(crate) out: Vec<u8>,
    next: u32,
    /// When each call was sent, by its number, without gaps: from the first on that the server may
    /// still name.
    sent: VecDeque<(u32, Moment)>,
    open: HashMap<u32, Open>,
    /// No call may be added any more.
    pub(crate) is_closed: bool,
    /// The task that drives the connection.
    pub(crate) waker: Option<Waker>,
    /// How often to look after the connection: more often while claims with a short ttl wait.
    pub(crate) look: Duration,
    /// Grants that were revoked.
    revoked: broadcast::Sender<OwnerId>,
}

impl Calls {
    /// The calls of a connection whose greeting had the number 1.
    pub(crate) fn new(revoked: broadcast::Sender<OwnerId>) -> Self {
        Self {
            out: Vec::new(),
            next: 2,
            sent: VecDeque::new(),
            open: HashMap::new(),
            is_closed: false,
            waker: None,
            look: LOOK,
            revoked,
        }
    }

    /// Adds a call that is sent from `now` on; its number.
    pub(crate) fn add(&mut self, call: &Call<'_>, open: Option<Open>, now: Moment) -> u32 {
        if self.open.is_empty() {
            // No answer that is to come names a call before this one.
            self.sent.clear();
        }
        let number = self.next;
        self.next += 1;
        call.write(number, &mut self.out);
        self.sent.push_back((number, now));
        if let Some(open) = open {
            self.open.insert(number, open);
        }
        // Long before the numbers are used up the connection is replaced.
        self.is_closed |= self.next == u32::MAX - 1;
        number
    }

    /// Whether no call is open, so that the server owes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether claims wait whose hand-overs count from the last call that was sent.
    pub(crate) fn has_waiting(&mut self) -> bool {
        let ttls = self.open.values().filter_map(|open| match open {
            Open::Acquire { waiting, is_queued: true, .. } => Some(waiting.ttl),
            _ => None,
        });
        let shortest = ttls.min();
        self.look = shortest.map_or(LOOK, |ttl| LOOK.min(ttl / 3));
        shortest.is_some()
    }

    /// Forgets a call: what it is told is dropped.
    pub(crate) fn forget(&mut self, number: u32) {
        self.open.remove(&number);
    }

    /// Nothing more comes: every open call hears that it is not answered.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.open.clear();
    }

    /// Passes on one frame.
    pub(crate) fn receive(&mut self, frame: &[u8], now: Moment) -> Result<(), Malformed> {
        let (number, reply) = Reply::read(frame)?;
        if number != 0 {
            // Frames that come later name no call before this one.
            while self.sent.front().is_some_and(|(sent, _)| *sent < number) {
                self.sent.pop_front();
            }
        }
        let told = match reply {
            Reply::Queued { age, .. } => {
                if let Some(Open::Acquire { waiting, is_queued, .. }) = self.open.get_mut(&number) {
                    waiting.queued(age);
                    *is_queued = true;
                    self.look = self.look.min(waiting.ttl / 3);
                }
                return Ok(());
            }
            Reply::Seen(part) => {
                if let Some(Open::Call { seen, .. }) = self.open.get_mut(&number) {
                    details::add(seen, &part);
                }
                return Ok(());
            }
            Reply::Happened(happened) => {
                if let Some(Open::Follow { events, .. }) = self.open.get(&number) {
                    // A reader that is too slow misses some.
                    let _ = events.try_send(details::event(&happened));
                }
                return Ok(());
            }
            Reply::Gone { owner, .. } => {
                // Fails if nothing listens.
                let _ = self.revoked.send(owner);
                return Ok(());
            }
            Reply::Ping => {
                self.add(&Call::Pong, None, now);
                return Ok(());
            }
            Reply::Stopping => {
                self.is_closed = true;
                return Ok(());
            }
            Reply::Welcome(_) | Reply::Refused(_) => return Err(Malformed::Value("greeting")),
            Reply::Pong => {
                self.open.remove(&number);
                return Ok(());
            }
            Reply::Granted { .. } if !self.open.contains_key(&number) => return Ok(()),
            Reply::Granted { token, call, lasts, age, .. } => {
                let sent = self.sent_at(call).ok_or(Malformed::Value("call number"))?;
                Told::Granted { token, sent, lasts, age }
            }
            Reply::Busy { ahead, retry_after, age } => Told::Busy { ahead: ahead as usize, retry_after, age },
            Reply::Deadlock { conflict, age } => Told::Deadlock { conflict, age },
            Reply::Moved => Told::Moved,
            Reply::Mismatch => Told::Mismatch,
            Reply::NotGranting { left } => Told::NotGranting { left },
            Reply::Exhausted => Told::Exhausted,
            Reply::Lost => Told::Lost,
            Reply::Revoked => Told::Revoked,
            Reply::Released { again } => Told::Released { again },
            Reply::Done => Told::Done,
            Reply::Broken => Told::Broken,
            Reply::Asked => Told::Asked,
            Reply::Admitted { .. } => Told::Admitted,
            Reply::Stale { mark } => Told::Stale { mark },
            Reply::NeverGiven => Told::NeverGiven,
            Reply::Mark { mark } => Told::Mark { mark },
            Reply::Age { age } => Told::Age { age },
            Reply::Listed { next } => Told::Seen { locks: Vec::new(), next },
            Reply::Invalid { detail } => Told::Invalid { detail: detail.to_owned() },
        };
        self.answer(number, told);
        Ok(())
    }

    /// When a call was sent that the server has read.
    fn sent_at(&self, call: u32) -> Option<Moment> {
        let (first, _) = self.sent.front()?;
        let (number, at) = self.sent.get(call.checked_sub(*first)? as usize)?;
        (*number == call).then_some(*at)
    }

    /// Ends a call. Its caller may be gone: a claim that was given up is withdrawn.
    fn answer(&mut self, number: u32, told: Told) {
        match self.open.remove(&number) {
            Some(Open::Call { answer, seen }) => {
                let told = match told {
                    Told::Seen { next, .. } => Told::Seen { locks: seen, next },
                    other => other,
                };
                let _ = answer.send(told);
            }
            Some(Open::Acquire { answer, .. }) => {
                let _ = answer.send(told);
            }
            Some(Open::Follow { answer, events }) => {
                if let Some(answer) = answer {
                    let _ = answer.send(told);
                }
                self.open.insert(number, Open::Follow { answer: None, events });
            }
            Some(Open::Ping) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(millis)
    }

    fn calls() -> Calls {
        Calls::new(broadcast::Sender::new(1))
    }

    fn grant(calls: &mut Calls, number: u32, named: u32) -> Result<(), Malformed> {
        let (token, lasts) = (Token::MIN, Duration::from_secs(1));
        let mut frame = Vec::new();
        Reply::Granted { token, call: named, lasts, again: false, age: None }.write(number, &mut frame);
        calls.receive(&frame, at(0))
    }

    #[test]
    fn a_grant_counts_from_the_call_that_it_names() {
        let mut calls = calls();
        let (open, mut told) = Open::call();
        let first = calls.add(&Call::Age, Some(open), at(1));
        calls.add(&Call::Ping, Some(Open::Ping), at(2));
        let named = calls.add(&Call::Ping, Some(Open::Ping), at(3));
        grant(&mut calls, first, named).unwrap();
        assert!(matches!(told.try_recv(), Ok(Told::Granted { sent, .. }) if sent == at(3)));
    }

    #[test]
    fn a_grant_that_names_a_call_that_was_never_sent_ends_the_connection() {
        let mut calls = calls();
        let (open, _told) = Open::call();
        let first = calls.add(&Call::Age, Some(open), at(1));
        assert!(grant(&mut calls, first, first + 1).is_err());
        assert!(grant(&mut calls, first, first - 1).is_err());
    }

    #[test]
    fn an_idle_connection_remembers_no_calls() {
        let mut calls = calls();
        for _ in 0..100 {
            calls.add(&Call::Pong, None, at(1));
        }
        assert_eq!(calls.sent.len(), 1);
    }

    #[test]
    fn an_end_is_told_to_every_open_call() {
        let mut calls = calls();
        let (open, mut told) = Open::call();
        calls.add(&Call::Age, Some(open), at(1));
        calls.close();
        assert!(matches!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    }
}
