//! `tollgate acquire`: take a lock and leave, so that a script holds it.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use tollgate::capabilities::Adopt;
use tollgate::{Deadline, Error, ErrorKind, Grant, Guards, Locks, Result};

use crate::args::{ClaimArgs, UrlArg};
use crate::clock::now;
use crate::connect::connect_or_end;
use crate::exit::Exit;
use crate::holder::{Heir, Mission};
use crate::signals::Signals;
use crate::take::{Taken, Wanted, close, take};
use crate::tell;

/// Take a lock for a script, and print the grant that extends and releases it.
///
/// The lock is held until tollgate release, or until --ttl is over: nobody renews it but tollgate extend. The
/// grant is one line of JSON. Whoever has it can release the lock, so treat it like a password; its "token" is the
/// fencing token. If the script's work fits into one command, tollgate run is safer: it ends the command with the
/// lock.
///
/// On file: a small process stays behind and holds the lock until then. A tollgate run around the script waits for
/// it, as for everything its command starts; a systemd unit ends it with the script, unless it has KillMode=process.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    url: UrlArg,

    /// How long the lock is held unless it is extended or released.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = tollgate::parse_duration)]
    ttl: Duration,

    #[command(flatten)]
    claim: ClaimArgs,

    /// Something for people who look at the lock; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    meta: Vec<(String, String)>,

    /// The lock.
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
    let locks = match connect_or_end(&args.url.url, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let names = [args.name];
    let engine_keeps = locks.capabilities().adopt != Adopt::Never;
    let wanted =
        Wanted { names: &names, ttl: args.ttl, claim: &args.claim, meta: args.meta, detached: engine_keeps };
    let guards = match take(&locks, &wanted, &mut signals).await? {
        Taken::Held(guards) => guards,
        Taken::Not(exit) => return Ok(exit),
    };
    let outcome = if engine_keeps {
        leave_to_engine(&locks, guards, &mut signals).await
    } else {
        let mission = Mission { url: &args.url.url, until: now() + args.ttl, listens: true };
        leave_to_holder(&mission, guards, &mut signals).await
    };
    close(&locks).await;
    outcome
}

/// The engine keeps the lock until its lease runs out.
async fn leave_to_engine(locks: &Locks, guards: Guards, signals: &mut Signals) -> Result<Exit> {
    for grant in detach(guards)? {
        let handed_over = hand_over(&grant, signals).await;
        if !matches!(handed_over, Ok(Exit::OK)) {
            // Nobody can use the grant. If the engine cannot be asked, the ttl ends it.
            let _ = locks.release_grant(&grant).await;
            return handed_over;
        }
    }
    Ok(Exit::OK)
}

fn detach(guards: Guards) -> Result<Vec<Grant>> {
    guards.into_iter().map(tollgate::Guard::into_grant).collect()
}

/// A process keeps the lock.
async fn leave_to_holder(mission: &Mission<'_>, guards: Guards, signals: &mut Signals) -> Result<Exit> {
    let started = tokio::select! {
        biased;
        heir = Heir::start(mission, &guards) => heir.map(Ok),
        signal = signals.next() => Ok(Err(Exit::of_signal(signal))),
    };
    let mut heir = match started {
        Ok(Ok(heir)) => heir,
        not_started => {
            // If it cannot be released now, it is freed with this process.
            let _ = guards.release().await;
            return not_started.map(|signalled| signalled.err().unwrap_or(Exit::OK));
        }
    };
    for grant in heir.inherit(guards)? {
        let handed_over = hand_over(&grant, signals).await;
        if !matches!(handed_over, Ok(Exit::OK)) {
            // Nobody can use the grant.
            heir.recall().await;
            return handed_over;
        }
    }
    Ok(Exit::OK)
}

/// Prints a grant that is still good when somebody has it. Anything but `OK` means that it is to be given back.
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
        "its time was over before the grant could be printed; take it with a longer --ttl",
    )
    .during("print the grant")
    .on(&grant.name)
}

/// Prints a grant in one line.
pub(crate) async fn print(grant: &Grant) -> Result<()> {
    let line = serde_json::to_string(grant)
        .map_err(|error| Error::new(ErrorKind::Unexpected, "a grant is no JSON").caused_by(error))?;
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
        let Taken::Held(guards) = take(&locks, &wanted, &mut signals).await.unwrap() else {
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
