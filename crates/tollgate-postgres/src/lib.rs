//! Locks in PostgreSQL: the `postgres://` backend.
//!
//! Leases in two tables (`schema.sql`). A lock that nobody else wants is one row, taken and given back by one plain
//! statement each; everything else is a function that begins by locking that row. Whoever leaves hands the lock to the
//! next and tells it by `NOTIFY`.
//!
//! Read `schema.sql` for the algorithm, `database.rs` for the statements, `driven.rs` for how a connection is driven,
//! `links.rs` for which one is used, `listener.rs` for how hand-overs are heard, and `tollgate-sql` for what all databases
//! have in common.

mod advisory;
mod backend;
mod config;
mod database;
mod doctor;
mod driven;
mod error;
mod fence;
mod gate;
mod link;
mod links;
mod listener;
mod names;
mod owner;
mod plain;
mod pooled;
mod schema;
mod statement;
mod transaction;
mod user_error;

pub use advisory::AdvisoryBackend;
pub use backend::{PostgresBackend, connect};
pub use config::PostgresConfig;
pub use doctor::examine;
pub use fence::{NO_TOKEN, PostgresFence, STALE};
pub use gate::PostgresGate;
pub use schema::{ddl, ddl_of_advisory};
pub use tollgate_sql::Style;
pub use transaction::{TransactionLocks, lock_in_transaction, try_lock_in_transaction};
