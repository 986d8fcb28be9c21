//! Leases in tables: what the locks of all SQL databases share.
//!
//! A lock that one exclusive holder has and no other client wants is one row, taken and released by
//! one statement each. Every other claim (readers, permits, waiters) is a row beside it, and the
//! steps that claims take are functions of the database. Here is what does not depend on the
//! database: [`SqlBackend`] is the contract's side, [`Database`] the steps that a driver has to
//! offer, [`Pool`] its connections, [`LeftBehind`] what became of abandoned acquires.
//!
//! # Files
//!
//! - `backend.rs`: what each call of the contract means for a database. `database.rs`: the steps,
//!   each of them one transaction.
//! - `pool.rs`: some connections for each runtime, each lent to one statement at a time.
//! - `left_behind.rs`: acquires that were sent and abandoned: a withdrawal must not overtake them.
//! - `within.rs`: limits the time of statements without a timer for each. `sweep.rs`: removes rows
//!   and ends abandoned connections.
//! - `capabilities.rs`: what such locks can do. `identifier.rs`: names of tables.
//!
//! # Invariants
//!
//! - A renewal waits behind renewals alone. Every other statement that waits for a locked row keeps
//!   its connection as long, and there may be a thousand of those; a lock must not be lost behind
//!   them. (test: pool::tests::a_renewal_waits_for_renewals_alone)
//! - An abandoned acquire stays known until it is certain that it has arrived or never will.
//!   (test: left_behind::tests::what_nobody_made_sure_of_stays_known)
//!   (test: left_behind::tests::what_is_overdue_stays_known_until_it_was_ended)

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
