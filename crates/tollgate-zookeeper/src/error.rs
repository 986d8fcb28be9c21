//! What a failed request may have done: the one place that decides it.
//!
//! ZooKeeper serves the requests of a session in order. What was sent over a connection that broke may have been executed; once
//! the session goes on over another one, nothing that was sent before can still be: the leader takes requests of a session
//! only from the server that it moved to.

use tollgate_core::{Error, ErrorKind};
use zookeeper_client::Error as Fault;

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
    /// No answer came in time.
    pub(crate) fn silence() -> Self {
        Self::Failed(unknown("ZooKeeper did not answer in time; it may have acted all the same"))
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        let (kind, message) = match fault {
            Fault::NoNode => return Self::NoNode,
            Fault::NodeExists => return Self::Exists,
            Fault::BadVersion => return Self::Changed,
            Fault::SessionExpired | Fault::ClientClosed => return Self::Ended,
            Fault::NoAuth => (
                ErrorKind::Denied,
                "these nodes are somebody else's; log in as who created them: zookeeper://USER:PASSWORD@HOST",
            ),
            Fault::AuthFailed => (ErrorKind::Denied, "ZooKeeper does not accept who we are; look at the URL"),
            Fault::InvalidAcl => {
                (ErrorKind::Config, "only who logs in can keep nodes for themselves; say who in the URL")
            }
            Fault::QuotaExceeded => {
                (ErrorKind::Config, "a quota of ZooKeeper's is used up; raise it for the folder of the locks")
            }
            Fault::NoChildrenForEphemerals => (
                ErrorKind::Config,
                "a node on the way to the locks is ephemeral and has no others below it; take another ?prefix=",
            ),
            Fault::Throttled | Fault::NotReadOnly => {
                (ErrorKind::Unavailable, "ZooKeeper does not take requests now; has it a majority?")
            }
            Fault::Unimplemented => {
                (ErrorKind::Unsupported, "this ZooKeeper cannot do what locks need; 3.5 and later can")
            }
            Fault::BadArguments(_) | Fault::MarshallingError => {
                (ErrorKind::Unexpected, "ZooKeeper refused what locks need")
            }
            _ => {
                let lost =
                    "the connection to ZooKeeper was lost before its answer; it may have acted all the same";
                return Self::Failed(unknown(lost).caused_by(fault));
            }
        };
        Self::Failed(Error::new(kind, message).caused_by(fault))
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NoNode => unexpected("a node that is needed is not there"),
            Trouble::Exists => unexpected("a node that was to be created is there"),
            Trouble::Changed => unexpected("a node was changed by somebody else"),
            Trouble::Ended => over(),
            Trouble::Failed(error) => error,
        }
    }
}

fn unknown(message: &str) -> Error {
    Error::new(ErrorKind::Indeterminate, message)
}

/// An answer that ZooKeeper does not give.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, format!("ZooKeeper answered something else than was asked for: {what}"))
}

/// What became of a lock whose session is over.
pub(crate) fn over() -> Error {
    Error::new(ErrorKind::Lost, "the session ended, and its claims with it; try again").retryable(true)
}
