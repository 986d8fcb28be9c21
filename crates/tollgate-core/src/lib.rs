//! The core of Tollgate: the contract engines implement, and everything about locks that needs no engine.
//!
//! Read [`backend`] for the contract, `lock.rs` for how a lock is taken, `hold.rs` for what a guard
//! believes and when it stops, `agenda.rs` and `keep.rs` for renewal, and `settle.rs` for what the engine is
//! told when it is over.

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

pub use backend::{
    Attempt, Backend, BoxFuture, BoxStream, Contention, Extension, LossCause, Note, Release, Revocation,
};
pub use capabilities::Capabilities;
pub use checkup::{Checkup, Finding, Severity};
pub use claim::{Claim, Details};
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
