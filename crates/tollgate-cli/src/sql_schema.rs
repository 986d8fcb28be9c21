//! `tollgate sql-schema`: the tables and functions of locks, for operators who create them.

use clap::Args;
use tollgate::Result;

use crate::engine_url::EngineArg;
use crate::exit::Exit;
use crate::tell;

/// Print the SQL that creates the tables and functions of locks in a database.
///
/// Clients create them when they first connect. Where the clients' user may not create tables, run
/// the printed SQL as a user who may, and let the clients' user use the tables: the end of the text
/// says how. It is safe to run it again. No server is contacted: the URL only says which database
/// it is (postgres://, mysql:// or mariadb://), how the tables are to be named (?schema=,
/// ?table_prefix=), and for which style of locks they are: ?style=advisory and ?style=session need
/// some tables too, for tokens and for commands that list locks.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SqlSchemaArgs {
    #[command(flatten)]
    engine: EngineArg,
}

const EXAMPLES: &str = "\
Examples:
  tollgate sql-schema postgres://db/shop >locks.sql
  tollgate sql-schema 'postgres://db/shop?schema=locks' | grep 'create table'";

pub(crate) fn run(args: SqlSchemaArgs) -> Result<Exit> {
    let url = args.engine.required("tollgate sql-schema postgres://db/shop")?;
    tell::answer(tollgate::sql_schema(&url)?.trim_end())?;
    Ok(Exit::OK)
}
