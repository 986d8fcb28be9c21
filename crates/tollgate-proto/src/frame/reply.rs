//! What the server answers, and what it tells unasked.

use std::time::Duration;

use tollgate_types::{Age, Conflict, LockName, Mode, OwnerId, Token};

use super::reader::Reader;
use super::who::Who;
use super::writer::Writer;
use super::{Malformed, PART_BYTES};
use crate::Durability;

/// One frame from the server to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Hello: the connection may be used.
    Welcome(Welcome),
    /// Hello, or a frame that cannot be read: the connection ends.
    Refused(Refusal),
    /// Acquire, extend: the client holds the lock.
    Granted {
        /// The fencing token.
        token: Token,
        /// The last call of this connection that the server had read.
        call: u32,
        /// How long after it had read that call the lease ends. The margin is the client's to take
        /// off.
        lasts: Duration,
        /// Whether the claim had been granted before this call.
        again: bool,
        /// The age of the claim's party.
        age: Option<Age>,
    },
    /// Acquire: the claim waits. The outcome follows with the same id.
    Queued {
        /// How many claims are ahead.
        ahead: u32,
        /// The age of the claim's party.
        age: Option<Age>,
    },
    /// Acquire: other holders have the lock, and nothing is left of the claim.
    Busy {
        /// How many claims are ahead.
        ahead: u32,
        /// After how long it makes sense to try again.
        retry_after: Option<Duration>,
        /// The age of the claim's party.
        age: Option<Age>,
    },
    /// Acquire: waiting might never end, and nothing is left of the claim.
    Deadlock {
        /// Why.
        conflict: Conflict,
        /// The age of the claim's party.
        age: Option<Age>,
    },
    /// Acquire: a later call of the same claim took over.
    Moved,
    /// Acquire: the owner id belongs to a claim with another mode or party.
    Mismatch,
    /// Acquire: nothing is granted now, for so long, as far as that is known.
    NotGranting {
        /// For how long.
        left: Option<Duration>,
    },
    /// Acquire: no token is left.
    Exhausted,
    /// Extend, release, break: there is no such grant. Acquire: the owner id is over.
    Lost,
    /// Extend: an operator asked the holder to leave.
    Revoked,
    /// Release: done.
    Released {
        /// Whether an earlier call had released it.
        again: bool,
    },
    /// Withdraw, raise the floor, unfollow: done. Follow: events are told from now on.
    Done,
    /// Break: the holder is out.
    Broken,
    /// Break: the holder is asked to leave.
    Asked,
    /// Admit: the token is admitted.
    Admitted {
        /// The mark now.
        mark: Token,
    },
    /// Admit: the token is stale.
    Stale {
        /// The mark.
        mark: Token,
    },
    /// Admit: this server never gave such a large token.
    NeverGiven,
    /// Mark: the mark, if there is one.
    Mark {
        /// The highest exclusive token that was admitted.
        mark: Option<Token>,
    },
    /// Age: the server's time.
    Age {
        /// The age of a party whose first claim comes now.
        age: Age,
    },
    /// Inspect, list: a lock, or a part of one; parts follow each other. [`Listed`](Self::Listed)
    /// ends them.
    Seen(LockSeen<'a>),
    /// Inspect, list: this was everything, or a page.
    Listed {
        /// Where the next page begins; `None` at the end.
        next: Option<u64>,
    },
    /// Any call: a value is outside the server's limits, which the text names.
    Invalid {
        /// What to do.
        detail: &'a str,
    },
    /// Ping.
    Pong,
    /// Unasked: the server wants to know whether the client is there, which answers
    /// [`Call::Pong`](super::Call::Pong).
    Ping,
    /// Unasked: a grant of this client is lost, or to be left.
    Gone {
        /// The owner id.
        owner: OwnerId,
        /// Why.
        cause: Gone,
    },
    /// Unasked: the server stops. Grants stay; clients come back when it runs again.
    Stopping,
    /// Unasked, with the number of the follow call: something happened to a lock.
    Happened(Happened<'a>),
}

/// What a client must know of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version of the protocol that both use from now on.
    pub version: u16,
    /// The run of the server: another one after each start.
    pub run: u128,
    /// What a crash of the server may cost.
    pub durability: Durability,
    /// The longest time to live, with its lock-delay.
    pub longest: Duration,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The server does not speak this version; it speaks the one that is named.
    Version(u16),
    /// A frame could not be read.
    Malformed,
    /// The client does not read what it is told.
    TooSlow,
    /// This server answers HTTP alone: it passes locks on to another engine.
    OnlyHttp,
    /// The server has as many connections as it may have, in all or from one address.
    Full,
}

/// Why a grant is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// An operator or an older party took it away, or asked the holder to leave.
    Revoked,
    /// Its lease ended.
    Expired,
}

/// A lock, or a part of one, as it is seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSeen<'a> {
    /// The lock.
    pub name: LockName,
    /// Holders, in the order of their grants.
    pub holders: Vec<HolderSeen<'a>>,
    /// Waiters, in the order of the queue.
    pub waiters: Vec<WaiterSeen<'a>>,
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderSeen<'a> {
    /// How it shares the lock.
    pub mode: Mode,
    /// Its token.
    pub token: Token,
    /// When its lease ends unless it is renewed.
    pub expires_in: Duration,
    /// Who it is.
    pub who: Who<'a>,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterSeen<'a> {
    /// How it wants to share the lock.
    pub mode: Mode,
    /// Who it is.
    pub who: Who<'a>,
}

/// Something that happened to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened<'a> {
    /// The lock.
    pub name: LockName,
    /// The token of the grant.
    pub token: Token,
    /// What happened: 0 granted, 1 released, 2 expired, 3 revoked, 4 ended.
    pub what: u8,
    /// The holder, as far as it is known.
    pub who: Option<Who<'a>>,
}

mod kind {
    pub(super) const WELCOME: u8 = 64;
    pub(super) const REFUSED: u8 = 65;
    pub(super) const GRANTED: u8 = 66;
    pub(super) const QUEUED: u8 = 67;
    pub(super) const BUSY: u8 = 68;
    pub(super) const DEADLOCK: u8 = 69;
    pub(super) const MOVED: u8 = 70;
    pub(super) const MISMATCH: u8 = 71;
    pub(super) const NOT_GRANTING: u8 = 72;
    pub(super) const EXHAUSTED: u8 = 73;
    pub(super) const LOST: u8 = 74;
    pub(super) const REVOKED: u8 = 75;
    pub(super) const RELEASED: u8 = 76;
    pub(super) const DONE: u8 = 77;
    pub(super) const BROKEN: u8 = 78;
    pub(super) const ASKED: u8 = 79;
    pub(super) const ADMITTED: u8 = 80;
    pub(super) const STALE: u8 = 81;
    pub(super) const NEVER_GIVEN: u8 = 82;
    pub(super) const MARK: u8 = 83;
    pub(super) const AGE: u8 = 84;
    pub(super) const SEEN: u8 = 85;
    pub(super) const LISTED: u8 = 86;
    pub(super) const INVALID: u8 = 87;
    pub(super) const PONG: u8 = 88;
    pub(super) const PING: u8 = 89;
    pub(super) const GONE: u8 = 90;
    pub(super) const STOPPING: u8 = 91;
    pub(super) const HAPPENED: u8 = 92;
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> Reply<'a> {
    fn kind(&self) -> u8 {
        match self {
            Self::Welcome(_) => kind::WELCOME,
            Self::Refused(_) => kind::REFUSED,
            Self::Granted { .. } => kind::GRANTED,
            Self::Queued { .. } => kind::QUEUED,
            Self::Busy { .. } => kind::BUSY,
            Self::Deadlock { .. } => kind::DEADLOCK,
            Self::Moved => kind::MOVED,
            Self::Mismatch => kind::MISMATCH,
            Self::NotGranting { .. } => kind::NOT_GRANTING,
            Self::Exhausted => kind::EXHAUSTED,
            Self::Lost => kind::LOST,
            Self::Revoked => kind::REVOKED,
            Self::Released { .. } => kind::RELEASED,
            Self::Done => kind::DONE,
            Self::Broken => kind::BROKEN,
            Self::Asked => kind::ASKED,
            Self::Admitted { .. } => kind::ADMITTED,
            Self::Stale { .. } => kind::STALE,
            Self::NeverGiven => kind::NEVER_GIVEN,
            Self::Mark { .. } => kind::MARK,
            Self::Age { .. } => kind::AGE,
            Self::Seen(_) => kind::SEEN,
            Self::Listed { .. } => kind::LISTED,
            Self::Invalid { .. } => kind::INVALID,
            Self::Pong => kind::PONG,
            Self::Ping => kind::PING,
            Self::Gone { .. } => kind::GONE,
            Self::Stopping => kind::STOPPING,
            Self::Happened(_) => kind::HAPPENED,
        }
    }

    /// Appends the frame that answers the call with the number `id` to `out`; 0 if it answers none.
    pub fn write(&self, id: u32, out: &mut Vec<u8>) {
        if let Self::Seen(lock) = self {
            return lock.write(id, out);
        }
        let mut to = Writer::new(out, self.kind(), id);
        match self {
            Self::Welcome(welcome) => {
                to.u16(welcome.version).u128(welcome.run).u8(match welcome.durability {
                    Durability::Sync => 0,
                    Durability::Grace => 1,
                    Durability::Engine => 2,
                });
                to.u64(millis(welcome.longest));
            }
            Self::Refused(refusal) => {
                match refusal {
                    Refusal::Version(version) => to.u8(0).u16(*version),
                    Refusal::Malformed => to.u8(1),
                    Refusal::TooSlow => to.u8(2),
                    Refusal::OnlyHttp => to.u8(3),
                    Refusal::Full => to.u8(4),
                };
            }
            Self::Granted { token, call, lasts, again, age } => {
                to.u64(token.get()).u32(*call).u64(micros(*lasts)).flag(*again).age(*age);
            }
            Self::Queued { ahead, age } => {
                to.u32(*ahead).age(*age);
            }
            Self::Busy { ahead, retry_after, age } => {
                to.u32(*ahead).option(*retry_after, |to, after| {
                    to.u64(micros(after));
                });
                to.age(*age);
            }
            Self::Deadlock { conflict, age } => {
                to.age(*age).conflict(conflict);
            }
            Self::NotGranting { left } => {
                to.option(*left, |to, left| {
                    to.u64(millis(left));
                });
            }
            Self::Released { again } => {
                to.flag(*again);
            }
            Self::Admitted { mark } | Self::Stale { mark } => {
                to.u64(mark.get());
            }
            Self::Mark { mark } => {
                to.option(*mark, |to, mark| {
                    to.u64(mark.get());
                });
            }
            Self::Age { age } => {
                to.u64(age.0);
            }
            Self::Listed { next } => {
                to.option(*next, |to, next| {
                    to.u64(next);
                });
            }
            Self::Invalid { detail } => {
                to.text(detail);
            }
            Self::Gone { owner, cause } => {
                to.u128(owner.to_bits()).u8(match cause {
                    Gone::Revoked => 0,
                    Gone::Expired => 1,
                });
            }
            Self::Happened(happened) => {
                to.text(happened.name.as_str()).u64(happened.token.get()).u8(happened.what);
                to.option(happened.who.as_ref(), |to, who| who.write(to));
            }
            Self::Seen(_)
            | Self::Moved
            | Self::Mismatch
            | Self::Exhausted
            | Self::Lost
            | Self::Revoked
            | Self::Done
            | Self::Broken
            | Self::Asked
            | Self::NeverGiven
            | Self::Pong
            | Self::Ping
            | Self::Stopping => {}
        }
    }

    /// Reads a whole frame, with its four bytes of length: the number of the call that it answers,
    /// and what it says.
    pub fn read(frame: &'a [u8]) -> Result<(u32, Self), Malformed> {
        let (kind, id, mut from) = Reader::of(frame)?;
        let reply = match kind {
            kind::WELCOME => Self::Welcome(Welcome {
                version: from.u16()?,
                run: from.u128()?,
                durability: match from.u8()? {
                    0 => Durability::Sync,
                    1 => Durability::Grace,
                    2 => Durability::Engine,
                    _ => return Err(Malformed::Value("durability")),
                },
                longest: from.millis()?,
            }),
            kind::REFUSED => Self::Refused(match from.u8()? {
                0 => Refusal::Version(from.u16()?),
                1 => Refusal::Malformed,
                2 => Refusal::TooSlow,
                3 => Refusal::OnlyHttp,
                4 => Refusal::Full,
                _ => return Err(Malformed::Value("refusal")),
            }),
            kind::GRANTED => Self::Granted {
                token: from.token()?,
                call: from.u32()?,
                lasts: from.micros()?,
                again: from.flag()?,
                age: from.age()?,
            },
            kind::QUEUED => Self::Queued { ahead: from.u32()?, age: from.age()? },
            kind::BUSY => {
                Self::Busy { ahead: from.u32()?, retry_after: from.option(Reader::micros)?, age: from.age()? }
            }
            kind::DEADLOCK => Self::Deadlock { age: from.age()?, conflict: from.conflict()? },
            kind::MOVED => Self::Moved,
            kind::MISMATCH => Self::Mismatch,
            kind::NOT_GRANTING => Self::NotGranting { left: from.option(Reader::millis)? },
            kind::EXHAUSTED => Self::Exhausted,
            kind::LOST => Self::Lost,
            kind::REVOKED => Self::Revoked,
            kind::RELEASED => Self::Released { again: from.flag()? },
            kind::DONE => Self::Done,
            kind::BROKEN => Self::Broken,
            kind::ASKED => Self::Asked,
            kind::ADMITTED => Self::Admitted { mark: from.token()? },
            kind::STALE => Self::Stale { mark: from.token()? },
            kind::NEVER_GIVEN => Self::NeverGiven,
            kind::MARK => Self::Mark { mark: from.option(Reader::token)? },
            kind::AGE => Self::Age { age: Age(from.u64()?) },
            kind::SEEN => Self::Seen(LockSeen::read(&mut from)?),
            kind::LISTED => Self::Listed { next: from.option(Reader::u64)? },
            kind::INVALID => Self::Invalid { detail: from.text()? },
            kind::PONG => Self::Pong,
            kind::PING => Self::Ping,
            kind::GONE => Self::Gone {
                owner: from.owner()?,
                cause: match from.u8()? {
                    0 => Gone::Revoked,
                    1 => Gone::Expired,
                    _ => return Err(Malformed::Value("cause")),
                },
            },
            kind::STOPPING => Self::Stopping,
            kind::HAPPENED => Self::Happened(Happened {
                name: from.name()?,
                token: from.token()?,
                what: from.u8()?,
                who: from.option(Who::read)?,
            }),
            other => return Err(Malformed::Kind(other)),
        };
        from.end()?;
        Ok((id, reply))
    }
}

impl<'a> LockSeen<'a> {
    /// Writes as many frames as it takes: none is much longer than [`PART_BYTES`].
    fn write(&self, id: u32, out: &mut Vec<u8>) {
        let (mut holders, mut waiters) = (self.holders.iter().peekable(), self.waiters.iter().peekable());
        let mut is_first = true;
        while is_first || holders.peek().is_some() || waiters.peek().is_some() {
            is_first = false;
            let mut to = Writer::new(out, kind::SEEN, id);
            to.text(self.name.as_str());
            // The flag before each entry says that there is one.
            while to.len() < PART_BYTES
                && let Some(holder) = holders.next()
            {
                to.flag(true).mode(holder.mode).u64(holder.token.get()).u64(micros(holder.expires_in));
                holder.who.write(&mut to);
            }
            to.flag(false);
            while to.len() < PART_BYTES
                && let Some(waiter) = waiters.next()
            {
                to.flag(true).mode(waiter.mode);
                waiter.who.write(&mut to);
            }
            to.flag(false);
        }
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut seen = Self { name: from.name()?, holders: Vec::new(), waiters: Vec::new() };
        while from.flag()? {
            seen.holders.push(HolderSeen {
                mode: from.mode()?,
                token: from.token()?,
                expires_in: from.micros()?,
                who: Who::read(from)?,
            });
        }
        while from.flag()? {
            seen.waiters.push(WaiterSeen { mode: from.mode()?, who: Who::read(from)? });
        }
        Ok(seen)
    }
}
