//! `tollgate break`: an operator takes a lock away from its holder.

use std::io::{BufRead, IsTerminal};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tollgate::capabilities::Revoke;
use tollgate::{Error, ErrorKind, Holder, LockState, Locks, Result, Revocation, Token};

use crate::connect::with_locks;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::{show, tell};

/// Take a lock away from its holder.
///
/// For locks whose holder hangs. Shows the holders, asks for confirmation, and breaks the lock of
/// each holder, or only of the holder with --token.
///
/// A holder is asked to leave: `tollgate run` ends its command then. The lock is not renewed any
/// more, and is granted to the next waiter only when the holder has left or its ttl has ended. This
/// command waits for that, and shows it. With --force the lock is granted to the next waiter at
/// once, although the old holder may still be working: its later writes are refused only where
/// tokens are checked.
///
/// On file: and with ?style=advisory or ?style=session no ttl ends a lock. If the holder does not
/// leave within 10 s (on file: 2 s), because it hangs or was suspended, the result is "pending",
/// and names the process to end. When that process is gone the lock is free at once. On file: a
/// lock cannot be taken away by force. A client that is not tollgate (etcdctl, Curator) cannot be
/// asked to leave: end it, or use --force.
///
/// Exit code 0 when the lock is broken or was free; 75 when the holder has not left, the lock is
/// held with another token, a waiter is about to be granted the lock, or you answered no.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Break only the lock of the holder with this token.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    token: Option<u64>,

    /// Take the lock away at once, although the old holder may still be working beside the next
    /// one.
    #[arg(long)]
    force: bool,

    /// Do not ask for confirmation. Needed where stdin is no terminal.
    #[arg(long)]
    yes: bool,

    /// Print one JSON array: each holder and the outcome.
    #[arg(long)]
    json: bool,

    /// The name of the lock.
    #[arg(value_name = "NAME")]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate break --yes nightly-report
  G=$(tollgate acquire x) && tollgate break --yes x
  tollgate break --yes --force nightly-report
  tollgate break --yes --token 42 accounts/7 --json";

/// Poll interval while a holder is asked to leave.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How much longer than its ttl a holder is waited for.
const SLACK: Duration = Duration::from_secs(2);

/// How long a holder is waited for if no ttl ends its lock. `tollgate run` gives its command 5 s.
const TO_LEAVE: Duration = Duration::from_secs(10);

/// The outcome for one holder.
#[derive(Debug, Serialize)]
struct Broken {
    outcome: Outcome,
    holder: Holder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Revoked,
    Pending,
    NotHeld,
}

pub(crate) async fn run(args: BreakArgs) -> Result<Exit> {
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(Error::invalid(
            "stdin is not a terminal, so break cannot ask for confirmation; pass --yes to break the lock without it",
        ));
    }
    with_locks(&args.url.resolve()?, async |locks| take_away(&args, locks).await).await
}

async fn take_away(args: &BreakArgs, locks: &Locks) -> Result<Exit> {
    let Some(state) = locks.inspect(&args.name).await? else {
        print(args, &[], true)?;
        return Ok(Exit::OK);
    };
    let chosen = |holder: &Holder| args.token.is_none() || holder.token.map(Token::get) == args.token;
    let (holders, others): (Vec<_>, Vec<_>) = state.holders.iter().cloned().partition(chosen);
    if holders.is_empty() {
        return not_broken(args, &state, &others);
    }
    if !args.yes && !is_confirmed(&args.name, &holders)? {
        tell::note("the lock was not broken");
        return Ok(Exit::BUSY);
    }
    // All holders are asked before any is waited for: they leave at the same time.
    let mut broken = Vec::new();
    for holder in holders {
        broken.push(Broken { outcome: revoke(locks, args, &holder).await?, holder });
    }
    until_left(locks, args, &mut broken).await?;
    if args.force && broken.iter().any(|broken| broken.outcome == Outcome::Revoked) {
        tell::note(&format!(
            "{}: the old command runs beside the next holder until its holder hears of it, at the latest at its next renewal; its writes are refused only where tokens are checked",
            show::printable(&args.name)
        ));
    }
    print(args, &broken, can_force(locks))?;
    let pending = broken.iter().any(|broken| broken.outcome == Outcome::Pending);
    Ok(if pending { Exit::BUSY } else { Exit::OK })
}

/// Reports why no lock is broken although the lock is in use.
fn not_broken(args: &BreakArgs, state: &LockState, others: &[Holder]) -> Result<Exit> {
    let name = show::printable(&args.name);
    let held = args.token.zip(show::holders(others));
    let held = held.map(|(token, held)| format!("not held with token {token}, but {held}"));
    let Some(why) = held.or_else(|| show::first_waiter(state)) else {
        print(args, &[], true)?;
        return Ok(Exit::OK);
    };
    if args.json {
        print(args, &[], true)?;
    }
    tell::note(&format!("{name}: {why}"));
    Ok(Exit::BUSY)
}

fn is_confirmed(name: &str, holders: &[Holder]) -> Result<bool> {
    let lines: String =
        holders.iter().map(|holder| format!("  held by {}\n", show::holder(holder))).collect();
    tell::ask(&format!("{}\n{lines}Break this lock? [y/N] ", show::printable(name)));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Error::new(ErrorKind::Unavailable, "the answer cannot be read").caused_by(error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

async fn revoke(locks: &Locks, args: &BreakArgs, holder: &Holder) -> Result<Outcome> {
    let Some(token) = holder.token else {
        return Err(Error::unsupported(
            "the holder is a client that is not tollgate and has no token; end that client, or use its own tools",
        ));
    };
    let revoked = if args.force {
        locks.revoke_by_force(&args.name, token).await?
    } else {
        locks.revoke(&args.name, token).await?
    };
    Ok(match revoked {
        Revocation::Revoked => Outcome::Revoked,
        Revocation::NotHeld => Outcome::NotHeld,
        Revocation::Pending => Outcome::Pending,
    })
}

/// Whether a lock can be taken from a holder that does not leave. Where it cannot, the engine has
/// already waited for the holder.
fn can_force(locks: &Locks) -> bool {
    locks.capabilities().revoke != Revoke::Cooperative
}

/// Waits until the holders that were asked to leave have left or their ttl has ended; where no ttl
/// ends a lock, for [`TO_LEAVE`].
async fn until_left(locks: &Locks, args: &BreakArgs, broken: &mut [Broken]) -> Result<()> {
    if broken.iter().all(|broken| broken.outcome != Outcome::Pending) {
        return Ok(());
    }
    // The ttl counts from now: a renewal may have come between the inspection and the revocation.
    // If the engine does not answer, the wait goes on: the holders have been asked.
    if let Ok(state) = locks.inspect(&args.name).await {
        refresh(&state, broken);
    }
    let name = show::printable(&args.name);
    let can_force = can_force(locks);
    let mut until = Instant::now();
    for Broken { holder, .. } in broken.iter().filter(|broken| broken.outcome == Outcome::Pending) {
        let (latest, patience) = match holder.expires_in {
            // Allows for clocks that differ, and for the engine's own delay.
            Some(left) => (format!(", in {} at the latest", show::short(left)), left + left / 20 + SLACK),
            None if can_force => (String::new(), TO_LEAVE),
            None => continue,
        };
        let who = show::who(&holder.details);
        tell::note(&format!("{name}: {who} was asked to leave; the lock is free when it has left{latest}"));
        until = until.max(Instant::now() + patience);
    }
    let is_awaited = |Broken { outcome, holder }: &Broken| {
        *outcome == Outcome::Pending && (can_force || holder.expires_in.is_some())
    };
    while broken.iter().any(is_awaited) && Instant::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        // A failed inspection says nothing about the holders.
        if let Ok(state) = locks.inspect(&args.name).await {
            refresh(&state, broken);
        }
    }
    Ok(())
}

/// Updates the outcomes of the holders that were asked to leave.
fn refresh(state: &Option<LockState>, broken: &mut [Broken]) {
    for Broken { outcome, holder } in broken.iter_mut().filter(|broken| broken.outcome == Outcome::Pending) {
        let now = state.iter().flat_map(|state| &state.holders).find(|now| now.token == holder.token);
        match now {
            Some(now) => holder.expires_in = now.expires_in,
            None => *outcome = Outcome::Revoked,
        }
    }
}

fn print(args: &BreakArgs, broken: &[Broken], can_force: bool) -> Result<()> {
    if args.json {
        return tell::answer(&format!("{}\n", serde_json::to_string_pretty(broken).unwrap_or_default()));
    }
    let name = show::printable(&args.name);
    if broken.is_empty() {
        return tell::answer(&format!("{name}: not held\n"));
    }
    let lines = broken.iter().map(|Broken { outcome, holder }| {
        let who = show::who(&holder.details);
        match outcome {
            Outcome::Revoked => format!("{name}: revoked, {who}\n"),
            Outcome::NotHeld => format!("{name}: not held any more, {who}\n"),
            Outcome::Pending if holder.expires_in.is_some() => format!(
                "{name}: pending; {who} was asked to leave, and still holds the lock: its command belongs to another user and cannot \
                 be ended, it ignores the loss of its lock, or it is no tollgate client. End it, or take the lock away with --force\n"
            ),
            Outcome::Pending => format!(
                "{name}: pending; {who} was asked to leave and has not left: end process {} on {} to free the lock{}\n",
                holder.details.pid,
                show::printable(&holder.details.host),
                if can_force { ", or take it away with --force" } else { "" }
            ),
        }
    });
    tell::answer(&lines.collect::<String>())
}
