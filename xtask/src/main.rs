//! `cargo xtask`: what the project does to itself. CI runs `check` and `test`, and nothing else.

mod bench;
mod cargo;
mod check;
mod clients;
mod dependencies;
mod examples;
mod model;
mod needs;
mod programs;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  check           formatting, lints, documentation, doctests, the dependency rule, the longest files
  test [PART…]    installs what tests need, builds, and runs every part (or those named)
  soak [PART…]    the same in large numbers, in a release build
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
