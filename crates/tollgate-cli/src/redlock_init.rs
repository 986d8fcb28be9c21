//! `tollgate redlock-init`: an operator declares that the nodes of Redlock are new.

use clap::Args;
use serde_json::json;
use tollgate::{Initialized, Result};

use crate::engine_url::EngineArg;
use crate::exit::Exit;
use crate::tell;

/// Declare new Redis servers to be the nodes of a redlock:// URL, so that they grant locks at once.
///
/// A new node looks like a node that was restarted and has forgotten the locks it granted. So, to
/// be safe, new nodes grant no lock until every lock has ended that they could have forgotten: for
/// max_ttl, which is 5 minutes unless the URL says otherwise. This command tells the nodes that
/// there is nothing to wait for. It is needed once, before the first lock, and all nodes must be
/// running.
///
/// Name the nodes as every client will, with ?max_ttl= if the clients have one.
///
/// Nodes that are already in use are left as they are. If only some of them are, nothing is changed
/// and the exit code is 78: the others were restarted or emptied, and return to use by themselves.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RedlockInitArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArg,
}

const EXAMPLES: &str = "\
Examples:
  tollgate redlock-init redlock://red:6379,green:6379,blue:6379
  tollgate redlock-init --json redlock://red:6379,green:6379,blue:6379";

pub(crate) async fn run(args: RedlockInitArgs) -> Result<Exit> {
    let url = args.engine.required("tollgate redlock-init redlock://red:6379,green:6379,blue:6379")?;
    let (state, sentence) = match tollgate::redlock_init(&url).await? {
        Initialized::Now => ("initialized", "The nodes are ready: they grant locks now."),
        Initialized::Already => ("already", "The nodes were already in use; nothing was changed."),
    };
    tell::answer(&if args.json { json!({ "state": state }).to_string() } else { sentence.to_owned() })?;
    Ok(Exit::OK)
}
