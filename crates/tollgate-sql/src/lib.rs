//! Leases in tables: what the locks of all SQL databases have in common.
//!
//! A lock that one exclusive holder has and nobody else wants is one row, taken and given back by one statement each.
//! Everybody else (readers, permits, those who wait) is a row beside it, and the steps they take are functions of the
//! database. Here is what does not depend on the database: [`SqlBackend`] is the contract's side, [`Database`] the steps
//! that a driver has to offer, [`Pool`] its connections, [`LeftBehind`] what became of acquires that nobody waits for any
//! more.

mod backend;
mod capabilities;
mod database;
mod identifier;
mod left_behind;
mod pool;
mod sweep;
mod within;

pub use backend::SqlBackend;
pub use capabilities::{Style, of_leases, of_sessions};
pub use database::{Ask, Database, Seen, Ticket, millis, unsaid, written};
pub use identifier::{check_identifier, named};
pub use left_behind::{Kept, LeftBehind, Overdue};
pub use pool::{Lent, Place, Pool};
pub use within::within;
