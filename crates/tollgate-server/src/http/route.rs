//! The routes of the HTTP API, as data: the router, the OpenAPI document and tests read this table.

use tollgate_proto::limits::{MAX_BODY_BYTES, MAX_KEEP_BYTES};

/// A call that the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// Take a lock.
    Acquire,
    /// Take a set of locks.
    AcquireAll,
    /// Renew grants and keep places.
    Keep,
    /// Renew one grant.
    Extend,
    /// Give locks back.
    Release,
    /// Remove claims.
    Withdraw,
    /// Ask a mark.
    Admit,
    /// Break a lock.
    Break,
    /// A page of locks.
    Locks,
    /// One lock.
    Lock,
    /// The event stream.
    Events,
    /// The locks that stand out.
    Top,
    /// The wait-for graph.
    Deadlocks,
    /// What the server is.
    Info,
    /// Whether the process is up.
    Healthz,
    /// Whether the server serves.
    Readyz,
    /// Figures for Prometheus.
    Metrics,
    /// The OpenAPI document.
    OpenApi,
    /// A page for people.
    Root,
}

impl Route {
    /// Every route.
    pub const ALL: [Self; 19] = [
        Self::Acquire,
        Self::AcquireAll,
        Self::Keep,
        Self::Extend,
        Self::Release,
        Self::Withdraw,
        Self::Admit,
        Self::Break,
        Self::Locks,
        Self::Lock,
        Self::Events,
        Self::Top,
        Self::Deadlocks,
        Self::Info,
        Self::Healthz,
        Self::Readyz,
        Self::Metrics,
        Self::OpenApi,
        Self::Root,
    ];

    /// The route of a path, whatever the method.
    pub fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }

    /// The path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Acquire => "/v1/acquire",
            Self::AcquireAll => "/v1/acquire-all",
            Self::Keep => "/v1/keep",
            Self::Extend => "/v1/extend",
            Self::Release => "/v1/release",
            Self::Withdraw => "/v1/withdraw",
            Self::Admit => "/v1/admit",
            Self::Break => "/v1/break",
            Self::Locks => "/v1/locks",
            Self::Lock => "/v1/lock",
            Self::Events => "/v1/events",
            Self::Top => "/v1/top",
            Self::Deadlocks => "/v1/deadlocks",
            Self::Info => "/v1/info",
            Self::Healthz => "/healthz",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::OpenApi => "/openapi.json",
            Self::Root => "/",
        }
    }

    /// The method. `HEAD` is `GET` without the body.
    pub fn method(self) -> &'static str {
        match self {
            Self::Acquire
            | Self::AcquireAll
            | Self::Keep
            | Self::Extend
            | Self::Release
            | Self::Withdraw
            | Self::Admit
            | Self::Break => "POST",
            _ => "GET",
        }
    }

    /// Whether the call may change a lock or a mark.
    pub fn changes(self) -> bool {
        self.method() == "POST"
    }

    /// The most bytes of a body.
    pub fn most_bytes(self) -> usize {
        match self {
            Self::Keep => MAX_KEEP_BYTES,
            _ if self.changes() => MAX_BODY_BYTES,
            _ => 0,
        }
    }
}
