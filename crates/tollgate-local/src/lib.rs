//! Locks for the processes of one host, with nothing but a folder: the `file:DIR` backend.
//!
//! ```text
//! DIR/version           which layout this is; written last when a folder is made
//! DIR/counters          the tokens: 256 shards of two checksummed slots, synced before a token is used
//! DIR/locks/<sha256>    one file per lock in use: its name, and the queue of its claims
//! DIR/marks/<sha256>    one file per resource of a gate: its name, and the highest token that was let in
//! ```
//!
//! Every claim has a ticket and, as long as it lives, a kernel lock on the byte of that ticket: a process
//! that dies frees it at once. A claim waits for the byte of the nearest claim ahead that is in its way,
//! so a release wakes the next one and nobody else. The locks belong to open descriptions (`F_OFD_SETLK`),
//! never to processes, so the claims of one process exclude each other, too.
//!
//! - A waiter that is stopped (SIGSTOP) keeps its place: when its turn comes those behind it wait until it
//!   goes on or dies. Before its turn it holds up nobody.
//! - A process that is stopped in the microseconds in which it has a lock's gate makes others fail with
//!   `Unavailable` after ten seconds.
//! - A lock that nobody else wants and whose file is still open is taken on the caller's thread: a few system calls
//!   on cached pages. If the file system stalls just then (it is frozen, or drowned in writes), so does the
//!   caller's executor, once; for the next ten seconds threads do it.
//! - A child that was forked cannot use what its parent opened; it has to connect anew.
//! - The first lock that has to be waited for takes a real-time signal that the program does not use, to
//!   interrupt waiting threads; its handler does nothing.
//!
//! Read `place.rs` for a claim's life in the file, `layout.rs` and `gated.rs` for the file itself, `queue.rs`
//! for the rule, `waiter.rs` for waiting and `steps.rs` for what runs when.

mod backend;
mod capabilities;
mod counter;
mod doctor;
mod error;
mod fence;
mod folder;
mod gated;
mod idle;
mod layout;
mod lockfile;
mod lost;
mod mark_file;
mod place;
mod queue;
mod registry;
mod steps;
mod sys;
mod view;
mod waiter;

pub use backend::FileBackend;
pub use doctor::examine;
pub use fence::FileGate;
pub use folder::default_dir;
pub use mark_file::LockedMark;
