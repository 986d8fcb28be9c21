//! `GET /v1/info`, `/healthz` and `/readyz`: what the server is and promises, and whether it is up.

use serde::{Deserialize, Serialize};

use crate::mode::ModeKind;
use crate::open::Open;
use crate::timestamp::Timestamp;

/// What the server is and what it promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Info {
    /// The server's version.
    pub version: String,
    /// Which run of the server this is: the first part of the ids of its events.
    pub boot: String,
    /// When this run began.
    pub started_at: Timestamp,
    /// Where the grants live: `table` for the server's own engine, otherwise the backend's name.
    pub store: String,
    /// When a grant is on the disk, one of those of the schema `Durability`, to which later servers
    /// may add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub durability: Open<Durability>,
    /// Whether the server only shows locks, and changes none.
    pub read_only: bool,
    /// What the store can do.
    pub capabilities: Capabilities,
    /// What the promises rest on, fault by fault.
    pub guarantees: Vec<Guarantee>,
    /// The most that a client may ask for.
    pub limits: Limits,
}

/// When a grant is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Before it is answered.
    Sync,
    /// At a clean stop; after any other the server waits until all grants are over.
    Grace,
    /// As the engine behind the server does it.
    Engine,
}

/// What the store can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Capabilities {
    /// The modes, of those of the schema `Mode`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub modes: Vec<Open<ModeKind>>,
    /// How waiters are served, one of those of the schema `Queue`, to which later servers may add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub queue: Open<Queue>,
    /// Whether the queue outlives a restart of this server.
    pub queue_survives_restart: bool,
    /// Whether a waiting claim keeps its place when it is repeated at another server of the same
    /// store.
    pub queue_moves: bool,
    /// The shortest ttl.
    pub ttl_min_ms: u64,
    /// The longest ttl.
    pub ttl_max_ms: u64,
    /// Every ttl is a multiple of this.
    pub ttl_step_ms: u64,
    /// Whether a lost holder's lock can stay closed for a while.
    pub lock_delay: bool,
    /// Whether circles of waiting parties are found.
    pub detect: bool,
    /// Whether a lock can be broken by force.
    pub force: bool,
    /// How many bytes a name may have.
    pub name_bytes: u64,
}

/// How waiters are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// First come, first served.
    Fifo,
    /// All of them try again after a while.
    Polling,
}

/// What the promises rest on under one fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Guarantee {
    /// The fault, like `holder_paused`.
    pub fault: String,
    /// Whether no two holders overlap: one of those of the schema `Basis`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub exclusion: Open<Basis>,
    /// Whether later tokens are larger: one of those of the schema `Basis`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tokens: Open<Basis>,
}

/// What a promise rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// It is kept.
    Kept,
    /// It is kept as long as clocks run at nearly the same speed.
    Time,
    /// It may be broken.
    Broken,
    /// The fault cannot happen here.
    Absent,
}

/// The most that a client may ask for. What is left out has no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Limits {
    /// The bytes of a body.
    pub body_bytes: u64,
    /// The bytes of a keep's body.
    pub keep_bytes: u64,
    /// The bytes of `meta`.
    pub meta_bytes: u64,
    /// The names of a set.
    pub names: u64,
    /// The claims of a keep.
    pub items: u64,
    /// How long one call stays open.
    pub round_ms: u64,
    /// The longest ttl that the caller's access rule allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ttl_ms: Option<u64>,
    /// How many locks the caller's access rule allows to be held at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_held: Option<u64>,
    /// How many claims the caller's access rule allows to wait at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_waiting: Option<u64>,
}

impl Limits {
    /// The limits of the protocol, without those of an access rule.
    pub fn of_protocol() -> Self {
        use crate::limits as most;
        Self {
            body_bytes: most::MAX_BODY_BYTES as u64,
            keep_bytes: most::MAX_KEEP_BYTES as u64,
            meta_bytes: most::MAX_META_BYTES as u64,
            names: most::MAX_NAMES as u64,
            items: most::MAX_ITEMS as u64,
            round_ms: most::MAX_ROUND.as_millis() as u64,
            max_ttl_ms: None,
            max_held: None,
            max_waiting: None,
        }
    }
}

/// Whether the server is up. It is all that a client without an access key is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// One of those of the schema `HealthStatus`, to which later servers may add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub status: Open<HealthStatus>,
}

/// Whether the server is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// It serves.
    Ok,
    /// It reads what it stored.
    Starting,
    /// It answers what is under way, and takes nothing new.
    Stopping,
}
