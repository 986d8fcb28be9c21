//! Locks in MySQL and MariaDB: the `mysql://` and `mariadb://` backend.
//!
//! A lock is a row. A lock that no other client wants is taken and released by one plain `UPDATE`
//! each. Everything else is a procedure that begins with the row lock of that row.
//!
//! # Layout
//!
//! The tables are those of `postgres://`, under a prefix, `tollgate_` unless said: `locks`,
//! `claims`, `renewals`, `revocations` and `version`. MariaDB also has the sequence `tokens`; with
//! `?dialect=mysql` each row of `locks` counts its tokens in `counter` and is never deleted. The
//! functions of `postgres://` are procedures here (`schema.sql`). What does not depend on the
//! database is in the crate `tollgate-sql`.
//!
//! # What differs from PostgreSQL
//!
//! - **The affected rows decide** a plain statement. The token comes back as the number that the
//!   statement remembered (`LAST_INSERT_ID`). A row that is written as it was counts as not
//!   changed: a statement that finds nothing changed asks a procedure before it reports that.
//! - The driver does not report that an idle connection was closed. A request that fails on a
//!   connection that was used before is sent again over another one, once the first cannot act any
//!   more: by owner id, which finds what came of it.
//! - The server releases a row lock only with its transaction, except in READ COMMITTED, and there
//!   only that of a row which the statement would have changed and which does not fit: what a
//!   subquery locks stays locked (`transaction.rs`). It tells no client the number of a
//!   transaction; a name that the session was given, and how often it has begun and ended
//!   transactions, stand for it.
//!
//! # Files
//!
//! Read `schema.sql` for the algorithm, `database.rs` for the statements, `links.rs` for which
//! connection a statement uses, `fence.rs` for what makes tables refuse stale tokens, `gate.rs` for
//! marks, `transaction.rs` for locks in a user's transaction, `ownership.rs` for which accounts are
//! trusted. `wire.rs` opens every connection, reads a bounded answer, and hangs up when it is
//! dropped: the driver's own connection would read on in the background.
//!
//! # How it waits
//!
//! The server tells no client of a hand-over. A waiter reads how it stands (`:look` in
//! `statements.sql`), every 10 ms if it is first in the queue, and asks a procedure only if there
//! is something to do.
//!
//! # `GET_LOCK`
//!
//! `?style=session` (`session`) is a backend of its own, as `?style=advisory` of PostgreSQL is: a
//! lock is a connection.
//!
//! - Each use of a connection has a number, its turn, which keeps a request that arrives twice from
//!   taking a lock twice.
//! - The clerk (`session/clerk.rs`) asks the server over the keeper's own connection whether it has
//!   our locks, and whether an operator has marked them (`session/marks.rs`).
//! - A sequence is on the disk only some time after it was drawn from. So tokens go far ahead after
//!   each start of the server (`session/sql/wake_mariadb.sql`)
//!   (test: session::after_a_restart_tokens_rise_and_holders_have_heard_of_it).
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite, `file::…` a test in `tests/integration`,
//! `file::tests::…` a test beside the code. The invariants of `tollgate-postgres` on row locks,
//! tickets, renewals and withdrawals hold here, too
//! (test: sat_on::who_gives_up_before_a_row_that_is_sat_on_is_told_in_time_and_leaves_nothing)
//! (test: sat_on::a_crowd_that_gives_up_before_a_row_that_is_sat_on_costs_nobody_a_lock).
//!
//! - A hand-over is confirmed by a write of the waiter that got it. InnoDB shows a commit to others
//!   before it is on the disk.
//!   (test: storm::a_server_that_dies_again_and_again_costs_time_and_no_overlap)
//! - A procedure that looks for something without wanting its lock does so by a plain
//!   `SELECT … INTO`: a subquery anywhere else locks what it reads.
//!   (test: transaction::who_sits_on_the_row_of_a_held_lock_does_not_cost_its_holder_the_lock)
//! - An exclusive holder whose time is over is judged with the row of its renewals locked
//!   (`tollgate_judge`).
//!   (test: transaction::who_sits_on_the_row_of_a_held_lock_does_not_cost_its_holder_the_lock)
//! - A procedure's first step takes the row lock, and the whole decision stands under it.
//!   (test: lease::a_reader_and_a_writer_who_wait_for_one_row_never_get_in_together)
//! - An abandoned request is waited for, or its connection is ended by number and address: the
//!   number alone is given again after a restart.
//!   (test: left_behind::what_nobody_withdrew_is_ended_at_the_server_later)
//! - A user's transaction locks no row of a live claim, or is rolled back: it takes a lock by its
//!   row alone, or looks first without locks, and with them once the row is its own.
//!   (test: transaction_beside::a_reader_is_renewed_and_leaves_beside_a_transaction_that_found_it)
//!   (test: transaction::above_read_committed_a_lock_in_use_rolls_the_transaction_back)
//! - Nothing with our names is read or called before it is known that a trusted account has made it
//!   (`ownership.rs`). (test: planted::planted_procedures_are_not_called_by_root)
//! - No password goes to another machine over a connection that is not encrypted: only `Wire::open`
//!   connects.
//!   (test: rogue::as_root::a_server_elsewhere_hears_nothing_of_a_password_without_encryption)

mod backend;
mod config;
mod database;
mod doctor;
mod error;
mod existing;
mod fence;
mod gate;
mod link;
mod links;
mod ownership;
mod parameters;
mod place;
mod rows;
mod schema;
mod session;
mod statement;
mod transaction;
mod wire;

pub use backend::{MySqlBackend, connect};
pub use config::{Dialect, Login, MySqlConfig};
pub use doctor::examine;
pub use existing::url_of;
pub use fence::MySqlFence;
pub use gate::MySqlGate;
pub use parameters::PARAMETERS;
pub use schema::ddl;
pub use session::SessionBackend;
pub use tollgate_sql::Style;
pub use transaction::MySqlTransactions;
