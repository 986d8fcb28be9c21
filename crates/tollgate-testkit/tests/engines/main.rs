//! The harness for real engines, tried with every one of them.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod client;
mod clocks;
mod ends;
mod lives;
mod sql_wires;
mod wires;

use libtest_mimic::{Arguments, Failed, Trial};
use tollgate_testkit::engines::Config;

/// Every engine, in a configuration that keeps its data.
fn every() -> [(&'static str, Config); 5] {
    [
        ("redis", Config::durable_redis()),
        ("etcd", Config::etcd()),
        ("zookeeper", Config::zookeeper()),
        ("postgres", Config::postgres()),
        ("mariadb", Config::mariadb()),
    ]
}

/// A test for every engine.
fn for_every(name: &str, test: fn(&Config)) -> Vec<Trial> {
    every()
        .into_iter()
        .map(|(engine, config)| trial(format!("{engine}::{name}"), move || test(&config)))
        .collect()
}

/// A test whose panic is its verdict.
fn trial(name: impl Into<String>, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test();
        Ok::<(), Failed>(())
    })
}

fn main() {
    if ends::run_if_asked() {
        return;
    }
    let trials = [lives::trials(), ends::trials(), clocks::trials(), wires::trials(), sql_wires::trials()];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
