//! A grant: a claim that was given, and the JSON it travels in.

use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_types::{Age, LockName, Mode, Moment, OwnerId, Token};

use crate::claim::Claim;

/// Until when a grant may be believed.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Deadline, Moment};
///
/// let ttl = Duration::from_secs(10);
/// let sent = Moment::from_nanos(0);
/// assert_eq!(Deadline::counted_from(sent, ttl), Deadline::At(sent + ttl - Deadline::margin(ttl)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Up to this moment of this host's clock.
    At(Moment),
    /// As long as the process or connection lives: nothing expires.
    Never,
    /// It came from another host or boot, whose clock says nothing here: extend before use.
    Unknown,
}

impl Deadline {
    /// The deadline of a grant whose request was sent at `sent`: the engine began to count later than
    /// that, and the margin of 2 % + 5 ms covers clocks that run at different speeds.
    pub fn counted_from(sent: Moment, ttl: Duration) -> Self {
        Self::At(sent + ttl.saturating_sub(Self::margin(ttl)))
    }

    /// How much earlier than the engine a holder stops believing in its grant.
    pub fn margin(ttl: Duration) -> Duration {
        ttl / 50 + Duration::from_millis(5)
    }
}

/// A claim that was given.
///
/// It can be written as JSON and adopted by another process. It contains the owner id: whoever has it can
/// release the lock. It never contains a URL.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-grant").await?;
/// use tollgate::Grant;
///
/// let grant = locks.lock("import").no_renew().acquire().await?.into_grant()?;
/// let json = serde_json::to_string(&grant).expect("a grant is JSON");
/// let same: Grant = serde_json::from_str(&json).expect("it was written here");
/// assert_eq!(same.token, grant.token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "Json")]
pub struct Grant {
    /// Which lock.
    pub name: LockName,
    /// How it is shared.
    pub mode: Mode,
    /// Whose it is.
    pub owner: OwnerId,
    /// Its number.
    pub token: Token,
    /// How long it lives without renewal.
    pub ttl: Duration,
    /// Until when it may be believed.
    pub deadline: Deadline,
    /// The age the engine gave the claim's party.
    pub age: Option<Age>,
    /// Whether it has a lease of its own, as [`Claim::standalone`] asks for.
    pub standalone: bool,
    /// How long the name stays closed if this holder is lost rather than released.
    pub lock_delay: Duration,
    /// What the backend needs to find it again, for example a session's number; only the backend reads it.
    pub handle: Option<String>,
    /// Whether somebody was in the way when it was asked for. Does not travel.
    pub waited: bool,
}

impl Grant {
    /// The grant of `claim`.
    pub fn new(claim: &Claim, token: Token, deadline: Deadline) -> Self {
        Self {
            name: claim.name.clone(),
            mode: claim.mode,
            owner: claim.owner,
            token,
            ttl: claim.ttl,
            deadline,
            age: None,
            standalone: claim.standalone,
            lock_delay: claim.lock_delay,
            handle: None,
            waited: false,
        }
    }

    /// Notes that somebody was in the way first.
    #[must_use]
    pub fn after_waiting(mut self) -> Self {
        self.waited = true;
        self
    }

    /// Whether a loss must be seen as one by the engine, which then keeps the name closed for a while.
    pub(crate) fn has_lock_delay(&self) -> bool {
        !self.lock_delay.is_zero()
    }

    /// Adds the age the engine gave the claim's party.
    #[must_use]
    pub fn with_age(mut self, age: Option<Age>) -> Self {
        self.age = age;
        self
    }

    /// Adds what the backend needs to find the grant again.
    #[must_use]
    pub fn with_handle(mut self, handle: impl Into<String>) -> Self {
        self.handle = Some(handle.into());
        self
    }
}

/// Version 1 of the JSON. Fields are only ever added.
#[derive(Serialize, Deserialize)]
struct Json {
    tollgate_grant: u32,
    name: LockName,
    mode: Mode,
    owner: OwnerId,
    token: Token,
    ttl_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<JsonDeadline>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    age: Option<Age>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    standalone: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    lock_delay_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A deadline that expires names the boot whose clock it is on.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum JsonDeadline {
    At { boot_id: String, boottime_ns: Moment },
    Elsewhere { unknown: bool },
}

impl From<Grant> for Json {
    fn from(grant: Grant) -> Self {
        let deadline = match grant.deadline {
            Deadline::At(moment) => {
                Some(JsonDeadline::At { boot_id: boot_id().to_owned(), boottime_ns: moment })
            }
            Deadline::Unknown => Some(JsonDeadline::Elsewhere { unknown: true }),
            Deadline::Never => None,
        };
        Self {
            tollgate_grant: 1,
            name: grant.name,
            mode: grant.mode,
            owner: grant.owner,
            token: grant.token,
            ttl_ms: millis(grant.ttl),
            deadline,
            age: grant.age,
            standalone: grant.standalone,
            lock_delay_ms: millis(grant.lock_delay),
            handle: grant.handle,
        }
    }
}

impl TryFrom<serde_json::Value> for Grant {
    type Error = String;
    fn try_from(json: serde_json::Value) -> Result<Self, String> {
        // The version first: whatever else a later one has is not ours to judge.
        match json.get("tollgate_grant").and_then(serde_json::Value::as_u64) {
            Some(1) => {}
            Some(version) => {
                return Err(format!(
                    "this grant has version {version}, and this program reads version 1; use a newer tollgate"
                ));
            }
            None => {
                return Err(
                    "this is not a grant: its field tollgate_grant is missing or not a number".to_owned()
                );
            }
        }
        let json: Json =
            serde_json::from_value(json).map_err(|error| format!("this grant is damaged: {error}"))?;
        let deadline = match json.deadline {
            None => Deadline::Never,
            Some(JsonDeadline::At { boot_id: theirs, boottime_ns }) if theirs == boot_id() => {
                Deadline::At(boottime_ns)
            }
            Some(_) => Deadline::Unknown,
        };
        Ok(Self {
            name: json.name,
            mode: json.mode,
            owner: json.owner,
            token: json.token,
            ttl: Duration::from_millis(json.ttl_ms),
            deadline,
            age: json.age,
            standalone: json.standalone,
            lock_delay: Duration::from_millis(json.lock_delay_ms),
            handle: json.handle,
            waited: false,
        })
    }
}

/// Which boot of which host this is. Random where the kernel does not tell, so that no other boot matches.
fn boot_id() -> &'static str {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    BOOT_ID.get_or_init(|| match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => OwnerId::random().to_hex(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(deadline: Deadline) -> Grant {
        let mut claim =
            Claim::new(LockName::new("orders/42").unwrap(), Mode::Exclusive, Duration::from_secs(30));
        claim.owner = OwnerId::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        Grant::new(&claim, Token::new(42).unwrap(), deadline)
    }

    /// What version 1 looks like for ever, apart from this boot's id.
    const GOLDEN: &str = include_str!("../golden/grants-v1.jsonl");

    #[test]
    fn grants_are_written_as_they_always_were() {
        let mut shared =
            grant(Deadline::At(Moment::from_nanos(123_456_789))).with_age(Some(Age(7))).with_handle("s-1");
        shared.mode = Mode::Shared;
        shared.standalone = true;
        shared.lock_delay = Duration::from_secs(2);
        let mut permit = grant(Deadline::Unknown);
        permit.mode = Mode::permit(5).unwrap();
        let written: Vec<String> = [grant(Deadline::Never), shared, permit]
            .iter()
            .map(|grant| serde_json::to_string(grant).unwrap().replace(boot_id(), "BOOT"))
            .collect();
        assert_eq!(written.join("\n") + "\n", GOLDEN);
    }

    #[test]
    fn grants_are_read_as_they_were_written() {
        for line in GOLDEN.lines() {
            let read: Grant = serde_json::from_str(&line.replace("BOOT", boot_id())).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap().replace(boot_id(), "BOOT"), line);
        }
    }

    #[test]
    fn a_deadline_of_another_boot_says_nothing_here() {
        let there = GOLDEN.lines().find(|line| line.contains("BOOT")).unwrap();
        let read: Grant = serde_json::from_str(there).unwrap();
        assert_eq!(read.deadline, Deadline::Unknown);
    }

    #[test]
    fn another_version_is_refused_and_more_fields_are_not() {
        let line = GOLDEN.lines().next().unwrap();
        let newer = line.replace("\"tollgate_grant\":1", "\"tollgate_grant\":2");
        let error = serde_json::from_str::<Grant>(&newer).unwrap_err().to_string();
        assert!(error.contains("use a newer tollgate"), "{error}");
        let more = line.replace("{\"tollgate_grant\"", "{\"later\":true,\"tollgate_grant\"");
        assert!(serde_json::from_str::<Grant>(&more).is_ok());
        let other = serde_json::from_str::<Grant>("{\"tollgate_grant\":2}").unwrap_err().to_string();
        assert!(other.contains("use a newer tollgate"), "{other}");
        assert!(serde_json::from_str::<Grant>("{}").unwrap_err().to_string().contains("not a grant"));
    }

    #[test]
    fn the_margin_is_two_percent_and_five_milliseconds() {
        let sent = Moment::from_nanos(1_000_000_000);
        let Deadline::At(deadline) = Deadline::counted_from(sent, Duration::from_secs(10)) else {
            panic!("it ends")
        };
        assert_eq!(deadline.since(sent), Duration::from_millis(9795));
        assert_eq!(Deadline::counted_from(sent, Duration::from_millis(3)), Deadline::At(sent));
    }
}
