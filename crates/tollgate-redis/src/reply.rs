//! What scripts answer, as values.

use std::time::Duration;

use tollgate_core::queued::{self, Wait};
use tollgate_core::{
    Age, Contention, Details, Error, Holder, LockName, LockState, Mode, Moment, Result, Token, Waiter,
};

use crate::backend::millis;
use crate::error::unexpected;
use redis::Value;

/// How an acquire was answered.
pub(crate) type Acquired = queued::Acquired<QueuePosition>;

/// What a waiter was told with its queue position, by the server's clock. The position itself is known by the owner id.
#[derive(Debug, Clone, Copy)]
pub struct QueuePosition {
    /// When the server answered, in milliseconds.
    pub(crate) told_at: u64,
    /// When the lease of the holder ends, in milliseconds; 0 if it has no end.
    pub(crate) lease_end: u64,
}

/// What `acquire.lua` and `redraw.lua` answer.
pub(crate) fn acquired(answer: &Value) -> Result<Acquired> {
    let Value::BulkString(text) = answer else { return Err(unexpected(answer)) };
    std::str::from_utf8(text).ok().and_then(of_words).ok_or_else(|| unexpected(answer))
}

fn of_words(text: &str) -> Option<Acquired> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    let (kind, first, second, age) = (next()?, next()?, next()?, Some(Age(next()?.parse().ok()?)));
    // Less than nothing if it does not come free by itself.
    let free_in = second.parse().ok().map(Duration::from_millis);
    match kind {
        "granted" => {
            let token = Token::new(first.parse().ok()?).ok()?;
            Some(Acquired::Granted { token, sent: Moment::from_nanos(second.parse().ok()?), age })
        }
        "queued" => {
            let wait =
                Wait { ahead: first.parse().ok()?, free_in, foreign: next()? == "foreign", told: false };
            let told_at = age.map_or(0, |age| age.0 / 1000);
            let lease_end = free_in.map_or(0, |free_in| told_at.saturating_add(millis(free_in)));
            Some(Acquired::Queued { place: QueuePosition { told_at, lease_end }, wait, age })
        }
        "busy" => {
            let contention = Contention { ahead: first.parse().ok(), retry_after: free_in };
            Some(Acquired::Busy { contention, age })
        }
        _ => None,
    }
}

/// What `inspect.lua` answers: now, the lock's value, its pttl, holders, waiters. The value may be another client's,
/// and need not be text.
pub(crate) type Inspected = (String, Vec<u8>, i64, Vec<String>, Vec<String>);

/// What somebody sees who looks; `None` if nobody holds the lock or waits.
pub(crate) fn state(name: LockName, inspected: Inspected) -> Result<Option<LockState>> {
    let (now, value, pttl, holders, waiters) = inspected;
    let value = String::from_utf8_lossy(&value);
    let now: u64 = now.parse().map_err(|_| unexpected(&now))?;
    let mut seen: Vec<Holder> = Vec::new();
    if let Some(record) = Record::parse(&value) {
        // Without a ttl, which is not our doing, it never ends by itself.
        let with_its_key = u64::try_from(pttl).map_or(u64::MAX, |pttl| now.saturating_add(pttl));
        let ends = if record.ends == 0 { with_its_key } else { record.ends };
        seen.extend(Record { ends, ..record }.holder(now));
    } else if !value.is_empty() && value != "tg1 many" {
        // Another client's, which says nothing of itself.
        let expires_in = u64::try_from(pttl).ok().map(Duration::from_millis);
        let details = Details::default();
        seen.push(Holder { mode: Mode::Exclusive, token: None, expires_in, details });
    }
    seen.extend(holders.iter().filter_map(|record| Record::parse(record)?.holder(now)));
    seen.sort_by_key(|holder| holder.token);
    let waiters = waiters.iter().filter_map(|record| Record::parse(record)?.waiter(now)).collect();
    let state = LockState { name, holders: seen, waiters };
    Ok(Some(state).filter(|state| !(state.holders.is_empty() && state.waiters.is_empty())))
}

/// A record as scripts write it: `tg1 OWNER KIND TOKEN ENDS TTL SENT CHANNEL DETAILS`.
struct Record<'a> {
    mode: Mode,
    token: Option<Token>,
    ends: u64,
    details: &'a str,
}

impl<'a> Record<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        // The version and the owner are kept apart by a mark.
        let (version, rest) = text.split_at_checked(4)?;
        let words: [&str; 8] = rest.splitn(8, ' ').collect::<Vec<_>>().try_into().ok()?;
        let [_owner, kind, token, ends, _ttl, _sent, _channel, details] = words;
        let mode = match kind {
            _ if !version.starts_with("tg1") => return None,
            "x" => Mode::Exclusive,
            "s" => Mode::Shared,
            _ => Mode::permit(kind.strip_prefix('p')?.parse().ok()?)?,
        };
        let token = token.parse().ok().and_then(|token| Token::new(token).ok());
        Some(Self { mode, token, ends: ends.parse().ok()?, details })
    }

    /// How long it lives; `None` if it does not.
    fn left(&self, now: u64) -> Option<Duration> {
        self.ends.checked_sub(now).filter(|left| *left > 0).map(Duration::from_millis)
    }

    fn details(&self) -> Details {
        serde_json::from_str(self.details).unwrap_or_default()
    }

    fn holder(&self, now: u64) -> Option<Holder> {
        let expires_in = Some(self.left(now)?).filter(|_| self.ends != u64::MAX);
        Some(Holder { mode: self.mode, token: self.token, expires_in, details: self.details() })
    }

    fn waiter(&self, now: u64) -> Option<Waiter> {
        self.left(now)?;
        Some(Waiter { mode: self.mode, details: self.details() })
    }
}

/// Details as they are stored.
pub(crate) fn written(details: &Details) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(128);
    write_details(&mut text, details)?;
    Ok(text)
}

/// The same at the end of something.
pub(crate) fn write_details(text: &mut Vec<u8>, details: &Details) -> Result<()> {
    serde_json::to_writer(text, details)
        .map_err(|error| Error::invalid("the details of this claim cannot be serialised").caused_by(error))
}
