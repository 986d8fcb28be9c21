//! The states in which Redis refuses what it does at other times, and what each means to those who come and those who wait.
//!
//! | it says | because | who comes | who waits | the connection |
//! | --- | --- | --- | --- | --- |
//! | READONLY | it is a replica | a mistake in the URL | goes on: it was a primary | is left |
//! | MASTERDOWN | it is a replica without its primary | the same | goes on | is left |
//! | LOADING | it has been started, and reads its data | is told to try again | goes on | is left |
//! | CLUSTERDOWN | the cluster has no majority, or lacks slots | is told to try again | goes on | is left |
//! | TRYAGAIN | the slot is moving | is told to try again | goes on | stays |
//! | BUSY | somebody's script does not end | is told so | goes on | stays |
//! | NOREPLICAS | `min-replicas-to-write` of them are not there | is told so | goes on | stays |
//! | OOM | it is out of memory | is told so | goes on | stays |
//! | MISCONF | it cannot write to its disk | is told so | goes on | stays |
//!
//! Whoever waits goes on in all of them: some pass by themselves, for the others an operator has to do something, and how long
//! that is waited for is the caller's to say. A connection is left where another server may be in the place of this one by
//! now: the next request looks for it.

use redis::RedisError;
use tollgate_core::ErrorKind;

use crate::error::code_of;

/// A state in which Redis refuses what it does at other times.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: &'static str,
    /// To whoever comes. Those who wait go on while it is `Unavailable`.
    pub(crate) kind: ErrorKind,
    pub(crate) message: &'static str,
    /// Whether the connection is left.
    pub(crate) leave: bool,
    /// Only a replica says it. Of a server that was a primary it is a fail-over, and no mistake in the URL.
    pub(crate) of_replica: bool,
}

const fn passing(code: &'static str, message: &'static str) -> Refusal {
    Refusal { code, kind: ErrorKind::Unavailable, message, leave: false, of_replica: false }
}

const fn not_ready(code: &'static str) -> Refusal {
    passing(code, "Redis is not ready yet; try again")
}

const fn replica(code: &'static str) -> Refusal {
    let message = "this Redis is a replica; connect to the primary, or through Sentinel";
    Refusal { kind: ErrorKind::Config, leave: true, of_replica: true, ..passing(code, message) }
}

const REFUSALS: &[Refusal] = &[
    replica("READONLY"),
    replica("MASTERDOWN"),
    Refusal { leave: true, ..not_ready("LOADING") },
    Refusal { leave: true, ..not_ready("CLUSTERDOWN") },
    not_ready("TRYAGAIN"),
    passing("BUSY", "Redis is busy with another client's script; try again, or end that script"),
    passing(
        "NOREPLICAS",
        "this Redis has fewer replicas than its min-replicas-to-write, and refuses writes; start replicas, \
         or lower the setting",
    ),
    passing("OOM", "Redis is out of memory; raise maxmemory, or remove data"),
    passing("MISCONF", "Redis cannot save to its disk and refuses writes; free space there, or repair it"),
];

impl Refusal {
    /// What `error` says of the server's state, if it does.
    pub(crate) fn of(error: &RedisError) -> Option<&'static Self> {
        Self::called(code_of(error)?)
    }

    /// The one that Redis calls `code`.
    pub(crate) fn called(code: &str) -> Option<&'static Self> {
        REFUSALS.iter().find(|refusal| refusal.code == code)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::wait::Outage;

    use super::*;
    use crate::error::{of_answer, of_former_primary};

    #[test]
    fn whoever_comes_is_told_and_whoever_waits_goes_on() {
        for refusal in REFUSALS {
            let answer = format!("-{} some words\r\n", refusal.code);
            let answer = redis::parse_redis_value(answer.as_bytes()).unwrap();
            let error = of_answer(answer.extract_error().unwrap_err());
            assert_eq!(error.kind(), refusal.kind, "{error}");
            assert!(error.to_string().contains(refusal.message), "{error}");
            let waits_on = Outage::default().pause(of_former_primary(error));
            assert!(waits_on.is_ok(), "{}: {waits_on:?}", refusal.code);
        }
    }
}
