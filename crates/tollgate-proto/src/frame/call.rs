//! What a client asks the server for.

use std::time::Duration;

use tollgate_types::{LockName, Mode, OnDeadlock, OwnerId, Party, Token};

use super::reader::Reader;
use super::who::Who;
use super::writer::Writer;
use super::{Malformed, VERSION};

/// A call: one frame from a client to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call<'a> {
    /// The first frame of a connection.
    Hello(Hello),
    /// Take a lock, or a place in its queue. A repetition with the same owner id keeps the place or
    /// the grant, and takes over from the call before.
    Acquire(Box<ClaimCall<'a>>),
    /// Renew a grant.
    Extend {
        /// The lock.
        name: LockName,
        /// The owner id.
        owner: OwnerId,
        /// The new time to live.
        ttl: Duration,
        /// New details; `None` keeps the old ones.
        who: Option<Who<'a>>,
    },
    /// Give a lock back.
    Release {
        /// The lock.
        name: LockName,
        /// The owner id.
        owner: OwnerId,
    },
    /// Remove a claim in whatever state it is, and refuse it for a minute.
    Withdraw {
        /// The lock.
        name: LockName,
        /// The owner id.
        owner: OwnerId,
    },
    /// Break a lock.
    Break {
        /// The lock.
        name: LockName,
        /// The holder's token.
        token: Token,
        /// Whether the holder is out at once, instead of being asked to leave.
        by_force: bool,
    },
    /// Show holders and waiters of a lock.
    Inspect {
        /// The lock.
        name: LockName,
    },
    /// Show a page of the locks that are held or waited for.
    List {
        /// What their names start with.
        prefix: &'a str,
        /// Where the page begins: 0, or what the page before ended with.
        from: u64,
    },
    /// Tell from now on what happens to locks, over this connection.
    Follow {
        /// What their names start with.
        prefix: &'a str,
    },
    /// End what an earlier call began: it is not told anything any more.
    Unfollow {
        /// The number of that call.
        call: u32,
    },
    /// Compare a token with the mark of a resource, and raise the mark.
    Admit {
        /// The resource.
        resource: &'a str,
        /// The token.
        token: Token,
        /// Whether the holder is exclusive: a shared token raises nothing.
        raises: bool,
        /// Whether the token may be one that this server never gave.
        is_foreign: bool,
    },
    /// Tell the mark of a resource.
    Mark {
        /// The resource.
        resource: &'a str,
    },
    /// Tell the server's time, as the age of a party.
    Age,
    /// Give only larger tokens from now on.
    RaiseFloor {
        /// The largest token that may be in circulation.
        token: Token,
    },
    /// Show that the server is there, and the client.
    Ping,
    /// Answers [`Reply::Ping`](super::Reply::Ping).
    Pong,
}

/// How a client introduces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The newest version of the protocol that it speaks.
    pub version: u16,
    /// The client, drawn at random when it was made; all its connections send the same.
    pub client: u128,
    /// What the connection is for.
    pub lane: Lane,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// What callers wait for.
    Caller,
    /// Renewals, and everything in the background.
    Keeper,
}

/// A claim, as an acquire carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCall<'a> {
    /// The lock.
    pub name: LockName,
    /// The owner id.
    pub owner: OwnerId,
    /// How the lock is shared.
    pub mode: Mode,
    /// Whether the claim may wait.
    pub waits: bool,
    /// How long the grant lives without an extend.
    pub ttl: Duration,
    /// How long nothing is granted after a loss.
    pub lock_delay: Duration,
    /// The task or transaction that the claim belongs to.
    pub party: Option<Party>,
    /// What becomes of the claim if its waiting might never end.
    pub on_deadlock: OnDeadlock,
    /// What people see of it.
    pub who: Who<'a>,
}

/// The kinds of calls, for a proxy that looks into frames.
pub mod kind {
    /// [`Call::Hello`](super::Call::Hello).
    pub const HELLO: u8 = 1;
    /// [`Call::Acquire`](super::Call::Acquire) that does not wait.
    pub const TRY_ACQUIRE: u8 = 2;
    /// [`Call::Acquire`](super::Call::Acquire) that waits.
    pub const ACQUIRE: u8 = 3;
    /// [`Call::Extend`](super::Call::Extend).
    pub const EXTEND: u8 = 4;
    /// [`Call::Release`](super::Call::Release).
    pub const RELEASE: u8 = 5;
    /// [`Call::Withdraw`](super::Call::Withdraw).
    pub const WITHDRAW: u8 = 6;
    pub(super) const BREAK: u8 = 7;
    pub(super) const INSPECT: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const FOLLOW: u8 = 10;
    pub(super) const UNFOLLOW: u8 = 11;
    pub(super) const ADMIT: u8 = 12;
    pub(super) const MARK: u8 = 13;
    pub(super) const AGE: u8 = 14;
    pub(super) const RAISE_FLOOR: u8 = 15;
    pub(super) const PING: u8 = 16;
    pub(super) const PONG: u8 = 17;
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> Call<'a> {
    /// The kind in the header of its frame.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Acquire(claim) if claim.waits => kind::ACQUIRE,
            Self::Acquire(_) => kind::TRY_ACQUIRE,
            Self::Extend { .. } => kind::EXTEND,
            Self::Release { .. } => kind::RELEASE,
            Self::Withdraw { .. } => kind::WITHDRAW,
            Self::Break { .. } => kind::BREAK,
            Self::Inspect { .. } => kind::INSPECT,
            Self::List { .. } => kind::LIST,
            Self::Follow { .. } => kind::FOLLOW,
            Self::Unfollow { .. } => kind::UNFOLLOW,
            Self::Admit { .. } => kind::ADMIT,
            Self::Mark { .. } => kind::MARK,
            Self::Age => kind::AGE,
            Self::RaiseFloor { .. } => kind::RAISE_FLOOR,
            Self::Ping => kind::PING,
            Self::Pong => kind::PONG,
        }
    }

    /// Appends the frame of the call with the number `id` to `out`.
    pub fn write(&self, id: u32, out: &mut Vec<u8>) {
        let mut to = Writer::new(out, self.kind(), id);
        match self {
            Self::Hello(hello) => {
                to.u16(hello.version).u128(hello.client).u8(match hello.lane {
                    Lane::Caller => 0,
                    Lane::Keeper => 1,
                });
            }
            Self::Acquire(claim) => {
                to.text(claim.name.as_str()).u128(claim.owner.to_bits()).mode(claim.mode);
                to.u64(millis(claim.ttl)).u64(millis(claim.lock_delay));
                to.party(claim.party).on_deadlock(claim.on_deadlock);
                claim.who.write(&mut to);
            }
            Self::Extend { name, owner, ttl, who } => {
                to.text(name.as_str()).u128(owner.to_bits()).u64(millis(*ttl));
                to.option(who.as_ref(), |to, who| who.write(to));
            }
            Self::Release { name, owner } | Self::Withdraw { name, owner } => {
                to.text(name.as_str()).u128(owner.to_bits());
            }
            Self::Break { name, token, by_force } => {
                to.text(name.as_str()).u64(token.get()).flag(*by_force);
            }
            Self::Inspect { name } => {
                to.text(name.as_str());
            }
            Self::List { prefix, from } => {
                to.text(prefix).u64(*from);
            }
            Self::Follow { prefix } => {
                to.text(prefix);
            }
            Self::Unfollow { call } => {
                to.u32(*call);
            }
            Self::Admit { resource, token, raises, is_foreign } => {
                to.text(resource).u64(token.get()).flag(*raises).flag(*is_foreign);
            }
            Self::Mark { resource } => {
                to.text(resource);
            }
            Self::RaiseFloor { token } => {
                to.u64(token.get());
            }
            Self::Age | Self::Ping | Self::Pong => {}
        }
    }

    /// Reads a whole frame, with its four bytes of length: the number of the call, and the call.
    pub fn read(frame: &'a [u8]) -> Result<(u32, Self), Malformed> {
        let (kind, id, mut from) = Reader::of(frame)?;
        let call = match kind {
            kind::HELLO => {
                let version = from.u16()?;
                if version > VERSION {
                    // Later versions may have added something; they are refused by their number.
                    return Ok((id, Self::Hello(Hello { version, client: 0, lane: Lane::Caller })));
                }
                let client = from.u128()?;
                let lane = match from.u8()? {
                    0 => Lane::Caller,
                    1 => Lane::Keeper,
                    _ => return Err(Malformed::Value("lane")),
                };
                Self::Hello(Hello { version, client, lane })
            }
            kind::TRY_ACQUIRE | kind::ACQUIRE => Self::Acquire(Box::new(ClaimCall {
                waits: kind == kind::ACQUIRE,
                name: from.name()?,
                owner: from.owner()?,
                mode: from.mode()?,
                ttl: from.millis()?,
                lock_delay: from.millis()?,
                party: from.party()?,
                on_deadlock: from.on_deadlock()?,
                who: Who::read(&mut from)?,
            })),
            kind::EXTEND => Self::Extend {
                name: from.name()?,
                owner: from.owner()?,
                ttl: from.millis()?,
                who: from.option(Who::read)?,
            },
            kind::RELEASE => Self::Release { name: from.name()?, owner: from.owner()? },
            kind::WITHDRAW => Self::Withdraw { name: from.name()?, owner: from.owner()? },
            kind::BREAK => Self::Break { name: from.name()?, token: from.token()?, by_force: from.flag()? },
            kind::INSPECT => Self::Inspect { name: from.name()? },
            kind::LIST => Self::List { prefix: from.text()?, from: from.u64()? },
            kind::FOLLOW => Self::Follow { prefix: from.text()? },
            kind::UNFOLLOW => Self::Unfollow { call: from.u32()? },
            kind::ADMIT => Self::Admit {
                resource: from.text()?,
                token: from.token()?,
                raises: from.flag()?,
                is_foreign: from.flag()?,
            },
            kind::MARK => Self::Mark { resource: from.text()? },
            kind::AGE => Self::Age,
            kind::RAISE_FLOOR => Self::RaiseFloor { token: from.token()? },
            kind::PING => Self::Ping,
            kind::PONG => Self::Pong,
            other => return Err(Malformed::Kind(other)),
        };
        from.end()?;
        Ok((id, call))
    }
}
