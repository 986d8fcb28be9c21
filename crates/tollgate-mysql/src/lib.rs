//! Locks in MySQL and MariaDB: the `mysql://` and `mariadb://` backend.
//!
//! Leases in two tables (`schema.sql`). A lock that nobody else wants is one row, taken and given back by one plain
//! statement each; everything else is a procedure that begins by locking that row. Whoever leaves hands the lock to the
//! next, which looks every few milliseconds whether it was.
//!
//! Read `schema.sql` for the algorithm, `database.rs` for the statements, `links.rs` for which connection is used,
//! `fence.rs` for what makes tables refuse stale tokens, `transaction.rs` for locks that live as long as a transaction, and
//! `tollgate-sql` for what all databases have in common.

mod backend;
mod config;
mod database;
mod doctor;
mod error;
mod fence;
mod gate;
mod link;
mod links;
mod place;
mod schema;
mod session;
mod statement;
mod transaction;

pub use backend::{MySqlBackend, connect};
pub use config::{Dialect, Login, MySqlConfig};
pub use doctor::examine;
pub use fence::MySqlFence;
pub use gate::MySqlGate;
pub use schema::ddl;
pub use session::SessionBackend;
pub use tollgate_sql::Style;
pub use transaction::MySqlTransactions;
