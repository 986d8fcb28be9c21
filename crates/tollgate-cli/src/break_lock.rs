//! `tollgate break`: an operator takes a lock away from its holder.

use std::io::{BufRead, IsTerminal};

use clap::Args;
use serde::Serialize;
use tollgate::{Error, ErrorKind, Holder, LockState, Locks, Result, Revocation, Token};

use crate::args::UrlArg;
use crate::connect::with_locks;
use crate::exit::Exit;
use crate::{show, tell};

/// Take a lock away from whoever holds it.
///
/// For locks whose holder hangs. Shows the holders, asks, and breaks the lock of each, or only of the one with
/// --token. A holder that was broken hears of it, and its later writes are refused wherever tokens are checked;
/// what it is doing now it may still finish.
///
/// On file: a lock cannot be taken by force: the holder is asked to leave, and if it does not, because it hangs or was
/// suspended, the answer is "pending", with the process to end. When that is gone the lock is free at once.
///
/// Exit code 0 when the lock is broken or was free, 75 when the holder has not left yet, the lock is held with another
/// token, somebody is about to take it, or the answer was no.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Only the holder with this token.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    token: Option<u64>,

    /// Do not ask. Needed where there is no terminal to ask on.
    #[arg(long)]
    yes: bool,

    /// Print one JSON array: each holder and what became of it.
    #[arg(long)]
    json: bool,

    /// The lock.
    #[arg(value_name = "NAME")]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate break --yes nightly-report
  G=$(tollgate acquire x) && tollgate break --yes x
  tollgate break --yes --token 42 accounts/7 --json";

/// What became of one holder.
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
            "there is no terminal to ask on; say --yes to break the lock without asking",
        ));
    }
    with_locks(&args.url.url, async |locks| take_away(&args, locks).await).await
}

async fn take_away(args: &BreakArgs, locks: &Locks) -> Result<Exit> {
    let Some(state) = locks.inspect(&args.name).await? else {
        print(args, &[])?;
        return Ok(Exit::OK);
    };
    let chosen = |holder: &Holder| args.token.is_none() || holder.token.map(Token::get) == args.token;
    let (holders, others): (Vec<_>, Vec<_>) = state.holders.iter().cloned().partition(chosen);
    if holders.is_empty() {
        return not_broken(args, &state, &others);
    }
    if !args.yes && !is_confirmed(&args.name, &holders)? {
        tell::note("nothing was done");
        return Ok(Exit::BUSY);
    }
    let mut broken = Vec::new();
    for holder in holders {
        broken.push(Broken { outcome: revoke(locks, &args.name, holder.token).await?, holder });
    }
    print(args, &broken)?;
    let pending = broken.iter().any(|broken| broken.outcome == Outcome::Pending);
    Ok(if pending { Exit::BUSY } else { Exit::OK })
}

/// Says why there is nothing to break although the lock is in use.
fn not_broken(args: &BreakArgs, state: &LockState, others: &[Holder]) -> Result<Exit> {
    let name = show::printable(&args.name);
    let held = args.token.zip(show::holders(others));
    let held = held.map(|(token, held)| format!("not held with token {token}, but {held}"));
    let Some(why) = held.or_else(|| show::first_waiter(state)) else {
        print(args, &[])?;
        return Ok(Exit::OK);
    };
    if args.json {
        print(args, &[])?;
    }
    tell::note(&format!("{name}: {why}"));
    Ok(Exit::BUSY)
}

fn is_confirmed(name: &str, holders: &[Holder]) -> Result<bool> {
    let lines: String =
        holders.iter().map(|holder| format!("  held by {}\n", show::holder(holder))).collect();
    tell::ask(&format!("{}\n{lines}Take it away? [y/N] ", show::printable(name)));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Error::new(ErrorKind::Unavailable, "the answer cannot be read").caused_by(error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

async fn revoke(locks: &Locks, name: &str, token: Option<Token>) -> Result<Outcome> {
    let Some(token) = token else {
        return Err(Error::unsupported(
            "a client that is not tollgate holds it without a token; end that client, or use its own tools",
        ));
    };
    Ok(match locks.revoke(name, token).await? {
        Revocation::Revoked => Outcome::Revoked,
        Revocation::Pending => Outcome::Pending,
        Revocation::NotHeld => Outcome::NotHeld,
    })
}

fn print(args: &BreakArgs, broken: &[Broken]) -> Result<()> {
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
            Outcome::Pending => format!(
                "{name}: pending; {who} was asked to leave and has not: end process {} on {} to free the lock\n",
                holder.details.pid,
                show::printable(&holder.details.host)
            ),
        }
    });
    tell::answer(&lines.collect::<String>())
}
