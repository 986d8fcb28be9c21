//! The `tollgate` command.

mod args;
mod clock;
mod connect;
mod duration;
mod exit;
mod guardian;
mod inspect;
mod ls;
mod run;
mod show;
mod sys;
mod tell;
mod terminal;

use args::{Cli, Command};
use clap::Parser;
use exit::Exit;

fn main() -> std::process::ExitCode {
    // The guardian is this binary too, started by `run`; it must not start a runtime.
    if let Some(exit) = guardian::run_if_asked() {
        return exit.into();
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        // Help and version are not errors; clap knows where each belongs.
        let code = if error.use_stderr() { Exit::USAGE } else { Exit::OK };
        let _ = error.print();
        std::process::exit(code.code().into())
    });
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tell::error(&format!("cannot start: {error}"));
            return Exit::UNEXPECTED.into();
        }
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(args).await,
            Command::Ls(args) => ls::run(args).await,
            Command::Inspect(args) => inspect::run(args).await,
        }
    });
    outcome.unwrap_or_else(|error| exit::report(&error)).into()
}
