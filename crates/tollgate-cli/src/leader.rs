//! `tollgate leader`: the leader of an election, once or on every change.

use std::ops::ControlFlow;
use std::pin::pin;

use clap::Args;
use tollgate::{Details, Leader, Result};

use crate::connect::{connect_or_end, with_locks};
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::follow::{Of, follow};
use crate::signals::Signals;
use crate::{show, tell};

/// Show the leader of an election and the value that it published.
///
/// With --watch, print a line for the current leader, for each later leader and for each new value,
/// until interrupted. Epochs never decrease; a change that is over before the next read of the lock
/// may be skipped.
///
/// Exit code 0 if there is a leader, 1 if there is none.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LeaderArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print JSON; null if there is no leader. With --watch, one JSON object per line.
    #[arg(long)]
    json: bool,

    /// Keep running, and print every change.
    #[arg(long)]
    watch: bool,

    /// The name of the election.
    #[arg(value_name = "NAME")]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate leader scheduler || echo 'no leader'
  tollgate leader scheduler --json || true
  timeout --preserve-status 1 tollgate leader scheduler --watch";

pub(crate) async fn run(args: LeaderArgs) -> Result<Exit> {
    if args.watch {
        return watch(args).await;
    }
    let leader =
        with_locks(&args.url.resolve()?, async |locks| locks.election(&args.name).leader().await).await?;
    let text = match &leader {
        _ if args.json => serde_json::to_string_pretty(&leader).unwrap_or_default(),
        Some(leader) => line(leader),
        None => format!("{}: no leader", show::printable(&args.name)),
    };
    tell::answer(&format!("{text}\n"))?;
    Ok(if leader.is_some() { Exit::OK } else { Exit::NO_LEADER })
}

async fn watch(args: LeaderArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let locks = match connect_or_end(&args.url.resolve()?, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let election = locks.election(&args.name);
    let mut leaders = pin!(election.observe());
    let shown = |leader: &Leader| match args.json {
        true => serde_json::to_string(leader).unwrap_or_default(),
        false => line(leader),
    };
    follow(Of::One, &mut leaders, shown, &mut signals).await.map_err(|error| error.during("leader"))
}

fn line(leader: &Leader) -> String {
    let value = match leader.value.as_str() {
        "" => "-".to_owned(),
        value => show::printable(value),
    };
    let Details { host, pid, .. } = &leader.details;
    format!("{value}  epoch {}  pid {pid} on {}", leader.epoch, show::printable(host))
}
