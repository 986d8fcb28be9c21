//! `tollgate sql-schema`: the tables and functions of locks, for those who create them themselves.

use clap::Args;
use tollgate::Result;

use crate::exit::Exit;
use crate::tell;

/// Print the SQL that makes the tables and functions of locks in a database.
///
/// Clients make them by themselves when they first connect. Where their user may not, run what this prints as somebody who
/// may, and let the clients' user use it: the end of the text says how. It is safe to run again. Nobody is asked: the URL
/// only says which database it is, how the tables are to be called (?schema=, ?table_prefix=), and for which style of locks
/// they are: ?style=advisory and ?style=session need some, too, for tokens and for those who look.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SqlSchemaArgs {
    /// The database, as clients will name it.
    #[arg(value_name = "URL", env = "TOLLGATE_URL", hide_env_values = true)]
    url: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate sql-schema postgres://db/shop >locks.sql
  tollgate sql-schema 'postgres://db/shop?schema=locks' | grep 'create table'";

pub(crate) fn run(args: &SqlSchemaArgs) -> Result<Exit> {
    tell::answer(tollgate::sql_schema(&args.url)?.trim_end())?;
    Ok(Exit::OK)
}
