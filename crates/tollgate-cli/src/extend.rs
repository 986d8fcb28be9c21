//! `tollgate extend`: renew a lock that a script holds.

use std::time::Duration;

use clap::Args;
use tollgate::Result;

use crate::acquire::print;
use crate::connect::connect;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::grant_arg::GrantArg;
use crate::holder;

/// Extend a lock that tollgate acquire took, and print the new grant.
///
/// The lock is held for --ttl from now on. Exit code 76 if the lock is already lost: its ttl ended,
/// it was released, or an operator broke it. Stop the work then: another holder may have the lock.
/// The old grant can still be used; only the deadline in it is outdated.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    url: UrlArg,

    /// How long to hold the lock from now on; by default the ttl that the grant names.
    #[arg(long, value_name = "DURATION", value_parser = crate::args::ttl)]
    ttl: Option<Duration>,

    #[command(flatten)]
    grant: GrantArg,
}

const EXAMPLES: &str = "\
Examples:
  tollgate acquire x --ttl 60s | tollgate extend --ttl 5m | tollgate release
  G=$(tollgate acquire x) && tollgate extend \"$G\" | tollgate release";

pub(crate) async fn run(args: ExtendArgs) -> Result<Exit> {
    let grant = args.grant.read()?;
    let ttl = args.ttl.unwrap_or(grant.ttl);
    let extended = match holder::path_in(&grant) {
        Some(path) => holder::extend(&path, &grant, ttl).await?,
        None => connect(&args.url.resolve()?).await?.extend_grant(&grant, ttl).await?,
    };
    print(&extended).await?;
    Ok(Exit::OK)
}
