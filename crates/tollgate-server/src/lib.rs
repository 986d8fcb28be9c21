//! The lock server: grants, leases and tokens for clients in every language.
//!
//! ```text
//! listen ── http ──┐
//!                  ├── Service ──┬── own: table + store
//!        ── native ┘             └── over: another engine
//! ```
//!
//! - [`table`] is the durable engine with its clients: which connection waits for which claim, for
//!   how long a claim keeps its place when its client is gone, and which answers wait for the disk.
//!   It does no I/O and reads no clock, so that it is simulated without either.
//! - [`TableService`] drives the table: it has the clock, the timer and the thread that writes to the
//!   disk. It runs on one thread, and answers request values with response values ([`Service`]).
//! - [`OverService`] answers the same values from any other engine that Tollgate knows.
//! - [`http`] turns calls of the HTTP API into these values, without a socket.
//! - [`listen`] has the sockets: it accepts connections within limits, tells HTTP and native
//!   frames apart, and stops gracefully.

mod clock;
mod guarantees;
pub mod http;
pub mod listen;
pub mod native;
mod over;
mod own;
mod service;
mod show;
pub mod table;

pub use clock::EngineClock;
pub use over::OverService;
pub use own::{Running, Stopped, TableService};
pub use service::{Answering, EventStream, Looked, Service};
pub use tollgate_embedded::durable;
