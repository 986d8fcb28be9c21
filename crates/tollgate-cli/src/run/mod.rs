//! `tollgate run`: take the lock, run the command under a guardian, and let go when everything is gone.

mod child;
mod environment;
mod signals;
mod supervise;

use std::time::Duration;

use tollgate::{Error, Guards, Locks, Result, SetRequest};

use crate::args::{OnLost, RunArgs};
use crate::connect::connect;
use crate::exit::Exit;
use crate::{show, tell};
use signals::Signals;
use supervise::{Ended, How};

pub(crate) async fn run(args: RunArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let locks = connect(&args.url.url).await?;
    let guards = match take(&locks, &args, &mut signals).await? {
        Taken::Held(guards) => guards,
        Taken::Busy => return Ok(busy(&locks, &args).await),
        Taken::Signalled(signal) => {
            close(&locks).await;
            return Ok(Exit::of_signal(signal));
        }
    };
    let ended = supervise::supervise(&args, &guards, &mut signals).await;
    // Nothing of the command is left, whatever became of it.
    let lost = guards.check().is_err();
    let release = guards.release().await;
    if let Err(error) = &release {
        tell::note(&format!("{error}; the engine frees it when the ttl is over"));
    }
    let already_lost = matches!(release, Ok(tollgate::Release::AlreadyLost));
    close(&locks).await;
    let ended = ended?;
    if ended.in_foreground && matches!(ended.how, How::Killed(libc::SIGINT)) {
        // A script that runs us expects to be interrupted by Ctrl-C too.
        crate::sys::interrupt_job();
    }
    Ok(exit(&args, &ended, lost || already_lost))
}

/// Finishes what is under way in the background, but does not wait for ever for an engine that is gone.
async fn close(locks: &Locks) {
    const PATIENCE: Duration = Duration::from_secs(5);
    let _ = tokio::time::timeout(PATIENCE, locks.close()).await;
}

/// What trying to take the locks came to.
enum Taken {
    Held(Guards),
    Busy,
    Signalled(i32),
}

async fn take(locks: &Locks, args: &RunArgs, signals: &mut Signals) -> Result<Taken> {
    let request = request(locks, args)?;
    let waits_for_ever = !args.try_once && args.wait.is_none();
    let taking = async {
        if waits_for_ever { request.acquire().await.map(Some) } else { request.try_acquire().await }
    };
    tokio::pin!(taking);
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            guards = &mut taking => return Ok(guards?.map_or(Taken::Busy, Taken::Held)),
            signal = signals.next() => return Ok(Taken::Signalled(signal)),
            () = tokio::time::sleep(Duration::from_secs(1)), if !told => {
                told = true;
                tell::note_on_terminal(&format!("waiting for {}", in_the_way(locks, args).await));
            }
        }
    }
}

fn request(locks: &Locks, args: &RunArgs) -> Result<SetRequest> {
    let mut request =
        locks.lock_all(&args.names).ttl(args.ttl).meta("command", environment::summary(&args.command));
    if args.shared {
        request = request.shared();
    }
    if let Some(permits) = args.permits {
        request = request.permit(permits);
    }
    if let Some(wait) = args.wait {
        request = request.wait(wait);
    }
    if args.max_hold == Some(Duration::ZERO) {
        return Err(Error::invalid("--max-hold 0s would end the command at once"));
    }
    Ok(request)
}

/// Which lock is held by whom, as far as can be seen.
async fn in_the_way(locks: &Locks, args: &RunArgs) -> String {
    for name in &args.names {
        if let Ok(state) = locks.inspect(name).await
            && let Some(holders) = show::holders(state.as_ref())
        {
            return format!("{name:?}, {holders}");
        }
    }
    format!("{:?}", args.names.join(", "))
}

async fn busy(locks: &Locks, args: &RunArgs) -> Exit {
    tell::note(&format!("busy: {}", in_the_way(locks, args).await));
    args.conflict_exit_code.map_or(Exit::BUSY, Exit::of_command)
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
