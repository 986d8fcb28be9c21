//! The `tollgate` command, one file per sub-command.
//!
//! # `tollgate run`
//!
//! ```text
//! tollgate run ──socket── guardian ── command ── all processes it starts
//! ```
//!
//! `run` holds the lock and tells the guardian (the same binary, started again: `guardian`) each
//! new deadline. The guardian asks the command to end at the deadline less min(ttl/4, 5 s), or when
//! a quarter of the time that this deadline left is left, and kills it by the deadline. When the
//! socket closes, because `run` is gone, it kills everything at once. `run` and the guardian are
//! both subreapers, so that no descendant escapes, whatever session it made for itself. If the
//! guardian dies, the command dies with it (`PR_SET_PDEATHSIG`) and `run` ends the rest. On `file:`
//! guardian and command inherit the lock's descriptor, so that the lock is held as long as any of
//! them lives.
//!
//! # `tollgate acquire` and `run --at-least`
//!
//! ```text
//! tollgate acquire ── holder ──socket── tollgate extend, release
//! ```
//!
//! Where grants can be adopted, the engine keeps a script's lock. Where locks live and die with a
//! process (`file:`), a holder process (the same binary again: `holder`) keeps it until a release
//! or its deadline. It shares the lock's open file with the process that starts it, so the lock is
//! never free in between. The holder process answers "ready" and "started"; only then does the
//! other process forget the lock and print the grant. The path of its socket is the grant's
//! `handle`. `run --at-least` leaves a lock to a holder process, too, or to its lease
//! (`keeping.rs`).
//!
//! # Invariants
//!
//! `file::…` is a test in `tests/integration`, `file::tests::…` a test beside the code.
//!
//! - The lock is released only after everything that the command started is gone.
//!   (test: supervision::the_lock_is_held_until_the_last_descendant_is_gone)
//! - A command whose lock ends is gone by the deadline.
//!   (test: supervision::a_command_that_ignores_sigterm_is_killed_in_time)
//! - The guardian knows nothing of locks, and has one thread. (no test)
//! - The command finds no URL in its environment unless `--pass-url` is given (`run/child.rs`).
//!   Where a command finds its engine is decided in one place, `engine_url.rs`.
//!   (test: habits::a_command_does_not_find_the_url_unless_it_is_passed)
//! - A holder process that was not told to start leaves the lock alone; a holder process that was
//!   told ends by its deadline.
//!   (test: acquire::an_acquire_that_is_killed_at_any_moment_leaves_no_lock_that_nobody_ends)
//!   (test: acquire::when_the_ttl_is_over_the_lock_is_free_and_nothing_runs)
//! - A holder process has nothing open but the folder's files and its sockets, and nothing of it is
//!   left when `release` returns.
//!   (test: acquire::a_holder_keeps_nothing_of_its_surroundings_in_use)
//!   (test: acquire::a_script_takes_and_releases_a_lock_and_nothing_is_left_running)

mod acquire;
mod args;
mod bench;
mod break_lock;
mod clock;
mod completions;
mod connect;
mod doctor;
mod elect;
mod engine_url;
mod exit;
mod extend;
mod fence_proxy;
mod follow;
mod grant_arg;
mod guardian;
mod habits;
mod holder;
mod inspect;
mod keeping;
mod leader;
mod log;
mod ls;
mod man;
mod metrics;
mod passwords;
mod patience;
mod redlock_init;
mod release;
mod run;
mod serve;
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
    // The guardian and the holder process are this same binary; the guardian must not start a
    // runtime.
    if let Some(exit) = guardian::run_if_asked().or_else(holder::run_if_asked) {
        return exit.into();
    }
    let cli = args::parse(std::env::args_os().collect()).unwrap_or_else(|error| {
        // Help and version are not errors; clap prints each to its own stream.
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
            Command::Serve(args) => serve::run(args).await,
            Command::SqlSchema(args) => sql_schema::run(args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    });
    let exit = outcome.unwrap_or_else(|error| exit::report(&error));
    // Dropping the runtime would wait for a thread that writes into a full pipe.
    runtime.shutdown_background();
    exit.into()
}
