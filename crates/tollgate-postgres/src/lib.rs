//! Locks on PostgreSQL.

mod fence;
mod names;
mod user_error;

pub use fence::{NO_TOKEN, PostgresFence, STALE};
