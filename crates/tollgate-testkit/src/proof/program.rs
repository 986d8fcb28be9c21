//! The program around the proof: a few pairs of engine and resource in CI, all of them in a soak.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use super::judged::holders_that_lose_their_locks_lose_no_update;
use super::stopped::{self, a_stopped_holder_is_refused, a_stopped_holder_keeps_others_out};
use super::{Cast, Engine};
use crate::scale::is_soak;

/// Most of the time is spent waiting for a ttl to end.
const AT_A_TIME: usize = 4;

/// The entry point of a proof (`harness = false`). The same program, started again, is the holder that gets stopped.
pub fn main(cast: Cast) -> ! {
    stopped::run_if_asked(&cast);
    let cast = Arc::new(cast);
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let mut trials = Vec::new();
    for (engine, resource) in pairs(&cast, &cast.expiring, cast.pairs) {
        trials.push(trial(
            &cast,
            "a_stopped_holder_is_refused",
            engine,
            resource,
            async |cast, engine, resource| {
                a_stopped_holder_is_refused(cast, engine, cast.resource(resource)).await;
            },
        ));
    }
    for (engine, resource) in pairs(&cast, &cast.lasting, cast.lasting_pairs) {
        let name = "a_stopped_holder_keeps_others_out";
        trials.push(trial(&cast, name, engine, resource, async |cast, engine, resource| {
            a_stopped_holder_keeps_others_out(cast, engine, cast.resource(resource)).await;
        }));
    }
    for (engine, resource) in cast.judged {
        let name = "holders_that_lose_their_locks_lose_no_update";
        trials.push(trial(&cast, name, cast.engine(engine), resource, async |cast, engine, resource| {
            let judged =
                holders_that_lose_their_locks_lose_no_update(cast, engine, cast.resource(resource)).await;
            println!("{resource}, locks on {}: {judged}", engine.name);
        }));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    cast.resources.iter().for_each(|resource| resource.finish());
    conclusion.exit()
}

/// Those that are chosen, or in a soak all that can be.
fn pairs(
    cast: &Cast,
    engines: &[Engine],
    chosen: &'static [(&'static str, &'static str)],
) -> Vec<(Engine, &'static str)> {
    if !is_soak() {
        return chosen.iter().map(|(engine, resource)| (cast.engine(engine), *resource)).collect();
    }
    let mut all = Vec::new();
    for resource in &cast.resources {
        if let Some(only) = resource.only_by() {
            println!("{} compares the lock itself: only locks on {only} can fence it", resource.name());
        }
        let fits = |engine: &&Engine| resource.only_by().is_none_or(|only| only == engine.name);
        all.extend(engines.iter().filter(fits).map(|engine| (*engine, resource.name())));
    }
    all
}

fn trial(
    cast: &Arc<Cast>,
    name: &str,
    engine: Engine,
    resource: &'static str,
    run: impl AsyncFn(&Cast, Engine, &'static str) + Send + 'static,
) -> Trial {
    let cast = cast.clone();
    Trial::test(format!("{name}::{}::{resource}", engine.name), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(Failed::from)?;
        let limited = async { tokio::time::timeout(limit(), run(&cast, engine, resource)).await };
        runtime.block_on(limited).map_err(|_| Failed::from("it hangs"))
    })
}

/// How long a case may take before it counts as hanging.
fn limit() -> Duration {
    if is_soak() { Duration::from_secs(2 * 3600) } else { Duration::from_secs(300) }
}
