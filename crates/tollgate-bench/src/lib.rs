//! Workloads that compare locks in one run: Tollgate's, a plain file lock, and whatever else is a [`Contender`].
//!
//! Figures from two runs, or two machines, say nothing about each other: contenders take turns, round by
//! round, and what is reported is the median of the rounds. Read `contest.rs` for how a run goes, and one of
//! `own_names.rs`, `one_name.rs`, `crowd.rs` and `footprint.rs` for what each workload does.

mod contender;
mod contest;
mod crowd;
mod drain;
mod entry;
mod footprint;
mod machine;
mod meter;
mod one_name;
mod ours;
mod own_names;
mod plain;
mod report;
mod stopwatch;
mod table;
mod workload;

pub use contender::{Client, Contender, Failure, Held, Waiting};
pub use contest::Contest;
pub use entry::Entry;
pub use machine::Machine;
pub use meter::{Meter, Traffic, Wire};
pub use ours::Ours;
pub use plain::PlainFile;
pub use report::{Fairness, Line, Measured, Report};
pub use workload::Workload;
