//! Locks on etcd.
//!
//! A claim is a key under the lock's name that hangs on a lease of its client; the order of the claims is the order in
//! which etcd created their keys, and a claim's token is that revision. So `etcdctl lock`, Go's `concurrency.Mutex`
//! and the v3lock service stand in the same queue.
//!
//! - `config.rs`: what a URL says. `wire.rs`: the stubs. `link.rs`, `channel.rs`, `secure.rs`: one connection. `links.rs`: the one that is
//!   used now. `calls.rs`: every call. `patience.rs`: how long it waits. `error.rs`: what a failed call may have done.
//! - `session.rs`: a lease and what keeps it alive. `sessions.rs`: who lives in which. `slots.rs`: by which number.
//! - `keys.rs`: the layout. `hub.rs`: all watches of a client, `parked.rs`: those
//!   that are kept for the next wait.
//! - `acquire.rs`: taking a lock, with the requests of `ops.rs`. `ask.rs`: asking for it until there is an answer, `copies.rs`: what comes of
//!   those that were not answered. `wait.rs`: the wait for it. `backend.rs`: the contract. `look.rs`, `list.rs`, `events.rs`: what others see.
//! - `floor.rs`: tokens after a move from another engine. `fence.rs`: writes that are applied only while a lock is held.
//! - `doctor`: what is wrong with an etcd. `restored.rs`: that it was restored from a backup.

mod acquire;
mod ask;
mod backend;
mod calls;
mod capabilities;
mod carried;
mod channel;
mod config;
mod copies;
mod doctor;
mod error;
mod events;
mod fence;
mod floor;
mod hub;
mod keys;
mod line;
mod link;
mod links;
mod list;
mod look;
mod nearest;
mod ops;
mod parked;
mod patience;
mod restored;
mod secure;
mod session;
mod sessions;
mod slots;
mod wait;
mod wire;

pub use backend::EtcdBackend;
pub use config::{EtcdConfig, Login};
pub use doctor::examine;
pub use fence::{EtcdFence, GuardedTxn, LockKey};
