//! The lock table as a pure, deterministic state machine: [`Engine::apply`] takes a [`Command`] and
//! the time, and returns [`Effects`].
//!
//! The engine never reads a clock, never waits, never draws a random number and does no I/O. Its
//! caller passes the time with every command, sends a [`Command::Tick`] when
//! [`Engine::next_expiry`] comes, and carries the [`Event`]s to the owners they name.
//!
//! # Files
//!
//! | file | what happens there |
//! | --- | --- |
//! | `command`, `effect`, `view` | what goes in, what comes out, what can be looked at |
//! | `engine` | one function per command |
//! | `grant` | **which claim is granted, when, with which token** |
//! | `seniority` | which claim may wait for which by age: wait-die, wound-wait |
//! | `cycle` | which parties wait for each other in a circle, and which of them gives up |
//! | `expire` | what is lost because its time is over |
//! | `table` | locks and the claims queueing at them, found by name and by owner |
//! | `arena`, `index`, `schedule`, `party` | the containers those stand on |
//! | `check` | what must always be true of all of them |
//!
//! # Deadlocks
//!
//! The engine decides everything when a claim joins a queue: `seniority.rs` compares ages,
//! `cycle.rs` looks for circles. A party is stuck if none of its waiting claims could be granted
//! even though every party that is not stuck had left. A circle is looked for only among stuck
//! parties, because a permit needs only one of many holders to leave.
//!
//! # Invariants
//!
//! `module::name` is a test in `tests/integration`, `conformance::…` a case of the suite in
//! `crates/tollgate-testkit`.
//!
//! - The same commands at the same times have the same effects.
//!   (test: model::the_same_commands_at_the_same_times_have_the_same_effects)
//! - The engine grants exactly what `Mode::joins` allows, in the order of the queue.
//!   (test: model::the_engine_does_what_the_model_does)
//! - A policy wounds only claims that have that policy, too: a claim without it loses no lock to an
//!   older party. (test: deadlocks::nobody_is_wounded_who_has_another_policy)
//! - With `Detect` there is no victim without a circle. A party that waits with several claims is
//!   stuck only if all of them are; when one of them ends, the party is looked at again.
//!   (test: conformance::who_waits_in_no_circle_is_no_victim)
//!   (test: deadlocks::one_who_waits_with_two_claims_is_stuck_when_the_last_way_out_is_gone)
//!
//! # Example
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
//! // The first lease is not renewed: when it ends, the second claim is granted.
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
mod stored;
mod table;
mod view;

pub use command::{Claim, Command};
pub use effect::{Answer, Effects, Event, Granted};
pub use engine::{Engine, Stats};
pub use stored::{Misfit, StoredGrant};
pub use view::{HolderView, LockView, Terms, WaiterView};
