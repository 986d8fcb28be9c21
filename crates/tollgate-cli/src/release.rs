//! `tollgate release`: give back a lock that a script holds.

use clap::Args;
use tollgate::{Error, ErrorKind, Release, Result};

use crate::connect::connect;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::grant_arg::GrantArg;
use crate::holder;

/// Release a lock that tollgate acquire took.
///
/// When it returns, the next waiter can be granted the lock, and no process is left running. Exit
/// code 76 if the lock was already lost: its ttl ended, it was released before, or an operator
/// broke it. Another holder may have had the lock since then.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    url: UrlArg,

    #[command(flatten)]
    grant: GrantArg,
}

const EXAMPLES: &str = "\
Examples:
  G=$(tollgate acquire x --ttl 60s) && printf %s \"$G\" | tollgate release
  G=$(tollgate acquire x) && tollgate release \"$G\"";

pub(crate) async fn run(args: ReleaseArgs) -> Result<Exit> {
    let grant = args.grant.read()?;
    match holder::path_in(&grant) {
        Some(path) => holder::release(&path, &grant).await?,
        None => {
            if connect(&args.url.resolve()?).await?.release_grant(&grant).await? == Release::AlreadyLost {
                let why = "the lock is lost: its ttl ended, or it was released or broken before";
                return Err(Error::new(ErrorKind::Lost, why).during("release").on(&grant.name));
            }
        }
    }
    Ok(Exit::OK)
}
