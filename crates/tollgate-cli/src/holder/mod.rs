//! The holder process: it keeps a lock after the command that took it has ended, on engines where a
//! lock ends with its process.
//!
//! ```text
//! tollgate acquire ── takes the lock, starts the holder, waits for it, prints the grant, ends
//! holder           ── shares the lock's descriptor, and holds it until the ttl ends, or a release
//! tollgate release ── finds its socket in the grant, sends the owner id, waits for its end
//! ```
//!
//! Every process that has the descriptor open holds the lock, so it is never free in between: if
//! either of the two processes is killed, at any moment, the other one goes on or the kernel frees
//! the lock. A holder that was not told to start ends with the process that started it; one that
//! was told ends by its deadline.

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
