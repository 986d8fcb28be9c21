//! What the server is and promises.

use tollgate_core::LockName;
use tollgate_embedded::durable::Durability;
use tollgate_proto::{self as proto, Capabilities, Info, Limits, ModeKind, Queue, Timestamp};

use super::driver::{SHORTEST_MS, TableService};
use crate::guarantees::guarantees;
use crate::show::{self, millis};

pub(super) fn info(service: &TableService) -> Info {
    let inner = &service.inner;
    let durability = match inner.durability {
        Durability::Sync => proto::Durability::Sync,
        Durability::Grace => proto::Durability::Grace,
    };
    let longest = millis(inner.longest);
    Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot: format!("{:016x}", inner.events.borrow().boot()),
        started_at: Timestamp::from_unix_ms(inner.started_ms),
        store: "table".to_owned(),
        durability: durability.into(),
        read_only: false,
        capabilities: Capabilities {
            modes: [ModeKind::Exclusive, ModeKind::Shared, ModeKind::Permit].map(Into::into).to_vec(),
            queue: Queue::Fifo.into(),
            queue_survives_restart: false,
            queue_moves: false,
            ttl_min_ms: SHORTEST_MS,
            ttl_max_ms: longest,
            ttl_step_ms: 1,
            lock_delay: true,
            detect: true,
            force: true,
            name_bytes: LockName::MAX_BYTES as u64,
        },
        guarantees: show::guarantees(&guarantees()),
        limits: Limits { max_ttl_ms: Some(longest), ..Limits::of_protocol() },
    }
}
