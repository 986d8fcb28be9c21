//! Locks on Redis: the `redis://` backend.
//!
//! ```text
//! <prefix><name>             the lock itself: a string with a ttl, which other clients respect
//! {<prefix><name>}:fence     the last token: a sorted set with one member
//! {<prefix><name>}:queue     who waits, in order
//! {<prefix><name>}:waiters   what is known of them
//! {<prefix><name>}:holders   shared and permit holders
//! {<prefix><name>}:ends      when each of them ends
//! ```
//!
//! A lock that nobody wants is taken by plain commands in one packet (`acquire.rs`); every other change is one script
//! (`scripts/`), so one round trip and one atomic step. `scripts/common.lua` has the layout and the rule. A release hands
//! the lock straight to the next waiter that is alive and tells it over its client's channel. That message is a hint:
//! whoever asks again, and waiters do, is answered the same.
//!
//! Read `links.rs` for connections (one for each runtime, because a driver on a blocked executor renews nothing),
//! `acquire.rs` for how a lock is taken, and `backend.rs` for what each call means. `redlock/`
//! is a backend of its own. `fence/` is for data in Redis that must refuse stale tokens; it knows nothing of locks.
//! `doctor/` looks at servers and says what to change.

mod acquire;
mod backend;
mod batch;
mod capabilities;
mod cluster;
mod config;
mod doctor;
mod endpoint;
mod error;
mod fence;
mod keys;
mod link;
mod links;
mod pulse;
mod redlock;
mod refusal;
mod reply;
mod scan;
mod script;
mod sentinel;
mod server_clock;
mod site;
mod stream;
mod wire;

pub use backend::RedisBackend;
pub use config::{Login, RedisConfig, Servers};
pub use doctor::{examine, examine_redlock};
pub use fence::{FencedCall, FencedScript, RedisFence, RedisGate};
#[doc(hidden)]
pub use redlock::redlock_hash_of;
pub use redlock::{Initialized, RedlockBackend, RedlockConfig, init as redlock_init};
#[doc(hidden)]
pub use script::hash_of;
