//! Locks for the processes of one host, with nothing but a folder: the `file:DIR` backend.
//!
//! # Layout
//!
//! ```text
//! DIR/version         which layout this is; written last when a folder is made
//! DIR/counters        the tokens, synced before one is used: 256 shards of two checksummed slots
//! DIR/locks/<sha256>  one file per lock in use: its real name, and the queue of its claims
//! DIR/marks/<sha256>  one file per gated resource: its name, two checksummed slots, a page each
//! ```
//!
//! Each claim has a ticket and, as long as it lives, a kernel lock on the byte of that ticket: a
//! process that dies frees it at once. The locks belong to open file descriptions (`F_OFD_SETLK`),
//! never to processes, so the claims of one process exclude each other, too.
//!
//! Read `place.rs` for a claim's life in the file, `layout.rs` and `gated.rs` for the file itself,
//! `queue.rs` for the rule, `waiter.rs` for waiting and `steps.rs` for which thread does what.
//! `doctor` examines a folder without changing it; its findings are data
//! (`tollgate_core::Finding`).
//!
//! # How it waits
//!
//! - A claim waits for the byte of the nearest claim ahead that is in its way, so a release wakes
//!   the next waiter and no other. Several permit holders are more than one byte to wait on: the
//!   first waiting permit polls, every 1 to 10 ms, and the others wait for it.
//! - A waiter that is stopped (SIGSTOP) keeps its place. Once it is the next, the waiters behind it
//!   wait until it goes on or dies. Before that it holds up no other claim.
//! - A process that is stopped in the microseconds in which it has a lock's gate makes other claims
//!   fail with `Unavailable` after ten seconds.
//! - The first lock that has to be waited for takes a real-time signal that the program does not
//!   use, to interrupt waiting threads; its handler does nothing.
//!
//! # Cost
//!
//! Most of what a grant costs is the disk, and waking another thread. So a client that takes one
//! lock again and again draws 64 tokens at once (`Block` in `counter.rs`). It takes a lock whose
//! file it still has open, that no other claim uses and for which a token is left, on the caller's
//! own thread (`place::join_at_once`): a few system calls on cached pages. If the file system
//! stalls just then (it is frozen, or busy with writes), so does the caller's executor, once; for
//! the next ten seconds threads do it.
//!
//! # What it does not do
//!
//! - Nothing expires: the deadline is `Deadline::Never`, and a renewal only checks that the lock is
//!   still there.
//! - A lock is never broken by force: the holder is asked and has to leave. Network file systems
//!   are refused.
//! - A child that was forked cannot use what its parent opened; it has to connect anew.
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite, `file::…` a test in `tests/integration`,
//! `file::tests::…` a test beside the code.
//!
//! - A token is given only if the counter on the disk is at least as large. What is left of a block
//!   is good only while the shard's counter stands where the block left it: any other draw, and any
//!   raised floor, ends the block. (test: counter::tests::a_block_ends_when_somebody_else_draws)
//!   (test: counter::tests::a_block_ends_when_the_floor_is_raised_wherever_to)
//!   (test: counter::tests::a_torn_slot_never_brings_a_token_of_a_block_back)
//! - A counter never goes back. What cannot be read is damage: it grants nothing and is not
//!   overwritten. (test: counter::tests::damage_grants_nothing_and_overwrites_nothing)
//!   (test: trouble::a_damaged_counter_grants_nothing)
//! - A lock's file is unlinked only under its gate and with no live byte, and a process that has
//!   locked a gate checks that the file is still the one at that path.
//!   (test: gated::tests::a_file_in_use_is_not_removed_and_an_idle_one_is)
//!   (test: processes::files_that_come_and_go_lose_nobody)
//! - What is in the folder is opened, made, renamed and removed from the descriptor of the open
//!   folder, without following links (`dir.rs`): of several users that write to a folder none can
//!   lead another user's process elsewhere. Only the check that a file or folder is still the one
//!   that other processes find uses its path.
//!   (test:
//!   shared_folder::a_link_in_the_place_of_the_locks_is_refused_and_nothing_behind_it_is_deleted)
//!   (test: shared_folder::a_folder_that_was_moved_away_is_noticed_and_so_is_another_in_its_place)
//! - A file that does not begin like one of ours is neither written nor removed, whatever its name.
//!   (test: shared_folder::a_file_that_tollgate_did_not_make_survives)
//! - A file is readable only by users that may write it: opening a file is enough to lock it.
//!   (test: shared_folder::files_can_be_read_only_by_users_that_may_write_them)
//! - A release is an explicit unlock, never only a close: child processes may share the open file
//!   description.
//!   (test: processes::a_child_keeps_the_lock_of_its_dead_parent_but_not_a_released_one)

mod backend;
mod capabilities;
mod counter;
mod dir;
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
