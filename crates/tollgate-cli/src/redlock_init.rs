//! `tollgate redlock-init`: an operator says that the nodes of Redlock are new.

use clap::Args;
use serde_json::json;
use tollgate::{Initialized, Result};

use crate::exit::Exit;
use crate::tell;

/// Start to use new Redises as the nodes of a redlock:// URL.
///
/// A node that is new looks like one that was restarted and has forgotten the locks it gave. So, to be safe, new nodes
/// give no lock before every lock has ended that they could have forgotten: after max_ttl, 5 minutes unless the URL says
/// otherwise. This command tells them that there is nothing to wait for. It is needed once, before the first lock, and
/// all nodes must be running.
///
/// Nodes that are in use already are left as they are. If only some of them are, nothing is changed and the exit code is
/// 78: the others were restarted or emptied, and come back by themselves.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RedlockInitArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// The nodes, as every client will name them; with ?max_ttl= if clients have one.
    #[arg(value_name = "URL", env = "TOLLGATE_URL", hide_env_values = true)]
    url: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate redlock-init redlock://red:6379,green:6379,blue:6379
  tollgate redlock-init --json redlock://red:6379,green:6379,blue:6379";

pub(crate) async fn run(args: RedlockInitArgs) -> Result<Exit> {
    let (state, sentence) = match tollgate::redlock_init(&args.url).await? {
        Initialized::Now => ("initialized", "The nodes are ready: locks can be taken."),
        Initialized::Already => ("already", "The nodes were ready before; nothing was changed."),
    };
    tell::answer(&if args.json { json!({ "state": state }).to_string() } else { sentence.to_owned() })?;
    Ok(Exit::OK)
}
