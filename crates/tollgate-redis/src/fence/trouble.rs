//! What can go wrong at a fence, in the words of the contract.

use redis::RedisError;
use tollgate_core::{Error, ErrorKind, Fence, Token};

use crate::error;
use crate::refusal::Refusal;

/// What a fenced script was answered with, if it is an error.
pub(super) fn of_answer(error: RedisError, mark: &[u8], fence: Fence) -> Error {
    let mark = String::from_utf8_lossy(mark);
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        let message = "the connection to Redis was lost before its answer; the script may have been \
                       executed: read the data, or repeat it with the same token";
        return Error::new(ErrorKind::Indeterminate, message).caused_by(error);
    }
    let detail = error.detail().unwrap_or_default();
    match error::code_of(&error) {
        Some("FENCED") => match highest(detail) {
            Some(highest) => fence.refused(highest),
            None => bad_mark(&mark).caused_by(error),
        },
        Some("BADMARK") => bad_mark(&mark).caused_by(error),
        Some("CROSSSLOT") => Error::invalid(format!(
            "a key is not in the cluster slot of the mark {mark:?}; give it the {{tag}} of the resource"
        ))
        .caused_by(error),
        Some("NOPERM") => {
            let message = format!(
                "this user lacks rights for this script; allow +@scripting, the keys, and the mark {mark:?}"
            );
            Error::new(ErrorKind::Denied, message).caused_by(error)
        }
        Some("WRONGTYPE") => Error::invalid("a key holds a value of another type").caused_by(error),
        _ if Refusal::of(&error).is_some() => error::of_answer(error),
        _ => Error::new(ErrorKind::Unexpected, format!("Redis answered {error}")).caused_by(error),
    }
}

fn highest(detail: &str) -> Option<Token> {
    Token::new(detail.split(' ').next()?.parse().ok()?).ok()
}

pub(super) fn bad_mark(mark: &str) -> Error {
    let message =
        format!("the key {mark:?} holds other data and is not a mark; delete it, or rename the resource");
    Error::new(ErrorKind::Config, message)
}

/// A value that comes as several arguments, or as none.
pub(super) fn not_one() -> Error {
    Error::invalid("each value must be a single argument; write lists and maps with a script of your own")
}
