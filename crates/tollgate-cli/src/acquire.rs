//! `tollgate acquire`: take a lock and exit, so that a script holds it.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use tollgate::capabilities::Adopt;
use tollgate::{Deadline, Error, ErrorKind, Grant, Guards, Locks, Result};

use crate::args::ClaimArgs;
use crate::clock::now;
use crate::connect::connect_or_end;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::holder::{Heir, Mission};
use crate::patience::Patience;
use crate::signals::Signals;
use crate::take::{Taken, Wanted, close, take};
use crate::tell;

/// Take a lock for a script, and print the grant that extends and releases the lock.
///
/// The lock is held until tollgate release, or until its --ttl ends: only tollgate extend renews
/// it. The grant is one line of JSON. Every program that has the grant can release the lock, so
/// treat the grant like a password; its "token" is the fencing token. If the work of the script
/// fits into one command, tollgate run is safer: it ends the command when the lock is lost.
///
/// On file: a small process stays behind and holds the lock until then. A tollgate run around the
/// script waits for that process, as for every process that its command starts; a systemd unit ends
/// it with the script, unless the unit has KillMode=process.
///
/// Refused on ZooKeeper, and with ?style=advisory and ?style=session: a lock ends there with the
/// process that took it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    url: UrlArg,

    /// How long the lock is held unless it is extended or released.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::args::ttl)]
    ttl: Duration,

    #[command(flatten)]
    claim: ClaimArgs,

    /// Attach a key and a value that tollgate ls and tollgate inspect show; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    meta: Vec<(String, String)>,

    /// The name of the lock.
    #[arg(value_name = "NAME")]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  G=$(tollgate acquire x) && echo work && printf %s \"$G\" | tollgate release
  tollgate acquire --try x | tollgate extend --ttl 5m | tollgate release
  tollgate acquire --shared --wait 10s --meta job=nightly x | tollgate release";

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} has no value; write {text}=VALUE"))?;
    if key.is_empty() {
        return Err(format!("{text:?} has no key; write KEY=VALUE"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

pub(crate) async fn run(args: AcquireArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let url = args.url.resolve()?;
    let locks = match connect_or_end(&url, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let names = [args.name];
    let engine_keeps = locks.capabilities().adopt != Adopt::Never;
    let wanted =
        Wanted { names: &names, ttl: args.ttl, claim: &args.claim, meta: args.meta, detached: engine_keeps };
    let guards = match take(&locks, &wanted, &mut Patience::none(), &mut signals).await? {
        Taken::Held(guards) => guards,
        Taken::Not(exit) => return Ok(exit),
    };
    let outcome = if engine_keeps {
        leave_to_engine(&locks, guards, &mut signals).await
    } else {
        let mission = Mission { url: &url, until: now() + args.ttl, listens: true };
        leave_to_holder(&mission, guards, &mut signals).await
    };
    close(&locks).await;
    outcome
}

/// Leaves the lock to the engine, which ends it when its lease expires.
async fn leave_to_engine(locks: &Locks, guards: Guards, signals: &mut Signals) -> Result<Exit> {
    for grant in detach(guards)? {
        let handed_over = hand_over(&grant, signals).await;
        if !matches!(handed_over, Ok(Exit::OK)) {
            // No client has the grant. If the release does not reach the engine, the ttl ends it.
            let _ = locks.release_grant(&grant).await;
            return handed_over;
        }
    }
    Ok(Exit::OK)
}

fn detach(guards: Guards) -> Result<Vec<Grant>> {
    guards.into_iter().map(tollgate::Guard::into_grant).collect()
}

/// Leaves the lock to a holder process.
async fn leave_to_holder(mission: &Mission<'_>, guards: Guards, signals: &mut Signals) -> Result<Exit> {
    let started = tokio::select! {
        biased;
        heir = Heir::start(mission, &guards) => heir.map(Ok),
        signal = signals.next() => Ok(Err(Exit::of_signal(signal))),
    };
    let mut heir = match started {
        Ok(Ok(heir)) => heir,
        not_started => {
            // If the release fails, the kernel frees the lock when this process ends.
            let _ = guards.release().await;
            return not_started.map(|signalled| signalled.err().unwrap_or(Exit::OK));
        }
    };
    for grant in heir.inherit(guards)? {
        let handed_over = hand_over(&grant, signals).await;
        if !matches!(handed_over, Ok(Exit::OK)) {
            // No client has the grant.
            heir.recall().await;
            return handed_over;
        }
    }
    Ok(Exit::OK)
}

/// Prints a grant, and checks that it is still valid afterwards. On any result but `OK` the caller
/// gives the lock back.
async fn hand_over(grant: &Grant, signals: &mut Signals) -> Result<Exit> {
    tokio::select! {
        biased;
        () = is_over(grant) => {}
        signal = signals.next() => return Ok(Exit::of_signal(signal)),
        printed = print(grant) => printed?,
    }
    // This process may have been stopped at any moment.
    if has_ended(grant) { Err(over(grant)) } else { Ok(Exit::OK) }
}

async fn is_over(grant: &Grant) {
    /// Timers do not count while the machine is suspended, so the clock is read.
    const TICK: Duration = Duration::from_secs(1);
    while !has_ended(grant) {
        let left = match grant.deadline {
            Deadline::At(until) => until.since(now()),
            _ => TICK,
        };
        tokio::time::sleep(left.min(TICK)).await;
    }
}

fn has_ended(grant: &Grant) -> bool {
    matches!(grant.deadline, Deadline::At(until) if now() >= until)
}

fn over(grant: &Grant) -> Error {
    Error::new(
        ErrorKind::Lost,
        "the grant expired before it could be printed; take the lock with a longer --ttl",
    )
    .during("print the grant")
    .on(&grant.name)
}

/// Prints a grant as one line of JSON.
pub(crate) async fn print(grant: &Grant) -> Result<()> {
    let line = serde_json::to_string(grant).map_err(|error| {
        Error::new(ErrorKind::Unexpected, "the grant cannot be written as JSON").caused_by(error)
    })?;
    tell::deliver(format!("{line}\n")).await.map_err(|error| error.during("print the grant").on(&grant.name))
}

#[cfg(test)]
mod tests {
    use tollgate::Release;

    use super::*;

    #[tokio::test]
    async fn an_engine_that_keeps_grants_needs_no_holder() {
        let locks = tollgate::connect("memory:acquire").await.unwrap();
        let claim = ClaimArgs { try_once: true, ..ClaimArgs::default() };
        let (ttl, meta) = (Duration::from_secs(60), vec![("job".to_owned(), "x".to_owned())]);
        let wanted = Wanted { names: &["x".to_owned()], ttl, claim: &claim, meta, detached: true };
        let mut signals = Signals::listen().unwrap();
        let Taken::Held(guards) = take(&locks, &wanted, &mut Patience::none(), &mut signals).await.unwrap()
        else {
            panic!("it is free")
        };
        let grant = detach(guards).unwrap().remove(0);
        assert!(grant.standalone && grant.handle.is_none());
        let text = serde_json::to_string(&grant).unwrap();
        let grant: Grant = serde_json::from_str(&text).unwrap();
        let longer = locks.extend_grant(&grant, ttl * 2).await.unwrap();
        assert_eq!(locks.release_grant(&longer).await.unwrap(), Release::Released);
        assert_eq!(locks.release_grant(&grant).await.unwrap(), Release::AlreadyLost);
        assert_eq!(locks.extend_grant(&grant, ttl).await.unwrap_err().kind(), ErrorKind::Lost);
    }

    #[test]
    fn meta_has_a_key_and_a_value() {
        assert_eq!(key_and_value("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(key_and_value("a").unwrap_err().contains("a=VALUE"));
        assert!(key_and_value("=b").is_err());
    }
}
