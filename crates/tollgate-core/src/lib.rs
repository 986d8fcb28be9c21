//! The core of Tollgate: the contract that engines implement, and everything about locks that needs
//! no engine.
//!
//! # Files
//!
//! - The contract is in [`backend`], method by method; [`capabilities`] and [`guarantees`] say what
//!   a backend can do.
//! - Taking: `lock.rs` (the request), `claim.rs`, `pending.rs` (withdraws an abandoned acquire),
//!   `wait_over.rs`, `grant.rs`, `guard.rs`, `lease.rs` (the view of a guard), `set.rs`,
//!   `detached.rs` (grants without a guard).
//! - Keeping: `hold.rs` (what a guard may rely on and until when), `agenda.rs`, `keep.rs`,
//!   `keeper.rs`, `clock.rs`.
//! - Ending: `settle.rs` has the one table of what the engine is told when a guard or a claim is
//!   over.
//! - Shared by backends: [`queued`] (engines with a queue), [`wait`] (polling, and pauses while an
//!   engine is away), [`turn`] (the rule for one claim in a queue), [`inbox`] (hand-overs),
//!   [`events`], [`floor`], [`recent`], [`url`].
//! - Built on a lock: `election.rs`, `leadership.rs`, `rw_lock.rs`, `semaphore.rs`, `party.rs`,
//!   `stake.rs`.
//! - [`layer`]: backends around backends. [`gate`] and `fence.rs`: tokens that a resource compares.
//!
//! # Deadlines
//!
//! The clock is CLOCK_BOOTTIME, behind [`Clock`]. It runs through suspend, and sleepers are woken
//! when it has jumped. A deadline counts from the moment the answered request was *sent*, less a
//! margin of 2 % of the ttl + 5 ms. The effective deadline is the smallest of the lease's,
//! `max_hold`'s and `stall_after`'s. After a loss by any of them the claim is released, but only
//! when the margin is over: a holder that was told of the loss has that long to stop before the
//! next one is granted.
//!
//! # Waiting while an engine is away
//!
//! An engine that is away when a claim arrives is an error at once. A claim that already waits goes
//! on waiting, for ever or as long as `.wait(…)` says, and asks again after pauses that grow
//! (`Outage` in `wait.rs`). Only an error that does not pass by itself, like a wrong password, ends
//! the wait. The pauses are the core's. The asking is each backend's: only the backend knows
//! whether a queue position outlives a connection. [`wait::poll`] withdraws the claim before it
//! tries again.
//!
//! # Renewal
//!
//! The keeper is one thread with a runtime of its own per process. Renewals, the ends of dropped
//! guards and abandoned acquires, and timers run there, and backends open the connections that
//! renewals use from tasks spawned there. A guard gets a task of its own only when it is first due,
//! so that a lock held for a moment wakes no other thread. A release or withdrawal without an
//! answer is repeated until the ttl is over on a lease. A session, which is renewed once for all
//! its locks, and a process end their claims with themselves, so there it is repeated as long as
//! this process lives.
//!
//! # Layers
//!
//! [`layer::Layer`] forwards everything, so that each layer says only what it changes: `Timeout`,
//! `Namespace`, `Trace`, `Metrics`, and for networked engines `OnTokio`, which fails where a driver
//! without a runtime would panic. The suite's faults and mutants are layers, too. What becomes of a
//! grant after it was given (held, lost, released without an answer), and what a wait came to, only
//! the core knows: it tells the backend by [`Backend::note`], and layers listen.
//!
//! # Elections
//!
//! An election is the lock of its name: the leader is its holder, the epoch its token, and what it
//! proclaims lies in the holder's details, which a renewal can replace. So every backend has
//! elections, and none knows of them. A [`Leadership`] shares its guard with every [`Work`] that is
//! done in its name. [`RwLock`] and [`Semaphore`] are names for modes. A reader never becomes a
//! writer: two readers that waited for that would wait for each other.
//!
//! # Deadlock policies
//!
//! Engines that know nothing of parties get the policies by what claims show of themselves
//! (`stake.rs`). The party's age is asked for before its first claim ([`Backend::age`]); otherwise
//! a claim would stand in a queue without an age to compare. A claim with a party and no policy
//! shows its age, too. A waiter with wait-die looks again from time to time, because most engines
//! put a claim whose place was lost in a stop at the end of the queue, perhaps behind an older
//! party.
//!
//! # Gates
//!
//! A [`Gate`] keeps the marks of resources that cannot keep them themselves. Each backend that can
//! has one beside its fence, over the same marks, with connections of its own. All requests to a
//! gate may be repeated: raising a mark twice is harmless.
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite in `crates/tollgate-testkit`, `guards::…` a test in its
//! `tests/guards`, and `testkit::…` another test there. `engine::…`, `redis::…`, `postgres::…`,
//! `mysql::…` and `local::…` are tests of those crates.
//!
//! - Nothing on the keeper's thread blocks, and nothing that a user can hold blocks it: callbacks
//!   run on threads of their own, and [`States`] gives copies.
//!   (test: guards::callbacks::a_callback_that_blocks_costs_no_other_guard_its_renewal)
//!   (test: guards::callbacks::what_a_callback_holds_is_never_dropped_on_the_keeper)
//! - `Lost` is written once and stays. A late answer to a renewal never revives a guard.
//!   (test: guards::keeping::a_renewal_that_is_answered_after_the_loss_does_not_revive)
//! - Nothing repeats an acquire whose outcome is unknown.
//!   (test: guards::asking::nothing_repeats_an_attempt_whose_outcome_is_unknown)
//! - A layer passes the suite that its backend passes. (test: testkit::layers)
//! - No lock's name is a metric's label. (test: testkit::metrics::every_metric_tells_what_happened)
//! - An election's lock is released when the last [`Work`] is gone, also if the leadership was
//!   dropped before. (test: conformance::a_leader_resigns_only_when_its_work_is_done)
//! - An observer never goes back to a smaller epoch, whichever node it asked last.
//!   (test: guards::observing::an_observer_never_goes_back_to_a_smaller_epoch)
//! - An observer lists nothing. Where the engine does not report events itself
//!   ([`Backend::tells_events`]), it looks at its own lock.
//!   (test:
//!   guards::observing::an_observer_looks_at_its_own_lock_alone_where_the_engine_cannot_tell)
//! - A policy wounds only claims that have that policy, too. A claim that did not ask for it loses
//!   no lock to an older party. (test: engine::deadlocks::nobody_is_wounded_who_has_another_policy)
//! - A mark that was told is on the disk. What other clients raised may be read before it is there
//!   (InnoDB shows commits early, a process may die before its `fdatasync`). So a gate answers by
//!   reading alone only for a mark that it has itself seen there ([`gate::Confirmed`]).
//!   (test: postgres::gate::a_mark_outlives_a_crash_also_where_commits_do_not_wait_for_the_disk)
//!   (test: local::gate::what_has_to_be_brought_to_the_disk_is_not_answered_at_once)
//! - A mark that cannot be read is an error, and never a lower mark.
//!   (test: redis::gate::a_key_that_is_no_mark_lets_nobody_in)
//!   (test: mysql::gate::a_mark_that_is_none_is_an_error_and_lets_nobody_in)
//! - Every refusal goes through [`Stale`]: the same words, counted and traced. [`Fence::refused`]
//!   has both numbers; etcd and ZooKeeper, which compare the lock itself, have no second number
//!   ([`Stale::unheld`]). (test: testkit::gates::a_refusal_is_counted_once)

mod agenda;
pub mod backend;
pub mod capabilities;
mod checkup;
mod claim;
mod client;
mod clock;
mod count;
mod detached;
mod election;
mod error;
pub mod events;
pub mod far_clock;
mod fence;
pub mod floor;
pub mod gate;
mod grant;
pub mod guarantees;
mod guard;
mod hold;
pub mod inbox;
mod keep;
mod keeper;
pub mod layer;
mod leadership;
mod lease;
mod lock;
mod party;
mod pending;
pub mod queued;
pub mod recent;
mod rw_lock;
mod semaphore;
mod set;
mod settle;
mod stake;
mod state;
mod states;
#[cfg(feature = "tls")]
pub mod tls;
mod told;
pub mod turn;
pub mod url;
pub mod wait;
mod wait_over;

pub use backend::{
    Attempt, Backend, BoxFuture, BoxStream, Contention, Extension, LossCause, Note, Release, Revocation,
    RevokeMode,
};
pub use capabilities::Capabilities;
pub use checkup::{Checkup, Finding, Severity};
pub use claim::{Claim, Details, WaitStatus};
pub use client::Locks;
pub use clock::{BootClock, Clock};
pub use election::{Election, Leader};
pub use error::{Error, ErrorKind, Result};
pub use fence::{Fence, Mark, Stale};
pub use gate::{Gate, MemoryGate};
pub use grant::{Deadline, Grant};
pub use guarantees::{Fault, Guarantee, Guarantees};
pub use guard::Guard;
pub use hold::GuardState;
pub use keeper::Keeper;
pub use leadership::{Leadership, Work};
pub use lease::Lease;
pub use lock::{DEFAULT_TTL, LockRequest};
pub use party::PartyHandle;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use set::{Guards, SetRequest};
pub use stake::Stake;
pub use state::{Event, Happening, Holder, LockState, Waiter};
pub use states::States;
pub use tollgate_types::{
    Age, Conflict, InvalidName, InvalidToken, LockName, Mode, Moment, OnDeadlock, OwnerId, Party, PartyId,
    Token, parse_duration,
};
