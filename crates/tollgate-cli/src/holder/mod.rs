//! The holder: a small process that keeps a lock after the command that took it has ended, where locks live and
//! die with a process.
//!
//! ```text
//! tollgate acquire ── takes the lock, starts the holder, waits for "started", prints the grant, ends
//! holder           ── shares the lock's descriptor, and holds it until its time is over, or a release
//! tollgate release ── finds the holder's socket in the grant, shows the owner id, waits until it is gone
//! ```
//!
//! The lock is held by whoever has the descriptor open, so it is never free in between: whichever of the two is
//! killed at whatever moment, either the other one goes on or the kernel frees the lock. A holder that was not
//! told to start ends with the process that started it; one that was ends by its deadline.

mod ask;
mod channel;
mod rendezvous;
mod serve;
mod start;
mod survey;

pub(crate) use ask::{extend, release};
pub(crate) use rendezvous::path_in;
pub(crate) use serve::run_if_asked;
pub(crate) use start::{Heir, Mission};
pub(crate) use survey::survey;
