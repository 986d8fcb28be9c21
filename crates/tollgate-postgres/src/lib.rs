//! Locks in PostgreSQL: the `postgres://` backend.
//!
//! A lock is a row. A lock that no other client wants is taken and released by one plain `UPDATE`
//! each. Everything else is a function that begins with the row lock of that row. A release hands
//! the lock to the next waiter and reports it by `NOTIFY`.
//!
//! # Layout
//!
//! ```text
//! locks        one row per lock that is held or waited for, or was lately: the exclusive holder's
//!              owner, token and expiry, the counts of holders and waiters, the last tickets
//! claims       shared holders, permit holders and all waiters, by lock and ticket
//! renewals     renewals of exclusive holders while another transaction has the lock's row
//! revocations  owners whose locks an operator broke, as long as they may still want to renew
//! tokens       the sequence of all tokens
//! version      the version of this layout
//! ```
//!
//! If one exclusive holder has the lock and no other client wants it, the row of `locks` has
//! everything that decides, and the plain statements are in `statements.sql`. Every other claim,
//! shared or waiting, is a row of `claims`, and what it does is a function of `schema.sql`. What
//! does not depend on the database is in the crate `tollgate-sql`.
//!
//! # Files
//!
//! Read `schema.sql` for the algorithm and `database.rs` for the statements.
//!
//! - `dial.rs` opens every connection: host by host, each within its limit, the host that took the
//!   last write first. `screen.rs` reads what a server sends before the driver does.
//! - `driven.rs` is a connection that is driven by its user: a statement wakes no other task. For
//!   that reason there is a pool of connections for each runtime, and renewals, which run on the
//!   keeper, have connections of their own. `links.rs` decides which connection a statement uses.
//! - `listener.rs` receives hand-overs, proves once that they arrive, and keeps the places of
//!   waiters over the same connection. `places.rs` collects the places that are due
//!   (`Database::keep`), so that a client that only waits has one connection and sends one
//!   statement for all of them.
//! - `transaction.rs`: locks in a user's transaction. A transaction that has the row lock and sees
//!   no holder has the lock, as long as it lives. It writes into the row which transaction it is:
//!   asked again, it finds its token there
//!   (test: transaction::who_asks_again_in_one_transaction_gets_the_same_token).
//! - `fence.rs`, which knows nothing of locks, makes tables refuse stale tokens. `gate.rs` admits a
//!   holder that was admitted before by a plain read: a transaction that is about to raise the mark
//!   shows by its number on the row (test: gate::a_holder_that_is_in_is_let_in_by_reading_alone).
//! - `advisory`: `?style=advisory`, below. `ownership.rs`: which roles are trusted. `doctor`: what
//!   is wrong with a server.
//!
//! # How it waits
//!
//! A waiter refreshes its place every third of its ttl by `:keep` in `statements.sql`, which also
//! tells when it may be granted without a message: when the holder and the waiters ahead have all
//! been silent for their ttl. As long as notifications arrive, the waiter does nothing else.
//! Without them it asks more often, the more often the shorter its queue position.
//!
//! # Advisory locks
//!
//! `?style=advisory` is a backend of its own: a lock is a connection, and taking or releasing it
//! writes no table. `advisory/clerk.rs` writes down afterwards what operators want to see. To
//! revoke, an operator marks what was written and notifies the lock's connection, which listens.
//! The holder looks for the mark whenever something arrives there, and after each ping
//! (`advisory/lost.rs`).
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite, `file::…` a test in `tests/integration`,
//! `file::tests::…` a test beside the code, `sql::…` a test of the crate `tollgate-sql`.
//!
//! - Nothing in the schema is read, called or written before it is known that only trusted roles
//!   can have put code there (`ownership.sql`, which itself names every function and operator with
//!   its schema). (test: planted::a_planted_trigger_is_not_run_by_a_superuser)
//!   (test: planted::functions_that_fit_better_than_those_of_postgresql_are_not_called)
//! - No password goes in clear text over a connection that others can read, and no answer beyond 64
//!   MiB is collected (`screen.rs`): every connection is opened by `dial`.
//!   (test: rogue::as_root::a_server_elsewhere_is_not_told_the_password_as_it_is)
//!   (test: rogue::endless_small_rows_are_refused_before_they_fill_the_memory)
//! - A waiter touches the lock's row only to queue up and when it may be granted: its refresh tells
//!   when that is, as long as notifications arrive.
//!   (test: crowd::tasks_of_one_program_refresh_their_places_together)
//!   (test: crowd::a_waiter_behind_those_who_died_is_in_when_their_time_is_over)
//! - A function's first statement takes the row lock. What the function reads after that, in
//!   statements of their own, is as the last transaction left it, because our transactions are READ
//!   COMMITTED.
//!   (test: queue::a_reader_and_a_writer_who_come_while_the_row_is_locked_are_never_in_together)
//!   (test: trouble::other_isolation_levels_and_serialisation_errors_change_nothing)
//! - A token is drawn by the transaction that has the row lock. In the plain `UPDATE` it is drawn
//!   before that, and again if the row has changed since: PostgreSQL evaluates the statement anew
//!   on what it finds (`EvalPlanQual`).
//!   (test: transaction::tokens_do_not_fall_where_leases_and_transactions_stand_before_one_row)
//! - Holders have smaller tickets than waiters (`served` is between them).
//!   (test: conformance::waiters_are_served_in_order)
//! - So no function reads a queue to find its head, nor all holders to find that there is one.
//!   (no test)
//! - What is granted is on the disk before any client is told. Only releases that hand the lock to
//!   no waiter, and places in queues, do not wait for the disk.
//!   (test:
//!   queue::an_acquire_that_lets_another_in_waits_for_the_disk_and_one_that_only_queues_up_does_not
//!   )
//! - An exclusive holder whose time is over is judged, and renewed beside a row that another
//!   transaction has locked, by one transaction at a time (`alone_with`).
//!   (test: queue::somebody_who_sits_on_a_locks_row_makes_nobody_lose_it)
//! - Shared holders are renewed by themselves: the transaction that judges them deletes the dead,
//!   waits for one that is being renewed in that moment, and keeps it.
//!   (test: transaction::a_reader_that_is_being_renewed_keeps_transactions_out)
//! - A withdrawal goes behind its acquire, over the same connection, or after that server process
//!   has ended (`Links::end`).
//!   (test: sat_on::what_is_granted_when_somebody_has_given_up_is_given_back)
//! - An abandoned acquire keeps no place in the pool, unless there are many. One that was not
//!   withdrawn is ended by the sweeper (`Database::reclaim`); until then it stays known.
//!   (test: sql::left_behind::tests::what_is_overdue_stays_known_until_it_was_ended)
//! - A renewal waits behind renewals alone (`Pool::lend_first`). A thousand other statements may
//!   wait for a locked row, and each keeps its connection as long.
//!   (test: sat_on::a_crowd_that_gives_up_before_a_row_that_is_sat_on_costs_nobody_a_lock)
//!   (test: sql::pool::tests::a_renewal_waits_for_renewals_alone)
//! - A withdrawal does not wait for a locked row. It ends the claim where it stands (`:forget`),
//!   nothing revives that, and a transaction that grants a claim takes its row lock first. Only an
//!   exclusive grant, which is in the row itself, has to wait.
//!   (test: sat_on::who_gives_up_before_a_row_that_is_sat_on_is_told_in_time_and_leaves_nothing)
//! - An advisory lock is taken and released only by the server process that was introduced to its
//!   connection (`label` in `advisory/sql`). An unnoticed pooler lends processes, and one
//!   connection's lock would be another's.
//!   (test: advisory::a_process_that_is_lent_to_two_gives_neither_the_others_lock)

mod advisory;
mod backend;
mod carrier;
mod config;
mod database;
mod dial;
mod doctor;
mod driven;
mod error;
mod existing;
mod fence;
mod gate;
mod libpq;
mod link;
mod links;
mod listener;
mod names;
mod owner;
mod ownership;
mod passfile;
mod places;
mod plain;
mod pooled;
mod schema;
mod screen;
mod statement;
mod transaction;
mod user_error;

pub use advisory::AdvisoryBackend;
pub use backend::{PostgresBackend, connect};
pub use config::PostgresConfig;
pub use doctor::examine;
pub use existing::url_of;
pub use fence::{NO_TOKEN, PostgresFence, STALE};
pub use gate::PostgresGate;
pub use libpq::PARAMETERS;
pub use schema::{ddl, ddl_of_advisory};
pub use tollgate_sql::Style;
pub use transaction::{TransactionLocks, lock_in_transaction, try_lock_in_transaction};
