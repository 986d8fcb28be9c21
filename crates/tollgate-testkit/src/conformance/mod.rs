//! The suite every backend must pass. Cases are selected by what the backend declares, and a backend that
//! declares less than the expected-capabilities table says fails.

mod adopting;
mod cancelling;
mod clocks;
mod dining;
mod electing;
mod events;
mod executors;
mod expiring;
mod limiting;
mod looking;
mod losing;
mod modes;
mod names;
mod ordering;
mod prelude;
mod processes;
mod releasing;
mod renewing;
mod revoking;
mod sets;
mod tokens;
mod unknown;
mod wires;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use libtest_mimic::{Arguments, Failed, Trial};
use tollgate_core::Capabilities;

use crate::expected;
use crate::helper;
use crate::scale::{is_soak, raise_file_limit};
use crate::subject::{Subject, World};

/// One thing a backend must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name: the promise it holds a backend to.
    pub name: &'static str,
    /// Whether it says anything about a backend with these capabilities.
    pub applies: fn(&Capabilities) -> bool,
    /// Panics if the promise is broken.
    pub run: fn(World) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// A case from an async function, for every backend or those with the capabilities after `if`.
macro_rules! case {
    ($function:ident) => {
        $crate::conformance::case!($function if |_| true)
    };
    ($function:ident if $applies:expr) => {
        $crate::conformance::Case {
            name: stringify!($function),
            applies: $applies,
            run: |world| Box::pin($function(world)),
        }
    };
}
pub(crate) use case;

/// How long a case may take before it counts as hanging.
fn case_limit() -> Duration {
    if is_soak() { Duration::from_secs(3600) } else { Duration::from_secs(90) }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        adopting::CASES,
        cancelling::CASES,
        clocks::CASES,
        dining::CASES,
        electing::CASES,
        events::CASES,
        executors::CASES,
        expiring::CASES,
        limiting::CASES,
        looking::CASES,
        losing::CASES,
        modes::CASES,
        names::CASES,
        ordering::CASES,
        processes::CASES,
        releasing::CASES,
        renewing::CASES,
        revoking::CASES,
        sets::CASES,
        tokens::CASES,
        unknown::CASES,
        wires::CASES,
    ]
    .concat()
}

/// The case called `name`.
pub fn named(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case is called {name}"))
}

/// How many cases are tried at a time, unless the command line says otherwise.
const AT_A_TIME: usize = 4;

/// Runs one case to its verdict: `Err` with what it panicked with, or that it hung.
pub fn run(case: Case, subject: Arc<dyn Subject>, limit: Duration) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let verdict = runtime.block_on(async {
        let body = async { (case.run)(World::new(subject).await).await };
        tokio::time::timeout(limit, AssertUnwindSafe(body).catch_unwind()).await
    });
    // A case that hangs may have left work on the runtime that never ends.
    runtime.shutdown_background();
    match verdict {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => Err(said(panic.as_ref())),
        Err(_) => Err(format!("it hung for {limit:?}")),
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

/// The `main` of a backend's suite (`harness = false`): runs every case that applies on every subject and
/// prints a line for each. The same binary, started again by a case, is the helper that gets killed.
pub fn main(subjects: Vec<Arc<dyn Subject>>) -> ! {
    if let Some(code) = helper::run_if_asked(&subjects) {
        std::process::exit(code);
    }
    raise_file_limit();
    let mut arguments = Arguments::from_args();
    // Most cases wait for something to end, so that two cores do more than two at a time.
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let several = subjects.len() > 1;
    let mut trials = Vec::new();
    for subject in &subjects {
        let prefix = if several { format!("{}::", subject.name()) } else { String::new() };
        let capabilities = declared(subject);
        let checked = subject.clone();
        let declares = capabilities.clone();
        trials.push(Trial::test(format!("{prefix}it_declares_what_the_table_expects"), move || {
            expected::check(checked.name(), &declares).map_err(Failed::from)
        }));
        for case in cases() {
            let exempt = subject.exempt(case.name);
            if let Some(why) = exempt {
                println!("{prefix}{} is not applicable: {why}", case.name);
            }
            let subject = subject.clone();
            let trial = Trial::test(format!("{prefix}{}", case.name), move || {
                run(case, subject, case_limit()).map_err(Failed::from)
            });
            // What is not applicable is printed as ignored, never as passed.
            trials.push(trial.with_ignored_flag(exempt.is_some() || !(case.applies)(&capabilities)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for subject in &subjects {
        subject.finish();
    }
    conclusion.exit()
}

fn declared(subject: &Arc<dyn Subject>) -> Capabilities {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(World::new(subject.clone())).capabilities().clone()
}
