//! `cargo xtask`: what the project does to itself. CI runs `check` and `test`, and nothing else.

mod bench;
mod cargo;
mod check;
mod dependencies;
mod examples;
mod needs;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  check           formatting, lints, documentation, doctests, the dependency rule, the longest files
  test [PART…]    installs what tests need, builds, and runs every part (or those named)
  soak [PART…]    the same in large numbers, in a release build
  bench           the engine alone: time per operation, growth with locks and waiters, bytes per lock";

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
