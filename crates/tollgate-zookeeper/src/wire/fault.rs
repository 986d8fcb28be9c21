//! Why a request was not answered as it should have been.

/// ZooKeeper's number of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const CONNECTION_LOSS: Self = Self(-4);
    pub(crate) const MARSHALLING: Self = Self(-5);
    pub(crate) const UNIMPLEMENTED: Self = Self(-6);
    pub(crate) const TIMEOUT: Self = Self(-7);
    pub(crate) const BAD_ARGUMENTS: Self = Self(-8);
    pub(crate) const NEW_CONFIG_NO_QUORUM: Self = Self(-13);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: Self = Self(-108);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const NOT_EMPTY: Self = Self(-111);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_CALLBACK: Self = Self(-113);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const NOT_READ_ONLY: Self = Self(-119);
    pub(crate) const EPHEMERAL_ON_LOCAL_SESSION: Self = Self(-120);
    pub(crate) const SASL_REQUIRED: Self = Self(-124);
    pub(crate) const QUOTA_EXCEEDED: Self = Self(-125);
    pub(crate) const THROTTLED: Self = Self(-127);
    /// Of a step that was not done because another step of the same `multi` could not be.
    pub(crate) const INCONSISTENT: Self = Self(-2);
}

/// Why a request was not answered as it should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// ZooKeeper said no.
    Refused(Code),
    /// There was no connection, and nothing of it was sent.
    Unsent,
    /// The connection was lost before the answer; it may have been done.
    Lost,
    /// It was answered, and nobody understands how.
    Garbled,
    /// The session is no more.
    Ended,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(Code(code)) => write!(f, "ZooKeeper's error {code}"),
            Self::Unsent => f.write_str("no connection"),
            Self::Lost => f.write_str("the connection was lost"),
            Self::Garbled => f.write_str("the answer cannot be decoded"),
            Self::Ended => f.write_str("the session has ended"),
        }
    }
}

impl std::error::Error for Fault {}
