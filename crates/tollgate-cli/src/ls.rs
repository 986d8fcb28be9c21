//! `tollgate ls`: the locks that are held or waited for.

use clap::Args;
use futures_util::StreamExt;
use tollgate::Result;

use crate::connect::with_locks;
use crate::engine_url::UrlArg;
use crate::exit::{Exit, report};
use crate::{show, tell};

/// List the locks that are held or have waiters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tollgate ls\n  tollgate ls accounts/ --json")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// List only locks whose names start with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

pub(crate) async fn run(args: LsArgs) -> Result<Exit> {
    let url = args.url.resolve()?;
    let listed = with_locks(&url, async |locks| {
        let (mut found, mut exit, mut list) = (Vec::new(), Exit::OK, locks.list(&args.prefix));
        while let Some(lock) = list.next().await {
            match lock {
                Ok(lock) => found.push(lock),
                // A lock that cannot be read is reported, and the others are still listed.
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
        tell::note_on_terminal("no lock is held or has waiters");
        return Ok(exit);
    }
    let mut rows = vec![["NAME", "HELD BY", "TOKEN", "SINCE", "WAITING"].map(str::to_owned).to_vec()];
    for lock in &found {
        let waiting = lock.waiters.len().to_string();
        if lock.holders.is_empty() {
            rows.push(vec![lock.name.to_string(), "-".into(), "-".into(), "-".into(), waiting.clone()]);
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
