//! `POST /v1/acquire` and `/v1/acquire-all`: take a lock, or a set of locks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_types::{Age, LockName, Mode, OnDeadlock, PartyId, Token};

use crate::check;
use crate::limits::{DEFAULT_ROUND_MS, DEFAULT_TTL_MS, MAX_ROUND};
use crate::mode::ModeKind;
use crate::open::Open;
use crate::owner::Owner;
use crate::problem::Problem;
use crate::request::Request;

/// A request for one lock. A repeat with the same owner finds the same claim: it goes on waiting in
/// the same queue position, or gets the same grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// How long the grant lives without renewal.
    #[serde(default = "default_ttl", skip_serializing_if = "is_default_ttl")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, default = 30_000))]
    pub ttl_ms: u64,
    /// How long the caller is willing to wait for the lock, from this call on. A repeat says what
    /// is left.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(default = 0))]
    pub wait_ms: u64,
    /// How long this call may stay open, at most 55 s. A claim that still waits then is answered
    /// `waiting`.
    #[serde(default = "default_round", skip_serializing_if = "is_default_round")]
    #[cfg_attr(feature = "openapi", schema(maximum = 55_000, default = 10_000))]
    pub round_ms: u64,
    /// How the lock is shared; `exclusive` if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ModeKind,
    /// Only with the mode `permit`: how many may hold together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub limit: Option<u32>,
    /// A fresh owner, so that the call can be repeated. Without one the server makes it, and a
    /// dropped connection withdraws the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// What people see who look at the lock; at most 4 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The caller's host, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 255))]
    pub host: Option<String>,
    /// The caller's process, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How long nothing is granted if this holder is lost rather than releases.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(default = 0))]
    pub lock_delay_ms: u64,
    /// The task or transaction that takes several locks: 32 random hexadecimal digits, the same for
    /// all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::PartyId>))]
    pub party: Option<PartyId>,
    /// The party's age as an earlier answer told it, so that a party that starts over stays as old
    /// as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub party_age: Option<Age>,
    /// What to do if waiting might never end. `timeout` if left out; anything else needs a party.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::OnDeadlock))]
    pub on_deadlock: OnDeadlock,
}

/// A request for several locks, all or nothing. All have one owner; the server sorts the names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireAll {
    /// The locks: at most 64, each once, in any order.
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Vec<crate::openapi::words::LockName>, min_items = 1, max_items = 64)
    )]
    pub names: Vec<LockName>,
    /// How long each grant lives without renewal.
    #[serde(default = "default_ttl", skip_serializing_if = "is_default_ttl")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, default = 30_000))]
    pub ttl_ms: u64,
    /// How long the caller is willing to wait for all of them, from this call on.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(default = 0))]
    pub wait_ms: u64,
    /// How long this call may stay open, at most 55 s.
    #[serde(default = "default_round", skip_serializing_if = "is_default_round")]
    #[cfg_attr(feature = "openapi", schema(maximum = 55_000, default = 10_000))]
    pub round_ms: u64,
    /// How each lock is shared; `exclusive` if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ModeKind,
    /// Only with the mode `permit`: how many may hold each of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub limit: Option<u32>,
    /// A fresh owner, so that the call can be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// What people see who look at one of the locks; at most 4 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The caller's host, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 255))]
    pub host: Option<String>,
    /// The caller's process, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How long nothing is granted if this holder is lost rather than releases.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(default = 0))]
    pub lock_delay_ms: u64,
    /// The task or transaction that takes these locks, and perhaps others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::PartyId>))]
    pub party: Option<PartyId>,
    /// The party's age as an earlier answer told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub party_age: Option<Age>,
    /// What to do if waiting might never end. `timeout` if left out; anything else needs a party.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::OnDeadlock))]
    pub on_deadlock: OnDeadlock,
}

/// A lock that was given. Send it back as it is to extend or release it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// How it is shared, one of those of the schema `Mode`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: Open<ModeKind>,
    /// Only with the mode `permit`: how many may hold together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The secret to extend and release it by.
    pub owner: Owner,
    /// The fencing token.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::Token))]
    pub token: Token,
    /// How long it lives without renewal.
    pub ttl_ms: u64,
    /// How long the client may rely on it, counted from the moment it *sent* the request: the
    /// margin is taken off.
    pub valid_ms: u64,
    /// Whether an earlier call of the same owner had got it already; it was not renewed then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// The age of the claim's party, to be sent with its next claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub party_age: Option<Age>,
}

/// The members of a [`Grant`], all of which a request may have that takes a grant as it was
/// answered.
pub(crate) const GRANT_MEMBERS: &[&str] =
    &["name", "mode", "limit", "owner", "token", "ttl_ms", "valid_ms", "again", "party_age"];

/// The locks of a set that was given, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grants {
    /// A grant for each name.
    pub grants: Vec<Grant>,
}

/// The queue position of a claim that was not granted yet; it travels as a [`Problem`] of the kind
/// `waiting`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The owner to repeat the call with.
    pub owner: Owner,
    /// The number of claims ahead, where the engine tells.
    pub ahead: Option<u64>,
}

fn default_ttl() -> u64 {
    DEFAULT_TTL_MS
}

fn default_round() -> u64 {
    DEFAULT_ROUND_MS
}

fn is_default_ttl(ms: &u64) -> bool {
    *ms == DEFAULT_TTL_MS
}

fn is_default_round(ms: &u64) -> bool {
    *ms == DEFAULT_ROUND_MS
}

pub(crate) fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Acquire {
    /// A request for the exclusive lock, with the defaults.
    pub fn new(name: LockName) -> Self {
        Self {
            name,
            ttl_ms: DEFAULT_TTL_MS,
            wait_ms: 0,
            round_ms: DEFAULT_ROUND_MS,
            mode: ModeKind::Exclusive,
            limit: None,
            owner: None,
            meta: BTreeMap::new(),
            host: None,
            pid: None,
            lock_delay_ms: 0,
            party: None,
            party_age: None,
            on_deadlock: OnDeadlock::Timeout,
        }
    }

    /// The mode with its limit.
    pub fn mode(&self) -> Result<Mode, Problem> {
        self.mode.with_limit(self.limit).ok_or_else(|| {
            let rule = match (self.mode, self.limit) {
                (ModeKind::Permit, None) => "is missing; say how many permits there are",
                (ModeKind::Permit, _) => "must be at least 1, or no claim could ever be granted",
                _ => "is only for permits; leave it out, or set `mode` to \"permit\"",
            };
            Problem::invalid("limit", rule)
        })
    }

    /// How long this call may stay open: `round_ms`, but at most 55 s and five times the ttl, after
    /// which too much of a new grant's time would be margin.
    pub fn round(&self) -> Duration {
        let most = Duration::from_millis(self.ttl_ms.saturating_mul(5));
        Duration::from_millis(self.round_ms).min(MAX_ROUND).min(most)
    }
}

impl Request for Acquire {
    fn check(&self) -> Result<(), Problem> {
        check::ttl("ttl_ms", self.ttl_ms)?;
        check::open_for("round_ms", self.round_ms)?;
        self.mode()?;
        check::meta(&self.meta)?;
        check::host(self.host.as_deref())?;
        let rule = match (self.on_deadlock, self.party_age) {
            _ if self.party.is_some() => return Ok(()),
            (OnDeadlock::Timeout, None) => return Ok(()),
            (OnDeadlock::Timeout, Some(_)) => {
                "is missing; `party_age` is the age of a party, so say of which"
            }
            _ => "is missing; `on_deadlock` compares parties, so say which one this is",
        };
        Err(Problem::invalid("party", rule))
    }
}

impl AcquireAll {
    /// A request for the exclusive locks, with the defaults.
    pub fn new(names: Vec<LockName>) -> Self {
        Self {
            names,
            ttl_ms: DEFAULT_TTL_MS,
            wait_ms: 0,
            round_ms: DEFAULT_ROUND_MS,
            mode: ModeKind::Exclusive,
            limit: None,
            owner: None,
            meta: BTreeMap::new(),
            host: None,
            pid: None,
            lock_delay_ms: 0,
            party: None,
            party_age: None,
            on_deadlock: OnDeadlock::Timeout,
        }
    }

    /// The requests for the single locks, in the order of their names: the same order for all
    /// clients, so that no two sets wait for each other.
    pub fn each(&self) -> Vec<Acquire> {
        let mut names = self.names.clone();
        names.sort_unstable();
        names.into_iter().map(|name| self.one(name)).collect()
    }

    fn one(&self, name: LockName) -> Acquire {
        Acquire {
            name,
            ttl_ms: self.ttl_ms,
            wait_ms: self.wait_ms,
            round_ms: self.round_ms,
            mode: self.mode,
            limit: self.limit,
            owner: self.owner.clone(),
            meta: self.meta.clone(),
            host: self.host.clone(),
            pid: self.pid,
            lock_delay_ms: self.lock_delay_ms,
            party: self.party,
            party_age: self.party_age,
            on_deadlock: self.on_deadlock,
        }
    }
}

impl Request for AcquireAll {
    fn check(&self) -> Result<(), Problem> {
        check::names(&self.names)?;
        self.names.first().map_or(Ok(()), |name| self.one(name.clone()).check())
    }
}

impl Grant {
    /// The mode with its limit; `None` for a mode that this program does not know.
    pub fn mode(&self) -> Option<Mode> {
        self.mode.known()?.with_limit(self.limit)
    }

    /// How long the client may rely on it, from the moment it sent the request.
    pub fn valid(&self) -> Duration {
        Duration::from_millis(self.valid_ms)
    }
}
