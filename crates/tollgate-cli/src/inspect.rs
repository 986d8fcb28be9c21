//! `tollgate inspect`: one lock, its holders and its queue.

use clap::Args;
use tollgate::Result;

use crate::args::UrlArg;
use crate::connect::with_locks;
use crate::exit::Exit;
use crate::{show, tell};

/// Show who holds a lock and who waits for it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate inspect nightly-report\n  tollgate inspect nightly-report --json"
)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print JSON; null if nobody holds the lock or waits for it.
    #[arg(long)]
    json: bool,

    /// The lock.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) async fn run(args: InspectArgs) -> Result<Exit> {
    let state = with_locks(&args.url.url, async |locks| locks.inspect(&args.name).await).await?;
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
        .map(|(waiter, place)| format!("  {place}. waits {}\n", show::waiter(waiter)));
    tell::answer(&format!("{}\n{}", state.name, holders.chain(waiters).collect::<String>()))?;
    Ok(Exit::OK)
}
