//! Runs the checker, and tells how far it came.

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::steps::Step;
use crate::world::Redlock;

/// What stops a check that does not come to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) time: Duration,
    /// Steps taken; what the checker keeps in memory grows with them.
    pub(crate) steps: usize,
}

/// How far a check came.
#[derive(Debug)]
pub(crate) struct Verdict {
    worlds: usize,
    depth: usize,
    took: Duration,
    exhaustive: bool,
    /// Promises that do not hold, with the steps that show it.
    pub(crate) broken: Vec<(&'static str, Vec<Step>)>,
    /// What should have happened somewhere, and did not.
    missing: Vec<&'static str>,
}

impl Verdict {
    /// A promise is broken, or something cannot happen that should. What was not looked at may still be.
    pub(crate) fn is_bad(&self) -> bool {
        !self.broken.is_empty() || self.exhaustive && !self.missing.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = if self.exhaustive { "exhaustive" } else { "not exhaustive" };
        let (worlds, depth, seconds) = (self.worlds, self.depth, self.took.as_secs_f64());
        write!(f, "{extent}: {worlds} states, depth {depth}, in {seconds:.1} s")?;
        for (promise, steps) in &self.broken {
            write!(f, "\n  broken: {promise}")?;
            steps.iter().try_for_each(|step| write!(f, "\n    {step:?}"))?;
        }
        let missing = if self.exhaustive { &self.missing[..] } else { &[] };
        missing.iter().try_for_each(|event| write!(f, "\n  never happened: {event}"))
    }
}

/// Looks at every world that can be reached, or at as many as the budget allows.
pub(crate) fn check<const CLIENTS: usize>(model: Redlock<CLIENTS>, budget: Option<Budget>) -> Verdict {
    let mut checker = model.checker().threads(threads()).finish_when(HasDiscoveries::AnyFailures);
    if let Some(Budget { time, steps }) = budget {
        checker = checker.timeout(time).target_state_count(steps);
    }
    let started = Instant::now();
    let checker = checker.spawn_bfs().join();
    let took = started.elapsed();
    let within = |budget: Budget| took < budget.time && checker.state_count() < budget.steps;
    let mut found = checker.discoveries();
    let mut broken = Vec::new();
    let mut missing = Vec::new();
    for property in model.properties() {
        match (property.expectation, found.remove(property.name)) {
            (Expectation::Sometimes, None) => missing.push(property.name),
            (Expectation::Always, Some(path)) => broken.push((property.name, path.into_actions())),
            _ => {}
        }
    }
    let exhaustive = budget.is_none_or(within) && broken.is_empty();
    Verdict {
        worlds: checker.unique_state_count(),
        depth: checker.max_depth(),
        took,
        exhaustive,
        broken,
        missing,
    }
}

/// As many as there are cores.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
