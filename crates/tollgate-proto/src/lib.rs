//! The messages of the lock server: what its HTTP calls take and answer, and in [`frame`] what the
//! native protocol sends.
//!
//! Values only: nothing here does I/O, waits or reads a clock. The server, the native client and
//! the dashboard share these types, so that all of them mean the same by a member's name.
//!
//! - **Requests are strict.** [`parse`] refuses an unknown member, and says which ones there are.
//!   Each request's [`check`](Request::check) holds the rules that its type cannot express.
//! - **Answers grow.** A client ignores members it does not know, and keeps an enum value that it
//!   does not know as [`Open::Other`].
//! - Durations are whole milliseconds in members called `…_ms`, instants are [`Timestamp`]s in
//!   members called `…_at`. A request's member that has its default is left out when written.
//! - An [`Owner`] is a secret: `Debug` does not print it, and no [`Problem`] repeats what a request
//!   had in it.
//!
//! `tests/golden` has every message as it travels.

mod acquire;
mod admit;
mod break_lock;
mod check;
mod deadlocks;
mod events;
mod extend;
pub mod frame;
mod info;
mod keep;
pub mod limits;
mod look;
mod loss;
mod mode;
mod open;
#[cfg(feature = "openapi")]
pub mod openapi;
mod owner;
mod problem;
mod problem_kind;
mod release;
mod request;
mod timestamp;
mod top;
mod valid;

pub use acquire::{Acquire, AcquireAll, Grant, Grants, Waiting};
pub use admit::{Admit, Admitted};
pub use break_lock::{Break, Broken};
pub use deadlocks::{Circle, Deadlocks, WaitForEdge, WaitForNode, Waits};
pub use events::{Event, EventId, EventKind, EventsQuery, InvalidEventId};
pub use extend::Extend;
pub use info::{Basis, Capabilities, Durability, Guarantee, Health, HealthStatus, Info, Limits, Queue};
pub use keep::{Keep, KeepItem, KeepState, Kept, KeptItem};
pub use look::{Holder, Lock, LockQuery, Locks, LocksQuery, Waiter, Watch};
pub use loss::LossCause;
pub use mode::ModeKind;
pub use open::Open;
pub use owner::{InvalidOwner, Owner};
pub use problem::{Problem, ProblemMembers};
pub use problem_kind::ProblemKind;
pub use release::{Release, Released, Withdraw};
pub use request::{Request, parse, parse_query};
pub use timestamp::{InvalidTimestamp, Timestamp};
pub use top::{Contended, LongestHeld, LongestWaited, Top};
pub use valid::valid;
