//! The guardian: a small process between `tollgate run` and the command, which ends the command when the
//! lock is gone, whatever has become of `tollgate run`.
//!
//! It knows nothing of locks: it is told deadlines over a socket. It ends the command by the deadline, and at
//! once when the socket closes, which is what the death of `tollgate run` looks like. On `file:` it has also
//! inherited the lock itself, and so holds it until everything the command started is gone.

mod channel;
pub(crate) mod descendants;
mod sentence;
mod watch;

pub(crate) use channel::{ARG0, ENV, News, Order};
pub(crate) use sentence::{Terms, Why};
pub(crate) use watch::run_if_asked;
