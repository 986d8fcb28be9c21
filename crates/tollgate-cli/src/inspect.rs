//! `tollgate inspect`: one lock, its holders and its queue.

use clap::Args;
use tollgate::Result;

use crate::connect::with_locks;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::{show, tell};

/// Show the holders and the waiters of a lock.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate inspect nightly-report\n  tollgate inspect nightly-report --json"
)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print JSON; null if the lock has no holder and no waiter.
    #[arg(long)]
    json: bool,

    /// The name of the lock.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) async fn run(args: InspectArgs) -> Result<Exit> {
    let state = with_locks(&args.url.resolve()?, async |locks| locks.inspect(&args.name).await).await?;
    if args.json {
        tell::answer(&format!("{}\n", serde_json::to_string_pretty(&state).unwrap_or_default()))?;
        return Ok(Exit::OK);
    }
    let Some(state) = state else {
        tell::answer(&format!("{}: free\n", args.name))?;
        return Ok(Exit::OK);
    };
    let holders = state.holders.iter().map(|holder| format!("  held by {}\n", show::holder(holder)));
    let waiters = state
        .waiters
        .iter()
        .zip(1..)
        .map(|(waiter, position)| format!("  waiter {position}: {}\n", show::waiter(waiter)));
    tell::answer(&format!("{}\n{}", state.name, holders.chain(waiters).collect::<String>()))?;
    Ok(Exit::OK)
}
