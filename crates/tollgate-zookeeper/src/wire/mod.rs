//! ZooKeeper's protocol: what goes over a connection, and a session that goes on over several.
//!
//! - `jute.rs`: numbers and texts as bytes. `ops.rs`: requests and answers. `fault.rs`: what went wrong.
//! - `carrier.rs`: plain and encrypted connections. `dial.rs`: how one is found, and the handshake.
//! - `link.rs`: the requests of one connection, with `watches.rs`. `client.rs`: one session over one connection after the other.
//!
//! What was asked over a connection is answered over it, or fails with it: no request and no watch is ever taken along to the next.

mod carrier;
mod client;
mod dial;
mod fault;
mod jute;
mod link;
mod ops;
#[cfg(test)]
mod tests;
mod watches;

pub(crate) use client::{Client, SILENT, Status};
pub(crate) use dial::{Dialer, Refusal};
pub(crate) use fault::{Code, Fault};
pub(crate) use jute::{Garbled, Reader};
pub(crate) use link::Link;
pub(crate) use ops::{Acl, Flags, Permission, Request, Stat, Step, answer};
pub(crate) use watches::{Event, Watch};
