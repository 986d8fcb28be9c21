//! `?style=session`: the server's own `GET_LOCK`, each lock on a connection of its own.
//!
//! A lock is taken by one statement and given back by another, and no table is written on the way. It ends with its
//! connection. Who waits stands in the server's own queue. What people want to see of a lock is written down afterwards, if it
//! is held for long enough; and whether the server still has it is asked over another connection, from the keeper, which no
//! caller can block (`clerk.rs`).
//!
//! Read `backend.rs` for what each call means, `books.rs` for what is known here of each claim, `sql/` for the statements.

mod backend;
mod books;
mod clerk;
mod connection;
mod desk;
mod key;
mod marks;
mod view;

pub use backend::SessionBackend;
pub(crate) use backend::capabilities_of_sessions;
