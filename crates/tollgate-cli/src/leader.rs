//! `tollgate leader`: who leads, now or as it changes.

use std::ops::ControlFlow;
use std::pin::pin;

use clap::Args;
use tollgate::{Details, Leader, Result};

use crate::args::UrlArg;
use crate::connect::{connect_or_end, with_locks};
use crate::exit::Exit;
use crate::follow::{Of, follow};
use crate::signals::Signals;
use crate::{show, tell};

/// Show who leads, and what it proclaims.
///
/// With --watch, a line for everybody who leads from now on and for everything they proclaim, until it is interrupted.
/// Epochs never go back; what changes faster than it is looked at may be skipped.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LeaderArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print JSON; null if nobody leads. With --watch, an object per line.
    #[arg(long)]
    json: bool,

    /// Go on, and print every change.
    #[arg(long)]
    watch: bool,

    /// What is led.
    #[arg(value_name = "NAME")]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate leader scheduler
  tollgate leader scheduler --json
  timeout --preserve-status 1 tollgate leader scheduler --watch";

pub(crate) async fn run(args: LeaderArgs) -> Result<Exit> {
    if args.watch {
        return watch(args).await;
    }
    let leader = with_locks(&args.url.url, async |locks| locks.election(&args.name).leader().await).await?;
    let text = match &leader {
        _ if args.json => serde_json::to_string_pretty(&leader).unwrap_or_default(),
        Some(leader) => line(leader),
        None => format!("{}: nobody leads", show::printable(&args.name)),
    };
    tell::answer(&format!("{text}\n"))?;
    Ok(Exit::OK)
}

async fn watch(args: LeaderArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let locks = match connect_or_end(&args.url.url, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let election = locks.election(&args.name);
    let mut leaders = pin!(election.observe());
    let told = |leader: &Leader| match args.json {
        true => serde_json::to_string(leader).unwrap_or_default(),
        false => line(leader),
    };
    follow(Of::One, &mut leaders, told, &mut signals).await.map_err(|error| error.during("leader"))
}

fn line(leader: &Leader) -> String {
    let value = match leader.value.as_str() {
        "" => "-".to_owned(),
        value => show::printable(value),
    };
    let Details { host, pid, .. } = &leader.details;
    format!("{value}  epoch {}  pid {pid} on {}", leader.epoch, show::printable(host))
}
