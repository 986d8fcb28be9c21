//! What Tollgate's backends are tested with.
//!
//! [`conformance`] is the suite every backend must pass, chosen by its capabilities; [`history`] checks
//! what was observed against the fenced mutex; [`fault`] makes a backend's engine unreliable, [`blocked`] drives it from threads; [`helper`] is
//! the process that gets killed; [`crowd`] wants one lock, [`foreign`] clients too, and [`storm`] fifty of them; somebody has [`sat_on`] it; [`fakes`] are small engines of the two shapes that `memory:` and `file:`
//! do not have; [`mutants`] are backends that break a promise on purpose; [`engines`] are real ones, started
//! and killed; [`gates`] is what every store of marks must do, and [`proof`] that fences keep what locks lose; [`proxy`] makes trouble on the wire to either, and a
//! [`small_disk`] on a server.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

pub mod blocked;
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
