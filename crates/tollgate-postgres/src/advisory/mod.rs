//! `?style=advisory`: PostgreSQL's own advisory locks, each on a connection of its own.
//!
//! A lock is taken by one statement and given back by another, and no table is written on the way. It ends with its
//! connection, so that has to outlive what opened it (`socket.rs`) and be watched (`lost.rs`). Who waits stands in
//! PostgreSQL's own queue. What people want to see of a lock is written down afterwards, if it is held for long enough
//! (`clerk.rs`).
//!
//! Read `backend.rs` for what each call means, `books.rs` for what is known here of each claim, `sql/` for the statements.

mod backend;
mod books;
mod clerk;
mod lost;
mod session;
mod sessions;
mod socket;
mod texts;
mod view;

pub use backend::AdvisoryBackend;
pub(crate) use backend::capabilities_of_advisory;
