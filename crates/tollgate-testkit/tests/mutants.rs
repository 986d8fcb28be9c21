//! Every promise has a backend that breaks it, and a case that catches that backend.

#[path = "support/memory.rs"]
mod memory;

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use memory::Memory;
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_testkit::mutants::{Broken, Flaw, MUTANTS, Mutant, TABLE};
use tollgate_testkit::{Subject, World, conformance, expected};

/// `memory:`, whole or with a flaw.
struct Flawed {
    flaw: Option<Flaw>,
    memory: Memory,
}

impl Flawed {
    fn subject(flaw: Option<Flaw>) -> Arc<dyn Subject> {
        Arc::new(Self { flaw, memory: Memory::default() })
    }
}

impl Subject for Flawed {
    fn name(&self) -> &'static str {
        self.memory.name()
    }

    fn address(&self) -> String {
        self.memory.address()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let own = self.memory.address();
            let address = if self.flaw == Some(Flaw::LetsEverybodyIn) { &own } else { address };
            let whole = self.memory.open(address, clock.clone()).await?;
            Ok(match self.flaw {
                Some(flaw) => Arc::new(Broken::new(whole, clock, flaw)),
                None => whole,
            })
        })
    }
}

/// Several times what any of these cases needs on a backend that is whole; a flaw may make one hang.
const LIMIT: Duration = Duration::from_secs(12);

/// The verdict of the mutant's case on `memory:` with or without the flaw.
fn verdict(mutant: &Mutant, flaw: Option<Flaw>) -> Result<(), String> {
    let subject = Flawed::subject(flaw);
    if mutant.caught_by == TABLE {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        return expected::check("memory", runtime.block_on(World::new(subject)).capabilities());
    }
    conformance::run(conformance::named(mutant.caught_by), subject, LIMIT)
}

fn check(mutant: &'static Mutant) -> Result<(), Failed> {
    verdict(mutant, None)
        .map_err(|failed| format!("{} fails without the flaw: {failed}", mutant.caught_by))?;
    match verdict(mutant, Some(mutant.flaw)) {
        Err(_) => {
            println!("mutant | {} | {:?} | {}", mutant.promise, mutant.flaw, mutant.caught_by);
            Ok(())
        }
        Ok(()) => Err(format!("{} does not catch {:?}", mutant.caught_by, mutant.flaw).into()),
    }
}

fn main() {
    // The cases panic here because they should.
    std::panic::set_hook(Box::new(|_| {}));
    let mut trials: Vec<_> = MUTANTS
        .iter()
        .map(|mutant| {
            Trial::test(format!("{} catches {:?}", mutant.caught_by, mutant.flaw), move || check(mutant))
        })
        .collect();
    trials.push(Trial::test("every promise has a mutant", || {
        let has = |promise: &str| MUTANTS.iter().any(|mutant| mutant.promise.starts_with(promise));
        match (1..=9).map(|n| format!("P{n} ")).find(|promise| !has(promise)) {
            Some(promise) => Err(format!("{promise}has none").into()),
            None => Ok(()),
        }
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
