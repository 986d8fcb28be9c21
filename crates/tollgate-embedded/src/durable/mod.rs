//! The durable engine: the lock table in memory, and on a disk what must survive a crash.
//!
//! [`Durable`] applies commands and never waits for the disk. It gathers what has to be written into batches, and says of
//! each answer which batch it depends on: the answer may leave when that batch is on the disk. [`Committer`] writes one batch
//! after the other on a thread of its own. [`Store`] is the disk: [`RedbStore`] is one file.
//!
//! There are two durabilities:
//!
//! - [`Sync`](Durability::Sync) stores every grant before it is answered. After a crash every grant that was answered is held.
//! - [`Grace`](Durability::Grace) stores no grant, only an upper bound of how long any of them can last. After a crash nothing
//!   is granted until that time is over.
//!
//! Waiting claims are not stored: clients repeat them. Renewals are not stored, unless they raise the time to live: after a
//! restart every lease begins again in full.
//!
//! # Invariants
//!
//! - No answer leaves before the batch that it depends on is on the disk.
//!   (test: durable::no_answer_leaves_before_its_batch)
//! - No token that was given is given again, whatever was lost. (test: durable::tokens_rise_over_every_crash)
//! - In `Sync`, no answered grant is forgotten. (test: crashes::every_crash_state_keeps_what_was_answered)
//! - In `Grace`, nothing is granted after a crash before everything that was granted is over.
//!   (test: durable::grace_waits_for_what_may_be_held)
//! - A start ends with a commit of its own: what was read may so far be only in the page cache.
//!   (test: durable::a_start_commits_before_it_grants)
//! - A commit that failed is final: nothing is granted afterwards. (test: durable::a_failed_commit_is_final)

mod batch;
mod committer;
mod disk_file;
mod engine;
mod header;
mod redb_store;
mod row;
mod start;
mod store;

pub use batch::{Batch, Commit};
pub use committer::Committer;
pub use engine::{Applied, Durable};
pub use header::Durability;
pub use redb_store::RedbStore;
pub use start::{Options, Started, start};
pub use store::{Row, Store, StoreError, Table, Write};
