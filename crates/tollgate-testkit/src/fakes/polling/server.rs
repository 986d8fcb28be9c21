//! The engine without a queue: a table of leases, and a counter for the tokens.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollgate_core::{Details, Holder, LockName, LockState, Mode, Moment, OwnerId, Token};

use crate::fakes::ended::Ended;
use crate::fakes::wire::{Answer, Engine};

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Take the lock now or not at all.
    Acquire {
        name: LockName,
        owner: OwnerId,
        ttl: Duration,
        details: Details,
        /// When the client sent this, on its own clock. The engine only gives it back.
        sent: Moment,
    },
    Withdraw {
        name: LockName,
        owner: OwnerId,
    },
    Extend {
        name: LockName,
        owner: OwnerId,
        ttl: Duration,
        details: Option<Details>,
    },
    Release {
        name: LockName,
        owner: OwnerId,
    },
    Inspect {
        name: LockName,
    },
    List {
        prefix: String,
    },
    Revoke {
        name: LockName,
        token: Token,
        by_force: bool,
    },
}

/// What the engine answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It is yours, since you first asked at `sent`.
    Granted { token: Token, sent: Moment },
    /// It is somebody else's for so long, unless they renew it or give it back.
    Busy { retry_after: Duration },
    /// Done.
    Done,
    /// There is no such grant, or no longer.
    NotHeld,
    /// The holder was asked to leave, or its lock was taken away.
    Revoked,
    /// That claim was over before this request came.
    Over,
    /// What was looked for.
    Locks(Vec<LockState>),
}

struct Lease {
    owner: OwnerId,
    token: Token,
    ends: Instant,
    sent: Moment,
    details: Details,
}

/// The table.
#[derive(Default)]
pub(super) struct Table {
    leases: BTreeMap<LockName, Lease>,
    /// One counter for all names: it outlives them.
    tokens: u64,
    ended: Ended,
    /// Whose grants were revoked. Owner ids do not come again.
    revoked: HashSet<OwnerId>,
}

impl Table {
    fn acquire(&mut self, name: LockName, owner: OwnerId, ttl: Duration, lease: (Details, Moment)) -> Reply {
        if self.ended.knows(owner) {
            return Reply::Over;
        }
        if let Some(lease) = self.leases.get(&name) {
            return match lease.owner == owner {
                // Asked again because the first answer was lost: nothing changes, not even the end.
                true => Reply::Granted { token: lease.token, sent: lease.sent },
                false => Reply::Busy { retry_after: lease.ends - Instant::now() },
            };
        }
        self.tokens += 1;
        let token = Token::new(self.tokens).expect("a test takes fewer than 2^53 locks");
        let ((details, sent), ends) = (lease, Instant::now() + ttl);
        self.leases.insert(name, Lease { owner, token, ends, sent, details });
        Reply::Granted { token, sent }
    }

    fn extend(&mut self, name: &LockName, owner: OwnerId, ttl: Duration, details: Option<Details>) -> Reply {
        if self.revoked.contains(&owner) {
            return Reply::Revoked;
        }
        let Some(lease) = self.leases.get_mut(name).filter(|lease| lease.owner == owner) else {
            return Reply::NotHeld;
        };
        lease.ends = Instant::now() + ttl;
        if let Some(details) = details
            && details.revision >= lease.details.revision
        {
            lease.details = details;
        }
        Reply::Done
    }

    fn revoke(&mut self, name: &LockName, token: Token, by_force: bool) -> Reply {
        let Some(lease) = self.leases.get(name).filter(|lease| lease.token == token) else {
            return Reply::NotHeld;
        };
        self.revoked.insert(lease.owner);
        if by_force { self.end(name, |lease| lease.token == token) } else { Reply::Revoked }
    }

    /// Ends the lease on `name` if it is the one that is meant.
    fn end(&mut self, name: &LockName, meant: impl Fn(&Lease) -> bool) -> Reply {
        if !self.leases.get(name).is_some_and(meant) {
            return Reply::NotHeld;
        }
        if let Some(lease) = self.leases.remove(name) {
            self.ended.remember(lease.owner);
        }
        Reply::Done
    }

    fn look(&self, wanted: impl Fn(&LockName) -> bool) -> Reply {
        let now = Instant::now();
        let held = self.leases.iter().filter(|(name, _)| wanted(name));
        Reply::Locks(
            held.map(|(name, lease)| LockState {
                name: name.clone(),
                holders: vec![Holder {
                    mode: Mode::Exclusive,
                    token: Some(lease.token),
                    expires_in: Some(lease.ends - now),
                    details: lease.details.clone(),
                }],
                waiters: Vec::new(),
            })
            .collect(),
        )
    }
}

impl Engine for Table {
    type Request = Request;
    type Reply = Reply;

    fn handle(&mut self, request: Request) -> Answer<Reply> {
        self.tick();
        Answer::Now(match request {
            Request::Acquire { name, owner, ttl, details, sent } => {
                self.acquire(name, owner, ttl, (details, sent))
            }
            Request::Withdraw { name, owner } => {
                self.ended.remember(owner);
                self.end(&name, |lease| lease.owner == owner);
                Reply::Done
            }
            Request::Extend { name, owner, ttl, details } => self.extend(&name, owner, ttl, details),
            Request::Release { name, owner } => self.end(&name, |lease| lease.owner == owner),
            Request::Inspect { name } => self.look(|other| *other == name),
            Request::List { prefix } => self.look(|name| name.as_str().starts_with(&prefix)),
            Request::Revoke { name, token, by_force } => self.revoke(&name, token, by_force),
        })
    }

    fn tick(&mut self) {
        let (now, ended) = (Instant::now(), &mut self.ended);
        self.leases.retain(|_, lease| {
            let lives = lease.ends > now;
            if !lives {
                ended.remember(lease.owner);
            }
            lives
        });
        ended.forget_the_old();
    }
}
