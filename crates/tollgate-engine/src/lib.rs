//! The lock table as a pure, deterministic state machine: [`Engine::apply`] takes a [`Command`] and the
//! time, and gives back [`Effects`]. The same commands at the same times have the same effects.
//!
//! The engine never reads a clock, never waits, never draws a random number and does no I/O. Whoever runs
//! it tells it the time with every command, sends a [`Command::Tick`] when [`Engine::next_expiry`] comes,
//! and carries the [`Event`]s to the owners they name.
//!
//! Where to find what:
//!
//! | room | what happens there |
//! | --- | --- |
//! | `command`, `effect`, `view` | what goes in, what comes out, what can be looked at |
//! | `engine` | one function per command |
//! | `grant` | **who is granted, when, with which token** |
//! | `seniority` | who may wait for whom by age: wait-die, wound-wait |
//! | `cycle` | who waits for each other in a circle, and who of them gives up |
//! | `expire` | what is lost because its time has come |
//! | `table` | locks and the claims queueing at them, found by name and by owner |
//! | `arena`, `index`, `schedule`, `party` | the containers those stand on |
//! | `check` | what must always be true of all of them |
//!
//! ```
//! use std::time::Duration;
//! use tollgate_engine::{Answer, Claim, Command, Engine, Event};
//! use tollgate_types::{LockName, Mode, Moment, OnDeadlock, OwnerId};
//!
//! let claim = |owner| Claim {
//!     name: LockName::new("orders/42").unwrap(),
//!     mode: Mode::Exclusive,
//!     owner: OwnerId::from_bits(owner),
//!     ttl: Duration::from_secs(30),
//!     wait_lease: None,
//!     lock_delay: Duration::ZERO,
//!     party: None,
//!     on_deadlock: OnDeadlock::Timeout,
//!     details: (),
//! };
//! let mut engine = Engine::new();
//! let first = engine.apply(Command::Acquire { claim: claim(1), wait: true }, Moment::ZERO);
//! assert!(matches!(first.answer, Answer::Granted(_)));
//! let second = engine.apply(Command::Acquire { claim: claim(2), wait: true }, Moment::ZERO);
//! assert_eq!(second.answer, Answer::Queued { ahead: 1, age: None });
//!
//! // Nobody renews the first lease: when it ends, the second claim is granted.
//! let due = engine.next_expiry().unwrap();
//! let tick = engine.apply(Command::Tick, due);
//! assert!(matches!(tick.events[..], [Event::Expired { .. }, Event::Granted { .. }]));
//! ```

mod arena;
mod check;
mod command;
mod cycle;
mod effect;
mod engine;
mod expire;
mod grant;
mod index;
mod party;
mod schedule;
mod seniority;
mod table;
mod view;

pub use command::{Claim, Command};
pub use effect::{Answer, Effects, Event, Granted};
pub use engine::{Engine, Stats};
pub use view::{HolderView, LockView, WaiterView};
