//! `cargo xtask`: what the project does to itself. CI runs `check` and `test`, and nothing else.

mod again;
mod bench;
mod cargo;
mod check;
mod clients;
mod count;
mod dependencies;
mod examples;
mod model;
mod needs;
mod parts;
mod pool;
mod programs;
mod publishing;
mod report;
mod runner;
mod simulate;
mod soak;
mod stall;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  check           formatting, lints, documentation, doctests, the dependency rule, licences, packaging, file lengths
  test [PART…]    builds the tests, as root also installs what they need, and runs every part (or those named), several
                  test programs side by side; without root it leaves out the tests that only root may run, and says so
  soak [PART…]    the same in large numbers, in a release build, one program after the other
  model [-- OPTION…]
                  Redlock's protocol, checked in every order of events: what is too large for test, in a release
                  build. Says of each configuration whether it was exhaustive. Takes up to 10 minutes and 8 GB, unless
                  told otherwise: -- --minutes 60 --gigabytes 16
  bench [NAME…] [-- OPTION…]
                  how fast it is. Without names: engine (the lock table alone, by criterion, 2 minutes), file and
                  memory (all workloads of `tollgate bench`, a minute each), fence (the proxy with each store beside
                  one without a gate, a minute). redis, redis-durable, redlock,
                  redlock5, etcd, etcd3, zookeeper, zookeeper3, postgres, mariadb: beside the locks people use on
                  it today, 2 minutes each; installs the engines and builds bench-peers first, which takes the
                  network and 5 minutes more. Options are those of `tollgate bench`: -- --rounds 3 --time 500ms
  simulate [--seeds N] [--seed S] [--mutants]
                  the lock server's table, disk and clients under every fault, on seeds; a seed that breaks a promise
                  prints its trace; --mutants shows that servers with one flaw are found out
  package         packages every crate for crates.io, and builds each from its package
  bench --check   lints and tests of bench-peers, which are no part of check";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let done = match command {
        "check" => check::run(),
        "test" => test::run(rest),
        "soak" => soak::run(rest),
        "model" => model::run(rest),
        "bench" => bench::run(rest),
        "package" => publishing::verify(),
        "simulate" => simulate::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(format!("there is no {other:?}\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
