//! What can go wrong with a server, in the words of the contract.

use std::time::Duration;

use tollgate_core::{Error, ErrorKind};
use tollgate_proto::frame::{Refusal, VERSION};

use crate::calls::Told;

/// The answer of a call did not come.
pub(crate) fn unanswered() -> Error {
    Error::new(
        ErrorKind::Indeterminate,
        "the connection to the lock server was lost before its answer; the call may have been executed",
    )
}

/// No connection can be opened.
pub(crate) fn unreachable(what: &str) -> Error {
    let message =
        format!("the lock server cannot be reached ({what}); is it running, and is the address right?");
    Error::new(ErrorKind::Unavailable, message)
}

/// The server has no room for another connection.
#[derive(Debug)]
struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the lock server has reached its limit of connections; try again, close some, or raise its limits",
        )
    }
}

impl std::error::Error for Full {}

/// Whether the server has no room for another connection.
pub(crate) fn is_full(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Full>())
}

/// The server does not speak with this client.
pub(crate) fn refused(refusal: Refusal) -> Error {
    let message = match refusal {
        Refusal::Version(theirs) => format!(
            "the lock server speaks version {theirs} of the native protocol, and this program version {VERSION}; \
             use the same release of both"
        ),
        Refusal::Malformed => {
            "the lock server could not read what this program sent; use the same release of both".to_owned()
        }
        Refusal::OnlyHttp => {
            "this lock server passes its locks on to another engine and answers HTTP alone; connect to that \
             engine by its own URL"
                .to_owned()
        }
        Refusal::Full => {
            return Error::new(ErrorKind::Unavailable, Full.to_string()).of_overload().caused_by(Full);
        }
        Refusal::TooSlow => {
            return Error::new(
                ErrorKind::Unavailable,
                "the lock server closed the connection because its answers were not read; try again",
            );
        }
    };
    Error::new(ErrorKind::Config, message)
}

/// What answers at the address does not speak the native protocol.
pub(crate) fn not_a_server() -> Error {
    Error::new(
        ErrorKind::Config,
        "what listens at this address is not a lock server; use the address that tollgate serve printed",
    )
}

/// Nothing is granted now.
pub(crate) fn not_granting(left: Option<Duration>) -> Error {
    let message = match left {
        Some(left) => format!(
            "after an unclean stop the lock server grants nothing for another {left:?}, until every lock of the \
             time before has ended; try again then"
        ),
        None => "the lock server is stopping, or its disk is full; try again when it is back".to_owned(),
    };
    Error::new(ErrorKind::Unavailable, message)
}

/// An answer that is an error for every call, or that no call of this kind gets.
pub(crate) fn of(told: Told) -> Error {
    match told {
        Told::Invalid { detail } => Error::invalid(detail),
        Told::NotGranting { left } => not_granting(left),
        Told::Exhausted => Error::new(
            ErrorKind::Unavailable,
            "no fencing token below 2^53 is left; start with a new data folder",
        )
        .retryable(false),
        Told::Mismatch => {
            Error::new(ErrorKind::Unexpected, "the owner id belongs to a claim with another mode or party")
        }
        Told::Moved => Error::new(
            ErrorKind::Indeterminate,
            "another request of the same claim took over, and its outcome is told there",
        ),
        other => Error::new(ErrorKind::Unexpected, format!("the lock server answered {other:?}")),
    }
}
