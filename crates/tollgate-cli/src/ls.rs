//! `tollgate ls`: what is held and waited for.

use clap::Args;
use futures_util::StreamExt;
use tollgate::Result;

use crate::args::UrlArg;
use crate::connect::with_locks;
use crate::exit::{Exit, report};
use crate::{show, tell};

/// List the locks that are held or waited for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tollgate ls\n  tollgate ls accounts/ --json")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// Only names that start with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

pub(crate) async fn run(args: LsArgs) -> Result<Exit> {
    let listed = with_locks(&args.url.url, async |locks| {
        let (mut found, mut exit, mut list) = (Vec::new(), Exit::OK, locks.list(&args.prefix));
        while let Some(lock) = list.next().await {
            match lock {
                Ok(lock) => found.push(lock),
                // One lock that cannot be read hides no other.
                Err(error) => exit = report(&error),
            }
        }
        Ok((found, exit))
    });
    let (mut found, exit) = listed.await?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if args.json {
        tell::answer(&format!("{}\n", serde_json::to_string_pretty(&found).unwrap_or_default()))?;
        return Ok(exit);
    }
    if found.is_empty() {
        tell::note_on_terminal("no lock is held or waited for");
        return Ok(exit);
    }
    let mut rows = vec![["NAME", "HELD BY", "TOKEN", "SINCE", "WAITING"].map(str::to_owned).to_vec()];
    for lock in &found {
        let waiting = lock.waiters.len().to_string();
        if lock.holders.is_empty() {
            rows.push(vec![lock.name.to_string(), "nobody".into(), "-".into(), "-".into(), waiting.clone()]);
        }
        for holder in &lock.holders {
            rows.push(vec![
                lock.name.to_string(),
                show::who(&holder.details),
                holder.token.map_or_else(|| "-".to_owned(), |token| token.to_string()),
                show::age(&holder.details),
                waiting.clone(),
            ]);
        }
    }
    tell::answer(&show::columns(&rows))?;
    Ok(exit)
}
