//! `tollgate release`: give a lock back that a script has.

use clap::Args;
use tollgate::{Error, ErrorKind, Release, Result};

use crate::args::UrlArg;
use crate::connect::connect;
use crate::exit::Exit;
use crate::grant_arg::GrantArg;
use crate::holder;

/// Release a lock that tollgate acquire took.
///
/// When it returns, the next one can get in, and nothing is left running. Exit code 76 if the lock was lost before:
/// its time was over, it was released already, or an operator broke it. Somebody else may have been in then.
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
            if connect(&args.url.url).await?.release_grant(&grant).await? == Release::AlreadyLost {
                let why = "the lock is lost: its time was over, or it was released or broken before";
                return Err(Error::new(ErrorKind::Lost, why).during("release").on(&grant.name));
            }
        }
    }
    Ok(Exit::OK)
}
