//! What a failed call may have done: the one place that decides it.
//!
//! | what came back | was it executed? |
//! | --- | --- |
//! | nothing, because nothing was sent: no connection, or one that refused the request before it went out | no |
//! | a verdict of etcd's about the request: invalid, denied, no such lease, compacted, no room | no: etcd checks these before it proposes, or when it applies a transaction, all or nothing |
//! | `no leader`, `too many requests` | no: said before anything is proposed |
//! | everything else: a time-out on either side, a stopped server, a cut connection | unknown |
//!
//! A status that carries a source was made on this side of the wire, whatever its code says.

use std::error::Error as StdError;

use tollgate_core::{Error, ErrorKind};
use tonic::{Code, Status};

use crate::channel::NotSent;

/// A call that was not answered as it should have been.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether etcd may have executed it.
    pub(crate) executed: Executed,
    /// Why.
    pub(crate) why: Why,
    /// In the words of the contract.
    pub(crate) error: Error,
}

/// Whether a request that failed was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executed {
    /// Surely not: it may be sent again.
    No,
    /// Nobody knows.
    Perhaps,
}

/// What is to be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The connection is over.
    LinkLost,
    /// This member cannot serve now; another one may.
    MemberUnfit,
    /// It did not answer in time.
    Silence,
    /// It has too much to do.
    Busy,
    /// Our token is not, or no longer, accepted.
    Token,
    /// The lease is gone.
    NoLease,
    /// The revision that was asked for is compacted away.
    Compacted,
    /// It writes nothing more, but it can still be read and deleted from.
    Full,
    /// etcd said no; it will say it again.
    Refused,
}

impl Failure {
    /// Nothing was sent: there is nobody to send to.
    pub(crate) fn unreachable(error: Error) -> Self {
        Self { executed: Executed::No, why: Why::LinkLost, error }
    }

    /// No answer came in time.
    pub(crate) fn silence() -> Self {
        let error = Error::new(
            ErrorKind::Indeterminate,
            "etcd did not answer in time; the request may have been executed",
        );
        Self { executed: Executed::Perhaps, why: Why::Silence, error }
    }

    /// The same for a request that only reads: it has done nothing, whatever became of it.
    pub(crate) fn of_reading(self) -> Self {
        if self.error.kind() != ErrorKind::Indeterminate {
            return self;
        }
        let error = Error::new(ErrorKind::Unavailable, "etcd did not answer the query; try again")
            .caused_by(self.error);
        Self { executed: Executed::No, error, ..self }
    }

    /// The same, with the prefix to which a user needs rights.
    pub(crate) fn under(self, prefix: &str) -> Self {
        let says = self.error.source().and_then(|cause| cause.downcast_ref::<Says>());
        match says.map(|Says(status)| (Denial::in_status(status), status)) {
            Some((Some(denial @ Denial::Rights), status)) => {
                let error =
                    Error::new(ErrorKind::Denied, denial.advice(prefix)).caused_by(Says(status.clone()));
                Self { error, ..self }
            }
            _ => self,
        }
    }

    /// Whether the same request may have better luck, as far as its kind allows it to be repeated.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.why, Why::LinkLost | Why::MemberUnfit | Why::Silence | Why::Busy | Why::Token)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if status.source().is_some() {
            return of_transport(status);
        }
        let says = status.message();
        if let Some(denial) = Denial::in_status(&status) {
            let error = Error::new(ErrorKind::Denied, denial.advice("PREFIX")).caused_by(Says(status));
            let why = if denial == Denial::Token { Why::Token } else { Why::Refused };
            return Self { executed: Executed::No, why, error };
        }
        let (executed, why, kind, message) = match status.code() {
            // What gRPC never leaves out.
            _ if says.contains("grpc-status header missing") => (
                Executed::No,
                Why::Refused,
                ErrorKind::Config,
                "the server at this address speaks HTTP and is not etcd; check the address in the URL",
            ),
            Code::NotFound if says.contains("lease not found") => (
                Executed::No,
                Why::NoLease,
                ErrorKind::Lost,
                "the lease is gone, and with it every claim of its session; try again",
            ),
            Code::OutOfRange if says.contains("compacted") => (
                Executed::No,
                Why::Compacted,
                ErrorKind::Unavailable,
                "the requested revision is compacted away; try again",
            ),
            Code::ResourceExhausted if says.contains("database space exceeded") => {
                // It is refused when it is applied, too, and by the first of several that are.
                (Executed::Perhaps, Why::Full, ErrorKind::Indeterminate, FULL)
            }
            // Versions differ in the code.
            Code::ResourceExhausted | Code::Unknown if says.contains("too many requests") => {
                (Executed::No, Why::Busy, ErrorKind::Unavailable, "etcd is overloaded; try again")
            }
            Code::Unavailable if says.contains("no leader") => (
                Executed::No,
                Why::MemberUnfit,
                ErrorKind::Unavailable,
                "etcd has no leader; are most members up?",
            ),
            Code::InvalidArgument
            | Code::NotFound
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented => {
                (Executed::No, Why::Refused, ErrorKind::Unexpected, "etcd refused a request that locks need")
            }
            // It had no leader to send it to, or lost it.
            Code::Unknown if says.contains("proposal dropped") => {
                (Executed::Perhaps, Why::MemberUnfit, ErrorKind::Indeterminate, UNKNOWN)
            }
            Code::Unavailable | Code::DeadlineExceeded => {
                (Executed::Perhaps, Why::MemberUnfit, ErrorKind::Indeterminate, UNKNOWN)
            }
            _ => (Executed::Perhaps, Why::Refused, ErrorKind::Indeterminate, UNKNOWN),
        };
        Self { executed, why, error: Error::new(kind, message).caused_by(Says(status)) }
    }
}

/// What etcd says, in its own words and no more of them.
#[derive(Debug)]
struct Says(Status);

impl std::fmt::Display for Says {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "etcd says: {}", self.0.message())
    }
}

impl StdError for Says {}

/// What ended a connection, at the bottom of what was made of it on the way here.
#[derive(Debug)]
struct Broke(Status);

impl std::fmt::Display for Broke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut cause: &dyn StdError = &self.0;
        while let Some(below) = cause.source() {
            cause = below;
        }
        write!(f, "{cause}")
    }
}

impl StdError for Broke {}

/// Why etcd does not let us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// We did not say who we are.
    Anonymous,
    /// What we were given to show who we are does not count any more.
    Token,
    /// It knows no such user, or another password.
    Password,
    /// The user may not do this.
    Rights,
}

impl Denial {
    fn in_status(status: &Status) -> Option<Self> {
        let says = status.message();
        match status.code() {
            Code::Unauthenticated => Some(Self::Token),
            Code::InvalidArgument if says.contains("revision of auth store is old") => Some(Self::Token),
            Code::InvalidArgument if says.contains("authentication failed") => Some(Self::Password),
            Code::InvalidArgument if says.contains("user name is empty") => Some(Self::Anonymous),
            Code::FailedPrecondition if says.contains("user name not found") => Some(Self::Password),
            Code::PermissionDenied => Some(Self::Rights),
            _ => None,
        }
    }

    /// Why an error denies something, if that is what it does.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        let Says(status) = error.source()?.downcast_ref::<Says>()?;
        Self::in_status(status)
    }

    /// What to do about it, where the keys of locks start with `prefix`.
    fn advice(self, prefix: &str) -> String {
        match self {
            Self::Anonymous => "this etcd requires authentication; put user and password into the URL: \
                                etcd://USER:PASSWORD@HOST"
                .to_owned(),
            Self::Token => {
                "etcd does not accept this client's authentication; put user and password into the URL: \
                 etcd://USER:PASSWORD@HOST"
                    .to_owned()
            }
            Self::Password => "etcd does not accept the user or password; check the URL".to_owned(),
            Self::Rights => format!(
                "this user lacks rights that locks need; etcdctl role grant-permission ROLE readwrite \
                 --prefix=true {prefix} grants them"
            ),
        }
    }
}

const FULL: &str =
    "etcd's database is full and refuses writes; compact and defragment it, then disarm its alarm";
const UNKNOWN: &str = "etcd did not report the outcome of the request; it may have been executed";

/// What happened between us and etcd.
fn of_transport(status: Status) -> Failure {
    let mut cause: Option<&dyn StdError> = status.source();
    while let Some(error) = cause {
        if error.is::<NotSent>() {
            let error = Error::new(
                ErrorKind::Unavailable,
                "the connection to etcd was closed before the request was sent; try again",
            )
            .caused_by(Broke(status));
            return Failure { executed: Executed::No, why: Why::LinkLost, error };
        }
        cause = error.source();
    }
    let message = "the connection to etcd was lost before its answer; the request may have been executed";
    let error = Error::new(ErrorKind::Indeterminate, message).caused_by(Broke(status));
    Failure { executed: Executed::Perhaps, why: Why::LinkLost, error }
}

/// An answer that etcd does not give.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, format!("etcd sent an unexpected answer: {what}"))
}

/// What became of a lock whose session is over.
pub(crate) fn over() -> Error {
    Error::new(ErrorKind::Lost, "the session ended, and its claims with it; try again").retryable(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_etcd_surely_did_not_do_counts_as_not_executed() {
        let of = |code, says: &str| Failure::from(Status::new(code, says));
        for (code, says) in [
            (Code::NotFound, "etcdserver: requested lease not found"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::Unknown, "etcdserver: too many requests"),
        ] {
            assert_eq!(of(code, says).executed, Executed::No, "{says}");
        }
        for (code, says) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unknown, "raft: proposal dropped"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            (Code::Internal, "anything"),
            (Code::Cancelled, "anything"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
        ] {
            let failure = of(code, says);
            assert_eq!(failure.executed, Executed::Perhaps, "{says}");
            assert_eq!(failure.error.kind(), ErrorKind::Indeterminate, "{says}");
        }
    }

    #[test]
    fn what_only_reads_is_never_in_doubt() {
        let lost = Failure::silence().of_reading();
        assert_eq!((lost.executed, lost.error.kind()), (Executed::No, ErrorKind::Unavailable));
        assert!(lost.error.is_retryable() && lost.may_pass());
        let denied = Failure::from(Status::permission_denied("etcdserver: permission denied")).of_reading();
        assert_eq!(denied.error.kind(), ErrorKind::Denied);
    }

    #[test]
    fn a_code_that_was_made_here_says_nothing_about_etcd() {
        // tonic calls a socket that is gone "not found".
        let made_here = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::NotFound)));
        assert_eq!(Failure::from(made_here).executed, Executed::Perhaps);
        let unsent = Status::from_error(Box::new(NotSent(None)));
        assert_eq!(Failure::from(unsent).executed, Executed::No);
    }
}
