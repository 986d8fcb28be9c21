//! The server's own engine as a [`Service`](crate::Service): the durable table, driven on one
//! thread.

mod acquire;
mod calls;
mod deadlocks;
mod driver;
mod events;
mod info;
mod keep;
mod look;
mod service;
mod set;
mod top;
mod watch;

pub use driver::{Running, Stopped, TableService};
