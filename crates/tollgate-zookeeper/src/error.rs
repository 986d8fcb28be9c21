//! What a failed request may have done: the one place that decides it.
//!
//! ZooKeeper serves the requests of a session in order. What was sent over a connection that broke may have been executed; once
//! the session goes on over another one, nothing that was sent before can still be: the leader takes requests of a session
//! only from the server that it moved to.

use tollgate_core::{Error, ErrorKind};

use crate::wire::{Code, Fault};

/// A request that was not answered as it should have been.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is no such node.
    NoNode,
    /// There is such a node already.
    Exists,
    /// Somebody else has changed the node meanwhile.
    Changed,
    /// The session is no more, and everything that hung on it.
    Ended,
    /// Something else, in the words of the contract. What nobody knows is `Indeterminate`.
    Failed(Error),
}

impl Trouble {
    /// Whether what was asked for may have been done.
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Failed(error) if error.kind() == ErrorKind::Indeterminate)
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        let (kind, message) = match fault {
            Fault::Refused(code) => return refused(code),
            Fault::Ended => return Self::Ended,
            Fault::Unsent => (
                ErrorKind::Unavailable,
                "there is no connection to ZooKeeper, and the request was not sent; is ZooKeeper up?",
            ),
            Fault::Lost => (
                ErrorKind::Indeterminate,
                "the connection to ZooKeeper was lost before its answer; the request may have been executed",
            ),
            Fault::Garbled => (
                ErrorKind::Indeterminate,
                "ZooKeeper's answer cannot be decoded; the request may have been executed",
            ),
        };
        Self::Failed(Error::new(kind, message).caused_by(fault))
    }
}

/// What ZooKeeper means by a number.
fn refused(code: Code) -> Trouble {
    let (kind, message) = match code {
        Code::NO_NODE => return Trouble::NoNode,
        Code::NODE_EXISTS => return Trouble::Exists,
        Code::BAD_VERSION => return Trouble::Changed,
        Code::SESSION_EXPIRED => return Trouble::Ended,
        Code::NO_AUTH => (
            ErrorKind::Denied,
            "these nodes belong to another user; log in as the user that created them: \
             zookeeper://USER:PASSWORD@HOST",
        ),
        Code::AUTH_FAILED => (ErrorKind::Denied, "ZooKeeper rejected the login; check the URL"),
        Code::SASL_REQUIRED => (
            ErrorKind::Denied,
            "this ZooKeeper requires SASL, which locks do not support; allow digest for them",
        ),
        Code::INVALID_ACL => (
            ErrorKind::Config,
            "only a user that logs in can restrict nodes to itself; name the user in the URL",
        ),
        Code::QUOTA_EXCEEDED => {
            (ErrorKind::Config, "a ZooKeeper quota is exhausted; raise it for the folder of the locks")
        }
        Code::NO_CHILDREN_FOR_EPHEMERALS => (
            ErrorKind::Config,
            "a node on the path to the locks is ephemeral and cannot have children; choose another ?prefix=",
        ),
        Code::NOT_EMPTY => (
            ErrorKind::Config,
            "a node has children and cannot be deleted; does another application keep data in the folder \
             of the locks?",
        ),
        Code::EPHEMERAL_ON_LOCAL_SESSION => (
            ErrorKind::Unsupported,
            "this ZooKeeper uses local sessions, which cannot hold a lock; set \
             localSessionsUpgradingEnabled=true or localSessionsEnabled=false in zoo.cfg",
        ),
        Code::UNIMPLEMENTED => {
            (ErrorKind::Unsupported, "this ZooKeeper lacks what locks need; use 3.5 or later")
        }
        Code::THROTTLED => (
            ErrorKind::Unavailable,
            "ZooKeeper is overloaded and did not execute the request; try again later",
        ),
        Code::NOT_READ_ONLY => {
            (ErrorKind::Unavailable, "this server has no majority and is read-only; are enough servers up?")
        }
        Code::SESSION_MOVED => (
            ErrorKind::Unavailable,
            "the session moved to another connection, and this request was not executed; try again",
        ),
        Code::NEW_CONFIG_NO_QUORUM => (
            ErrorKind::Unavailable,
            "too few servers of ZooKeeper's new configuration are up; is a reconfiguration under way?",
        ),
        Code::CONNECTION_LOSS => (
            ErrorKind::Indeterminate,
            "ZooKeeper lost an internal connection before the request finished; the request may have been \
             executed",
        ),
        Code::TIMEOUT => (
            ErrorKind::Indeterminate,
            "a request inside ZooKeeper timed out; the request may have been executed",
        ),
        Code::BAD_ARGUMENTS => {
            (ErrorKind::Unexpected, "ZooKeeper rejects this path; check ?prefix= and the path of the URL")
        }
        Code::MARSHALLING => (
            ErrorKind::Unexpected,
            "ZooKeeper did not understand the request; is its version between 3.5 and 3.9?",
        ),
        Code::INVALID_CALLBACK => (ErrorKind::Unexpected, "ZooKeeper refused a watch"),
        Code(other) => {
            let message = format!("ZooKeeper refused a request that locks need, with its error {other}");
            return Trouble::Failed(Error::new(ErrorKind::Unexpected, message));
        }
    };
    Trouble::Failed(Error::new(kind, message).caused_by(Fault::Refused(code)))
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NoNode => unexpected("a required node does not exist"),
            Trouble::Exists => unexpected("a node that was to be created exists already"),
            Trouble::Changed => unexpected("another client changed a node"),
            Trouble::Ended => over(),
            Trouble::Failed(error) => error,
        }
    }
}

/// An answer that ZooKeeper does not give.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, format!("ZooKeeper sent an unexpected answer: {what}"))
}

/// What became of a lock whose session is over.
pub(crate) fn over() -> Error {
    Error::new(ErrorKind::Lost, "the session ended, and its claims with it; try again").retryable(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32) -> ErrorKind {
        Error::from(refused(Code(code))).kind()
    }

    #[test]
    fn what_may_have_been_done_is_told_from_what_was_not() {
        let unsure = [-4, -7].map(kind);
        assert_eq!(unsure, [ErrorKind::Indeterminate; 2]);
        assert_eq!(Error::from(Trouble::from(Fault::Lost)).kind(), ErrorKind::Indeterminate);
        let passes = [-13, -118, -119, -127].map(kind);
        assert_eq!(passes, [ErrorKind::Unavailable; 4]);
        assert_eq!(Error::from(Trouble::from(Fault::Unsent)).kind(), ErrorKind::Unavailable);
        assert_eq!([-102, -115, -124].map(kind), [ErrorKind::Denied; 3]);
        assert_eq!([-6, -120].map(kind), [ErrorKind::Unsupported; 2]);
        assert_eq!(kind(-112), ErrorKind::Lost);
        let unknown = Error::from(refused(Code(-999)));
        assert!(unknown.kind() == ErrorKind::Unexpected && unknown.message().contains("-999"), "{unknown}");
    }
}
