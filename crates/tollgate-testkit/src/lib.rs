//! The tests that every backend must pass, and what they need.
//!
//! - [`conformance`]: the suite. Its cases are selected by capabilities, and each prints a line. A
//!   missing capability shows up as a difference from the tables in
//!   `crates/tollgate-testkit/expected` ([`expected`]). Real processes are killed and stopped. It
//!   runs on every backend, on every layer, and on two [`fakes`] over TCP: one engine with sessions
//!   and one without a queue, the shapes that `memory:` and `file:` do not have.
//! - [`proxy`] is the chaos proxy on the wire between a client and its engine. It cuts, delays,
//!   drops, holds and repeats, by number or by what a request says, and counts. A backend that is
//!   reached over a network must run with it (`Subject::through`): without it the cases on late and
//!   repeated requests fail (test: fakes::tests::a_backend_on_a_network_cannot_dodge_the_proxy).
//! - [`engines`]: real engines on free ports in temporary folders, which are killed, stopped,
//!   emptied and put on another clock.
//! - [`history`]: compares what clients saw with the fenced mutex.
//! - [`proof`]: a register that counts, once behind a fence and once without, on every resource
//!   that can be fenced. A holder process is stopped after it read and past its ttl, another one
//!   writes, the first goes on; and eight holders lose their locks at random. Every holder does the
//!   same to both registers: the fenced one refuses stale tokens and loses no update, the other
//!   must lose some in the same run. Fences with a flaw are found
//!   (test: proof::a_fence_that_checks_and_then_writes_is_found_out).
//! - [`mutants`]: every promise has a backend that breaks it and a case that catches it;
//!   `cargo xtask test` prints the table.
//! - [`foreign`]: clients of other projects take the same key in processes of their own, judged by
//!   a number in a file to which each adds one; without the lock the same crowd must lose counts.
//!   On Redis they are redis-py, node-redlock and rslock, on etcd `etcdctl lock` and the v3lock
//!   service, on ZooKeeper Curator and kazoo (`tests/interop` of those crates; Redis has helpers of
//!   its own there).
//! - [`fault`] makes a backend's engine unreliable. [`blocked`] drives a backend from threads.
//!   [`helper`] is the process that is killed. [`crowd`]: many tasks on one lock. [`storm`]: many
//!   tasks on fifty locks while servers die. [`sat_on`]: a user's transaction that keeps a lock's
//!   row. [`gates`]: what every store of marks must do. [`small_disk`]: a full disk under a server.
//!   [`subject`], [`clients`], [`clock`], [`scale`]: what the others use.
//!
//! The core is tested in `tests/guards` on engines that misbehave: silent, refusing, late,
//! panicking.
//!
//! # Invariants
//!
//! - No engine outlives the test program, however that ends. The kernel kills an engine with it,
//!   and a guardian process kills what still works in the engine's folder.
//!   (test: engines::ends::a_test_program_killed_with_9_leaves_no_engine_behind)
//! - Every promise P1 to P9 has a mutant, and its case fails on it and passes without it.
//!   (test: mutants)

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

pub mod blocked;
pub mod clients;
pub mod clock;
pub mod conformance;
pub mod crowd;
pub mod engines;
pub mod expected;
pub mod fakes;
pub mod fault;
pub mod foreign;
pub mod gates;
pub mod helper;
pub mod history;
pub mod mutants;
mod process;
pub mod proof;
pub mod proxy;
pub mod sat_on;
pub mod scale;
pub mod small_disk;
pub mod storm;
pub mod subject;
mod sys;

pub use subject::{Chaos, Subject, World};
