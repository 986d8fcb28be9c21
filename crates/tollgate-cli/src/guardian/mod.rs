//! The guardian: a small process between `tollgate run` and the command, which ends the command
//! when the lock is gone, also if `tollgate run` was killed or stopped.
//!
//! It knows nothing of locks: it receives deadlines over a socket. It ends the command by the
//! deadline, and at once when the socket closes, as it does when `tollgate run` dies. On `file:` it
//! has also inherited the lock itself, and so holds it until every process that the command started
//! is gone.

mod channel;
pub(crate) mod descendants;
mod sentence;
mod watch;

pub(crate) use channel::{ARG0, ENV, News, Order};
pub(crate) use sentence::{Terms, Why};
pub(crate) use watch::run_if_asked;
