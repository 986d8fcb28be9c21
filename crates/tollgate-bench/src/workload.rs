//! What contenders are asked to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contender::{Contender, Failure};
use crate::meter::Meter;
use crate::own_names::Names;
use crate::report::Measured;
use crate::{crowd, footprint, one_name, own_names};

/// One round of a workload.
#[derive(Clone, Copy)]
pub(crate) struct Round<'a> {
    /// What all its names start with.
    pub(crate) prefix: &'a str,
    /// How long it takes.
    pub(crate) time: Duration,
    /// Who counts what passes on the wire.
    pub(crate) meter: Option<&'a dyn Meter>,
}

/// One thing to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// So many clients, each with a connection and a name of its own.
    OwnNames {
        /// How many.
        clients: usize,
    },
    /// One client that takes so many locks in turn.
    InTurn {
        /// How many.
        names: usize,
    },
    /// One client that takes every lock once.
    NewNames,
    /// So many tasks of one client, on one connection, each with a name of its own.
    OneConnection {
        /// How many.
        tasks: usize,
    },
    /// So many clients that want the same lock again and again.
    OneName {
        /// How many.
        clients: usize,
    },
    /// One lock that goes through a queue of so many tasks.
    Crowd {
        /// How many.
        waiters: usize,
    },
    /// So many locks held at once.
    Footprint {
        /// How many.
        locks: usize,
    },
}

impl Workload {
    /// Everything, in the order of the report.
    pub const ALL: &'static [Self] = &[
        // First: what others gave back to the heap would be used again, and not be seen.
        Self::Footprint { locks: 10_000 },
        Self::OwnNames { clients: 1 },
        Self::InTurn { names: 64 },
        Self::NewNames,
        Self::OwnNames { clients: 16 },
        Self::OneConnection { tasks: 64 },
        Self::OneName { clients: 16 },
        Self::Crowd { waiters: 1 },
        Self::Crowd { waiters: 10 },
        Self::Crowd { waiters: 100 },
        Self::Crowd { waiters: 1000 },
    ];

    /// The word that chooses it on a command line.
    pub fn group(self) -> &'static str {
        match self {
            Self::OwnNames { .. } | Self::InTurn { .. } | Self::NewNames => "own",
            Self::OneConnection { .. } => "shared",
            Self::OneName { .. } => "one",
            Self::Crowd { .. } => "crowd",
            Self::Footprint { .. } => "memory",
        }
    }

    /// A short name that no other workload has.
    pub(crate) fn tag(self) -> String {
        let number = match self {
            Self::OwnNames { clients: number }
            | Self::OneConnection { tasks: number }
            | Self::OneName { clients: number }
            | Self::Crowd { waiters: number }
            | Self::Footprint { locks: number } => number.to_string(),
            Self::InTurn { names } => format!("turn-{names}"),
            Self::NewNames => "new".to_owned(),
        };
        format!("{}-{number}", self.group())
    }

    /// How many of `rounds` make sense: memory grows only once.
    pub(crate) fn rounds(self, rounds: usize) -> usize {
        if matches!(self, Self::Footprint { .. }) { 1 } else { rounds }
    }

    /// How many files it may need to be open, generously.
    pub(crate) fn files(self) -> usize {
        match self {
            Self::Crowd { waiters } => waiters + 200,
            _ => 200,
        }
    }

    /// Whether its traffic says something: memory has none.
    pub(crate) fn counts(self) -> bool {
        !matches!(self, Self::Footprint { .. })
    }

    /// Whether `contender` can do it at all.
    pub(crate) fn suits(self, contender: &dyn Contender) -> bool {
        match self {
            Self::OwnNames { clients: 1 } | Self::InTurn { .. } | Self::NewNames => true,
            Self::OwnNames { .. } | Self::OneName { .. } => contender.can_wait(),
            Self::OneConnection { .. } | Self::Footprint { .. } => {
                contender.can_wait() && contender.holds_many()
            }
            Self::Crowd { waiters } => {
                contender.can_wait() && (contender.holds_many() || waiters < contender.most_connections())
            }
        }
    }

    pub(crate) async fn run(
        self,
        contender: &Arc<dyn Contender>,
        round: Round<'_>,
    ) -> Result<Measured, Failure> {
        match self {
            Self::OwnNames { clients } => own_names::run(contender, round, clients, true, Names::One).await,
            Self::OneConnection { tasks } => own_names::run(contender, round, tasks, false, Names::One).await,
            Self::InTurn { names } => own_names::run(contender, round, 1, true, Names::InTurn(names)).await,
            Self::NewNames => own_names::run(contender, round, 1, true, Names::New).await,
            Self::OneName { clients } => one_name::run(contender, round, clients).await,
            Self::Crowd { waiters } => crowd::run(contender, round, waiters).await,
            Self::Footprint { locks } => footprint::run(contender, round, locks).await,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnNames { clients: 1 } => f.write_str("own name, 1 client"),
            Self::OwnNames { clients } => write!(f, "own names, {clients} clients"),
            Self::InTurn { names } => write!(f, "{names} names in turn, 1 client"),
            Self::NewNames => f.write_str("a new name every time, 1 client"),
            Self::OneConnection { tasks } => write!(f, "own names, {tasks} tasks on one connection"),
            Self::OneName { clients } => write!(f, "one name, {clients} clients"),
            Self::Crowd { waiters: 1 } => f.write_str("one name, 1 waiter"),
            Self::Crowd { waiters } => write!(f, "one name, {waiters} waiters"),
            Self::Footprint { .. } => f.write_str("many locks held"),
        }
    }
}
