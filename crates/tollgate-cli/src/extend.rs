//! `tollgate extend`: hold a lock that a script has for longer.

use std::time::Duration;

use clap::Args;
use tollgate::Result;

use crate::acquire::print;
use crate::args::UrlArg;
use crate::connect::connect;
use crate::exit::Exit;
use crate::grant_arg::GrantArg;
use crate::holder;

/// Hold a lock that tollgate acquire took until --ttl from now, and print the new grant.
///
/// Exit code 76 if the lock is lost already: its time was over, it was released, or an operator broke it. Stop the
/// work then, somebody else may be in. The old grant can still be used; only the deadline in it is old.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    url: UrlArg,

    /// How long from now; as long as the grant says, if it is left out.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
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
        None => connect(&args.url.url).await?.extend_grant(&grant, ttl).await?,
    };
    print(&extended).await?;
    Ok(Exit::OK)
}
