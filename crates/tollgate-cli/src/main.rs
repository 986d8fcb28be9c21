//! The `tollgate` command.

mod acquire;
mod args;
mod bench;
mod break_lock;
mod clock;
mod completions;
mod connect;
mod doctor;
mod elect;
mod exit;
mod extend;
mod fence_proxy;
mod follow;
mod grant_arg;
mod guardian;
mod holder;
mod inspect;
mod keeping;
mod leader;
mod log;
mod ls;
mod man;
mod metrics;
mod redlock_init;
mod release;
mod run;
mod show;
mod signals;
mod sql_schema;
mod sys;
mod take;
mod tell;
mod terminal;
mod ttl;
mod watch;

use args::Command;
use exit::Exit;

fn main() -> std::process::ExitCode {
    // The guardian and the holder are this binary, too; the guardian must not start a runtime.
    if let Some(exit) = guardian::run_if_asked().or_else(holder::run_if_asked) {
        return exit.into();
    }
    sys::forget_if_empty(args::URL);
    let cli = args::parse(std::env::args_os().collect()).unwrap_or_else(|error| {
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
            Command::Acquire(args) => acquire::run(args).await,
            Command::Extend(args) => extend::run(args).await,
            Command::Release(args) => release::run(args).await,
            Command::Ls(args) => ls::run(args).await,
            Command::Inspect(args) => inspect::run(args).await,
            Command::Watch(args) => watch::run(args).await,
            Command::Break(args) => break_lock::run(args).await,
            Command::Elect(args) => elect::run(args).await,
            Command::Leader(args) => leader::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Bench(args) => bench::run(args).await,
            Command::Ttl(args) => ttl::run(&args),
            Command::RedlockInit(args) => redlock_init::run(args).await,
            Command::FenceProxy(args) => fence_proxy::run(args).await,
            Command::SqlSchema(args) => sql_schema::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    });
    let exit = outcome.unwrap_or_else(|error| exit::report(&error));
    // To drop it would wait for a thread that writes into a full pipe.
    runtime.shutdown_background();
    exit.into()
}
