//! Locks on ZooKeeper.
//!
//! A claim is an ephemeral sequential node in the lock's own folder; the order of the claims is the order of their sequence
//! numbers, and a claim's token is the transaction that created its node. In the layout of Curator's `InterProcessMutex`, of
//! its read-write lock or of kazoo, so that programs which are there already stand in the same queue.
//!
//! - `config.rs`: what a URL says. `open.rs`: how a session begins, and why it does not. `calls.rs`: every request.
//!   `error.rs`: what a failed one may have done. `wire`: ZooKeeper's protocol.
//! - `session.rs`: a session of ZooKeeper's and what proves that it lives, with `trail.rs`: until when. `sessions.rs`: who lives
//!   in which.
//! - `paths.rs`: the layouts. `names.rs`: names as paths.
//! - `acquire.rs`: taking a lock. `queue.rs`: who is before it, with `order.rs`: what decides that. `wait.rs`: the wait for it. `backend.rs`: the contract. `look.rs`: what others see.
//! - `floor.rs`: tokens after a move from another engine. `fence.rs`: writes that are applied only while a lock is held.
//! - `doctor`: what is wrong with a ZooKeeper.

mod acquire;
mod backend;
mod calls;
mod capabilities;
mod config;
mod doctor;
mod error;
mod fence;
mod floor;
mod look;
mod names;
mod open;
mod order;
mod paths;
mod queue;
mod session;
mod sessions;
mod trail;
mod wait;
mod wire;

pub use backend::ZooKeeperBackend;
pub use config::{Access, Login, Style, ZooKeeperConfig};
pub use doctor::examine;
pub use fence::{GuardedMulti, ZooKeeperFence};
