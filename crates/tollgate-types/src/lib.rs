//! The words every part of Tollgate speaks.
//!
//! Values only: nothing here waits, reads a clock or touches a file. That is why they live on a floor of
//! their own: the engine may not depend on anything that waits, and the core, which does wait, speaks of
//! the same names, modes and tokens.

mod deadlock;
mod duration;
mod mode;
mod moment;
mod name;
mod owner;
mod party;
mod token;

pub use deadlock::{Conflict, OnDeadlock, Waits};
pub use duration::parse_duration;
pub use mode::Mode;
pub use moment::Moment;
pub use name::{InvalidName, LockName};
pub use owner::{InvalidOwnerId, OwnerId};
pub use party::{Age, Party, PartyId};
pub use token::{InvalidToken, Token};
