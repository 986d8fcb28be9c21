//! `tollgate run`: take the lock, run the command under a guardian, and release the lock when all
//! processes of the command are gone.

mod args;
mod child;
mod environment;
mod supervise;

use std::ops::ControlFlow;
use std::time::Duration;

use tollgate::{Error, Guards, Release, Result};

use crate::clock::now;
use crate::connect::connect_patiently;
use crate::exit::Exit;
use crate::keeping::Keeping;
use crate::patience::Patience;
use crate::signals::Signals;
use crate::take::{Taken, Wanted, close, take};
use crate::tell;
pub(crate) use args::{OnLost, RunArgs};
use supervise::{Ended, How};

pub(crate) async fn run(args: RunArgs) -> Result<Exit> {
    run_with_meta(args, None).await
}

/// As [`run`], with one more key and value that `tollgate ls` and `inspect` show.
pub(crate) async fn run_with_meta(args: RunArgs, extra: Option<(String, String)>) -> Result<Exit> {
    check(&args)?;
    let mut signals = Signals::listen()?;
    let url = args.url.resolve()?;
    let mut patience = Patience::of(&args.claim);
    let locks = match connect_patiently(&url, &mut patience, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let keeping = args.at_least.map(|_| Keeping::of(&locks, &url)).transpose()?;
    let wanted = Wanted {
        names: &args.names,
        ttl: args.ttl,
        claim: &args.claim,
        meta: std::iter::once(("command".to_owned(), environment::summary(&args.command)))
            .chain(extra)
            .collect(),
        detached: false,
    };
    let guards = match take(&locks, &wanted, &mut patience, &mut signals).await? {
        Taken::Held(guards) => guards,
        Taken::Not(exit) => return Ok(exit),
    };
    let keep_until = now() + args.at_least.unwrap_or_default();
    let ended = supervise::supervise((&args, &url), &locks, &guards, &mut signals).await;
    // No process of the command is left, however it ended.
    let ran = ended.as_ref().is_ok_and(|ended| !matches!(ended.how, How::NotStarted(_)) && !ended.too_late);
    let lost = match keeping {
        Some(keeping) if ran && guards.check().is_ok() && now() < keep_until => {
            keeping.keep(&locks, guards, keep_until, &mut signals).await;
            false
        }
        _ => release(guards).await,
    };
    close(&locks).await;
    let ended = ended?;
    if ended.in_foreground && matches!(ended.how, How::Killed(libc::SIGINT)) {
        // A script that runs tollgate expects to be interrupted by Ctrl-C too.
        crate::sys::interrupt_job();
    }
    Ok(exit(&args, &ended, lost))
}

fn check(args: &RunArgs) -> Result<()> {
    environment::check(&args.names)?;
    if args.max_hold == Some(Duration::ZERO) {
        return Err(Error::invalid("--max-hold 0s would end the command at once"));
    }
    match (args.at_least, args.max_hold) {
        (Some(least), Some(most)) if least > most => Err(Error::invalid(
            "--at-least is longer than --max-hold; the lock cannot be kept for longer than --max-hold allows",
        )),
        _ => Ok(()),
    }
}

/// Releases the locks; returns whether one of them had been lost.
async fn release(guards: Guards) -> bool {
    let lost = guards.check().is_err();
    let released = guards.release().await;
    if let Err(error) = &released {
        tell::note(&format!(
            "{error}; the release is repeated for a while, and the engine frees the lock when its ttl ends"
        ));
    }
    let gone = matches!(released, Ok(Release::AlreadyLost));
    if gone && !lost {
        tell::note(
            "the lock was already lost when it was released: an operator broke it, or the engine forgot it",
        );
    }
    lost || gone
}

fn exit(args: &RunArgs, ended: &Ended, lost: bool) -> Exit {
    let own = match ended.how {
        How::NotStarted(exit) => return exit,
        How::Exited(code) => Exit::of_command(code),
        How::Killed(signal) => Exit::of_signal(signal),
    };
    let keeps_its_code = args.on_lost == OnLost::Ignore && own != Exit::OK;
    if !(lost || ended.too_late) || keeps_its_code { own } else { Exit::LOST }
}
