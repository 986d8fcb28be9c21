//! What can go wrong with Redis, in the words of the contract.

use redis::{ErrorKind as Kind, RedisError};
use tollgate_core::{Error, ErrorKind};

use crate::link::Link;

/// An error of a request that may have been executed if its reply was lost.
pub(crate) fn of_request(error: RedisError, link: &Link) -> Error {
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        // Nothing more goes over it.
        link.close();
        let message = "the connection to Redis was lost before its answer; it may have acted all the same";
        return Error::new(ErrorKind::Indeterminate, message).caused_by(error);
    }
    // A primary that is none any more: the next request looks for the one there is.
    if matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "LOADING" | "CLUSTERDOWN")) {
        link.close();
    }
    of_answer(error)
}

/// An error of a connection that could not be opened.
pub(crate) fn of_connect(error: RedisError) -> Error {
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        return unreachable(error);
    }
    of_answer(error)
}

fn unreachable(error: RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, "Redis cannot be reached; is it running, and is the address right?")
        .caused_by(error)
}

/// What Redis itself said.
pub(crate) fn of_answer(error: RedisError) -> Error {
    let (kind, message) = match (error.code(), error.kind()) {
        (Some("NOAUTH" | "WRONGPASS"), _) | (_, Kind::AuthenticationFailed) => (
            ErrorKind::Denied,
            "Redis does not accept the user or password; put them into the URL: redis://USER:PASSWORD@HOST",
        ),
        _ if of_rights(&error) => (
            ErrorKind::Denied,
            "this user may not do all that locks need; ACL SETUSER NAME ~lock:* ~{lock:* &tg:* +@read +@write +@scripting \
             +@pubsub +@connection +time +client|kill allows it",
        ),
        (Some("READONLY"), _) => {
            (ErrorKind::Config, "this Redis is a replica; connect to the primary, or through Sentinel")
        }
        (Some("OOM"), _) => {
            (ErrorKind::Unavailable, "Redis is out of memory; raise maxmemory, or remove something")
        }
        (Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN"), _) => {
            (ErrorKind::Unavailable, "Redis is not ready yet; try again")
        }
        (Some("BUSY"), _) => {
            (ErrorKind::Unavailable, "Redis is busy with somebody's script; try again, or end that script")
        }
        (Some("MISCONF"), _) => (
            ErrorKind::Unavailable,
            "Redis cannot save to its disk and refuses writes; make room there, or repair it",
        ),
        (Some("WRONGTYPE"), _) => (
            ErrorKind::Config,
            "a key of this lock holds something else; choose another prefix with ?prefix=",
        ),
        _ => (ErrorKind::Unexpected, "Redis answered with an error"),
    };
    Error::new(kind, message).caused_by(error)
}

/// What Redis calls the error. Of what went wrong inside a script, versions before 7 say it in the middle of a sentence:
/// `ERR Error running script (call to f_…): @user_script:12: -READONLY You can't write …`.
pub(crate) fn code_of(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let words = error.detail().unwrap_or_default();
    let inner = || {
        let (_, inner) = words.split_once("@user_script:")?;
        let is_code = |word: &&str| CODES.contains(word);
        inner.split_whitespace().map(|word| word.trim_start_matches('-')).find(is_code)
    };
    if code == "ERR" { inner().or(Some(code)) } else { Some(code) }
}

/// What commands of ours can fail with inside a script.
const CODES: &[&str] = &[
    "READONLY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "LOADING",
    "NOPERM",
    "WRONGTYPE",
];

/// Whether Redis said that one of the keys is of another type.
pub(crate) fn is_of_another_type(error: &Error) -> bool {
    said(error).is_some_and(|error| code_of(error) == Some("WRONGTYPE"))
}

/// What Redis said, if this error is of its making.
fn said(error: &Error) -> Option<&RedisError> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Whether it is about what this user may do; what a script may not do is said in words alone.
fn of_rights(error: &RedisError) -> bool {
    let words = error.detail().unwrap_or_default();
    error.code() == Some("NOPERM")
        || words.contains("NOPERM")
        || words.contains("The user executing the script can't")
        || words.contains("ACL failure in script")
}

/// A Redis that lacks what scripts use.
pub(crate) fn too_old(version: &str) -> Error {
    let message = format!("this is Redis {version}; locks need 6.2 or later");
    Error::new(ErrorKind::Config, message)
}

/// An answer that no script gives.
pub(crate) fn unexpected(answer: &impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Unexpected, format!("Redis answered what no script of ours says: {answer:?}"))
}
