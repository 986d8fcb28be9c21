//! The lock server: grants, leases and tokens for clients in every language. Not usable yet: it has its table, and no
//! network.
//!
//! [`table`] is the durable engine with its clients: which connection waits for which claim, for how long a claim keeps its
//! place when its client is gone, and which answers wait for the disk. It does no I/O and reads no clock, so it is tested, and
//! will be simulated, without either. [`Service`] drives it: it has the clock, the timer and the thread that writes to the
//! disk, and runs on one thread. [`http`] turns calls of the HTTP API into its requests, without a socket.

mod clock;
pub mod http;
mod service;
pub mod table;

pub use clock::EngineClock;
pub use service::{Running, Service, Stopped};
