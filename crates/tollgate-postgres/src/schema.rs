//! The tables and functions: their names, and how they come into the database.

use std::sync::Arc;

use tokio_postgres::SimpleQueryMessage;
use tollgate_core::{Error, ErrorKind, Result};
use tollgate_sql::named;

use crate::config::PostgresConfig;
use crate::error::Trouble;
use crate::link::Link;
use crate::ownership::{LOOK, Ownership, Stranger};

/// Which `schema.sql` this is.
const VERSION: i32 = 5;

/// All of it.
const SQL: &str = concat!(
    include_str!("schema.sql"),
    "\n",
    include_str!("transaction.sql"),
    "\n",
    include_str!("fence.sql"),
    include_str!("grants.sql")
);

/// How the tables of one client are called.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    schema: Arc<str>,
    prefix: Arc<str>,
}

impl Tables {
    pub(crate) fn new(schema: &str, prefix: &str) -> Self {
        Self { schema: schema.into(), prefix: prefix.into() }
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// SQL that is written for the usual names, with these.
    pub(crate) fn named(&self, sql: &str) -> String {
        let Self { schema, prefix } = self;
        named(sql, "tollgate.", |name| format!("\"{schema}\".\"{prefix}{name}\""))
            .replace("schema tollgate to", &format!("schema \"{schema}\" to"))
            .replace("exists tollgate;", &format!("exists \"{schema}\";"))
            .replace("create schema tollgate;", &format!("create schema \"{schema}\";"))
            .replace("nspname = 'tollgate'", &format!("nspname = '{schema}'"))
            .replace("'tollgate'::pg_catalog.name", &format!("'{schema}'::pg_catalog.name"))
            .replace("exists claims_owner", &format!("exists \"{prefix}claims_owner\""))
    }
}

/// Everything that locks need in the database that `config` names, for those who create it themselves.
pub fn ddl(config: &PostgresConfig) -> Result<String> {
    config.check()?;
    Ok(Tables::new(&config.schema, &config.table_prefix).named(SQL))
}

/// The same for `?style=advisory`.
pub fn ddl_of_advisory(config: &PostgresConfig) -> Result<String> {
    const SQL: &str = concat!(include_str!("advisory/sql/install.sql"), include_str!("grants.sql"));
    config.check()?;
    Ok(Tables::new(&config.schema, &config.table_prefix).named(SQL))
}

/// Creates what is missing, and what was older. When several start at once, one does it and the others find it done.
pub(crate) async fn install(link: &mut Link, tables: &Tables, ownership: &Ownership) -> Result<()> {
    judge(link, ownership).await?;
    match version(link, tables).await? {
        Some(VERSION) => return Ok(()),
        Some(newer) if newer > VERSION => return Err(unknown(tables, Some(newer))),
        Some(_) | None => {}
    }
    let script = tables.named(SQL);
    let script = script.replacen("create schema if not exists", "-- create schema if not exists", 1);
    let alone = "set local search_path = pg_catalog, pg_temp; set local lock_timeout = 0; \
                 select pg_advisory_xact_lock(hashtextextended('tollgate schema', 0));";
    // The schema first: once its owner is known, no other role can put anything into it.
    let made = link.simple(&format!("begin; {alone} {}; commit", ownership.create())).await;
    if let Err(trouble) = made {
        let _ = link.simple("rollback").await;
        return Err(refused(trouble, tables));
    }
    judge(link, ownership).await?;
    match link.simple(&format!("begin; {alone} {script} commit;")).await {
        Ok(_) => {}
        Err(trouble) => {
            let _ = link.simple("rollback").await;
            return Err(refused(trouble, tables));
        }
    }
    judge(link, ownership).await?;
    match version(link, tables).await? {
        Some(VERSION) => Ok(()),
        other => Err(unknown(tables, other)),
    }
}

/// Refuses what belongs to others.
async fn judge(link: &mut Link, ownership: &Ownership) -> Result<()> {
    let looked = link.ask(LOOK, &ownership.values()).await;
    let rows = looked.map_err(|trouble| trouble.not_done().into_error("the ownership check"))?;
    ownership.judge(Stranger::of(&rows))
}

fn unknown(tables: &Tables, version: Option<i32>) -> Error {
    let version = version.map_or("unknown".to_owned(), |number| number.to_string());
    let message = format!(
        "the tables in schema {} have version {version}, and this program supports version {VERSION}; use \
         the newest program everywhere, or another ?schema=",
        tables.schema,
    );
    Error::new(ErrorKind::Config, message)
}

/// Which version is there; none if there is nothing.
async fn version(link: &mut Link, tables: &Tables) -> Result<Option<i32>> {
    let asked = link.simple(&tables.named("select version from tollgate.version")).await;
    match asked {
        Ok(messages) => Ok(messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        })),
        Err(trouble) if trouble.is_missing() => Ok(None),
        Err(trouble) => Err(trouble.into_error("the version check")),
    }
}

fn refused(trouble: Trouble, tables: &Tables) -> Error {
    if !trouble.is_denied() {
        return trouble.into_error("creating the lock tables");
    }
    let message = format!(
        "this user may not create the lock tables in schema {0}; let a user with that right run what \
         `tollgate sql-schema URL` prints, and grant usage on schema {0} and all on its objects",
        tables.schema
    );
    trouble.into_error_of(ErrorKind::Denied, message)
}
