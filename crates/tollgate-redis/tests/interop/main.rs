//! Beside clients that nobody here wrote, on the same key: redis-py's `Lock`, node-redlock and rslock.
#![allow(clippy::unwrap_used)]

mod cases;
mod crowd;
mod fencing;
mod ground;
mod majority;
mod serve;
#[path = "../support/mod.rs"]
mod support;
mod worker;

use libtest_mimic::{Arguments, Trial};

use cases::Street;
use worker::Kind;

const FOREIGN: [Kind; 3] = [Kind::RedisPy, Kind::NodeRedlock, Kind::Rslock];

/// A case for every foreign client, named after it.
macro_rules! for_each_client {
    ($($case:ident),* $(,)?) => {
        FOREIGN.iter().flat_map(|kind| [$(trial(*kind, stringify!($case), cases::$case)),*]).collect::<Vec<_>>()
    };
}

fn main() {
    serve::if_asked();
    let mut trials = for_each_client![
        ours_is_busy_while_it_holds_and_waits_for_its_release,
        what_it_let_run_out_is_ours_and_it_cannot_touch_that,
        it_is_refused_while_ours_holds_and_gets_it_after_the_release,
        what_ours_let_run_out_is_its_and_ours_cannot_touch_that,
        neither_a_line_of_ours_nor_it_is_left_out,
        holders_that_share_keep_it_out_until_the_last_has_left,
    ];
    trials.push(trial(
        Kind::RedisPy,
        "ours_waits_for_a_lock_that_never_runs_out",
        cases::ours_waits_for_a_lock_that_never_runs_out,
    ));
    trials.push(alone(
        "a_stale_token_is_refused_by_the_example",
        fencing::a_stale_token_is_refused_by_the_example,
    ));
    trials.push(alone("the_scripts_are_those_that_run", fencing::the_scripts_are_those_that_run));
    trials.push(alone("the_scripts_admit_read_and_write", fencing::the_scripts_admit_read_and_write));
    trials.push(alone(
        "the_example_and_tollgate_fence_one_resource",
        fencing::the_example_and_tollgate_fence_one_resource,
    ));
    trials.push(alone("one_at_a_time_passes_whoever_it_is", crowd::one_at_a_time_passes_whoever_it_is));
    trials.push(alone(
        "without_the_lock_they_meet_and_lose_counts",
        crowd::without_the_lock_they_meet_and_lose_counts,
    ));
    for kind in [Kind::NodeRedlock, Kind::Rslock] {
        trials.push(redlock(
            kind,
            "majorities_keep_each_other_out",
            majority::majorities_keep_each_other_out,
        ));
    }
    trials.push(alone(
        "one_at_a_time_has_a_majority_whoever_it_is",
        majority::one_at_a_time_has_a_majority_whoever_it_is,
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial<F>(kind: Kind, name: &'static str, case: fn(Street) -> F) -> Trial
where
    F: Future<Output = ()> + 'static,
{
    Trial::test(format!("{}::{name}", kind.name()), move || {
        block_on(async { case(Street::new(kind, name).await).await });
        Ok(())
    })
}

fn redlock<F>(kind: Kind, name: &'static str, case: fn(Kind) -> F) -> Trial
where
    F: Future<Output = ()> + 'static,
{
    Trial::test(format!("{}::{name}", kind.name()), move || {
        block_on(case(kind));
        Ok(())
    })
}

/// A case waits for its foreigner on its own thread, while ours go on.
pub(crate) fn block_on<T>(case: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(case)
}

fn alone(name: &str, case: fn()) -> Trial {
    Trial::test(format!("all::{name}"), move || {
        case();
        Ok(())
    })
}
