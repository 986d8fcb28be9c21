//! Small engines of the two shapes that `memory:` and `file:` do not have, so that the contract has met
//! them before the real ones are built.
//!
//! [`session`] is shaped like etcd and ZooKeeper: claims live as long as a session that many locks share.
//! [`polling`] is shaped like a plain `SET NX PX` server: a lease, and no queue. Both are real servers on a
//! loopback port that other processes reach; they live as long as the process that started them and keep
//! nothing beyond it.

mod ended;
pub mod polling;
#[cfg(test)]
mod regressions;
pub mod session;
#[cfg(test)]
mod tests;
mod wire;

use crate::proxy::{Deed, Lines, Proxy};
use crate::subject::Chaos;

/// A troubled way to the fake at `address`.
pub fn through(address: &str) -> Chaos {
    let upstream = address.parse().expect("a fake's address is an address");
    let proxy = Proxy::start(upstream, Lines);
    let address = proxy.address().to_string();
    Chaos { proxy, address, is: wire::asks_for, repeat: Deed::RepeatElsewhere }
}
