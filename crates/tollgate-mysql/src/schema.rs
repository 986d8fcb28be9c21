//! The tables and procedures: their names, and how they come into the database.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tollgate_core::{Error, ErrorKind, Result};
use tollgate_sql::named;

use crate::config::{Dialect, MySqlConfig};
use crate::error::Trouble;
use crate::ownership;
use crate::wire::first;

/// Which `schema.sql` this is.
const VERSION: i64 = 3;
/// How long whoever comes second waits until the tables are made, in seconds.
pub(crate) const TO_INSTALL: u32 = 30;
/// How long all of that may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(TO_INSTALL as u64 + 15);

/// How the tables of one client are called.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    prefix: Arc<str>,
}

impl Tables {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// SQL that is written for the usual names, with these.
    pub(crate) fn named(&self, sql: &str) -> String {
        named(sql, "tollgate_", |name| format!("`{}{name}`", self.prefix))
    }
}

/// Everything that locks need in the database that `config` names, for those who create it themselves. Without a dialect
/// it is MariaDB's.
pub fn ddl(config: &MySqlConfig) -> Result<String> {
    config.check()?;
    let script = script(&Tables::new(&config.table_prefix), config.dialect.unwrap_or(Dialect::MariaDb));
    Ok(for_people(&script))
}

/// The same as command-line clients take it: they send what ends with a semicolon, unless told otherwise for a while.
fn for_people(script: &str) -> String {
    let mut text = String::with_capacity(script.len() + script.len() / 20);
    let mut within = false;
    for line in script.lines() {
        if line.starts_with("create procedure") || line.starts_with("create or replace procedure") {
            text.push_str("delimiter $$\n");
            within = true;
        }
        if within && line == "end;" {
            text.push_str("end$$\ndelimiter ;\n");
            within = false;
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The version comes last: what has one is whole.
fn script(tables: &Tables, dialect: Dialect) -> String {
    let tokens = match dialect {
        Dialect::MariaDb => include_str!("tokens_mariadb.sql"),
        Dialect::MySql => include_str!("tokens_mysql.sql"),
    };
    let version = format!(
        "insert into tollgate_version select {VERSION}, '{}' from (select 1) as one\n\
         where not exists (select 1 from tollgate_version);\n\
         update tollgate_version set version = {VERSION} where version < {VERSION};\n",
        dialect.name()
    );
    let parts = [include_str!("schema.sql"), tokens, sessions(dialect), include_str!("fence.sql"), &version];
    let script = parts.join("\n");
    tables.named(&if dialect == Dialect::MariaDb { replacing(&script) } else { script })
}

/// The same script with procedures that are replaced in one step, which MySQL cannot: between a drop and a create, calls of
/// clients that are at work would fail.
fn replacing(script: &str) -> String {
    let mut lines = script.lines().peekable();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        let is_replaced = line.starts_with("drop procedure if exists ")
            && lines.peek().is_some_and(|next| next.starts_with("create procedure "));
        if is_replaced {
            continue;
        }
        match line.strip_prefix("create procedure ") {
            Some(rest) => text.push_str(&format!("create or replace procedure {rest}")),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// What locks of `?style=session` need.
fn sessions(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::MariaDb => {
            concat!(
                include_str!("session/sql/install.sql"),
                "\n",
                include_str!("session/sql/wake_mariadb.sql")
            )
        }
        Dialect::MySql => include_str!("session/sql/install.sql"),
    }
}

/// Creates what is missing, and what was older. When several start at once, one does it and the others find it done. Answers
/// where tokens come from.
pub(crate) async fn install(link: &mut Conn, tables: &Tables, config: &MySqlConfig) -> Result<Dialect> {
    let wanted = config.dialect;
    ownership::check(link, tables, config.owner.as_deref()).await?;
    let older = match version(link, tables).await? {
        Some((number, dialect)) if number < VERSION => Dialect::named(&dialect),
        Some(found) => return suits(found, wanted),
        None => None,
    };
    // Tables that are there keep their tokens where they are.
    let dialect = match older.or(wanted) {
        Some(dialect) => dialect,
        None => native(link).await.map_err(|trouble| trouble.into_error("the dialect check"))?,
    };
    let name = tables.named("tollgate_schema");
    let locked: Option<Option<i64>> = link
        .exec_first("select get_lock(?, ?)", (&name, TO_INSTALL))
        .await
        .map_err(|error| Trouble::of(error).into_error("creating the lock tables"))?;
    if locked.flatten() != Some(1) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "another client has been creating the lock tables for a long time; try again",
        ));
    }
    let made = match version(link, tables).await {
        Ok(Some((number, _))) if number >= VERSION => Ok(()),
        Ok(_) => make(link, tables, dialect).await,
        Err(error) => Err(error),
    };
    // It ends with the connection anyway.
    let _ = link.exec_drop("do release_lock(?)", (&name,)).await;
    made?;
    ownership::check(link, tables, config.owner.as_deref()).await?;
    match version(link, tables).await? {
        Some(found) => suits(found, wanted),
        None => Err(Error::new(ErrorKind::Unexpected, "the lock tables were created, but are missing")),
    }
}

async fn make(link: &mut Conn, tables: &Tables, dialect: Dialect) -> Result<()> {
    link.query_drop(script(tables, dialect)).await.map_err(|error| refused(Trouble::of(error)))
}

/// What suits the server. Nodes of Galera keep parts of a sequence to themselves, so that its numbers do not rise there.
async fn native(link: &mut Conn) -> std::result::Result<Dialect, Trouble> {
    let version: Option<String> = first(link, "select version()").await?;
    if !version.is_some_and(|version| version.contains("MariaDB")) {
        return Ok(Dialect::MySql);
    }
    let asked = "show global variables where variable_name = 'wsrep_on' and value = 'ON'";
    let galera: Option<Row> = first(link, asked).await?;
    Ok(if galera.is_some() { Dialect::MySql } else { Dialect::MariaDb })
}

/// Which version is there, and whose tokens it has; none if there is nothing.
async fn version(link: &mut Conn, tables: &Tables) -> Result<Option<(i64, String)>> {
    match first(link, &tables.named("select version, dialect from tollgate_version")).await {
        Ok(found) => Ok(found),
        Err(trouble) if trouble.is_missing() => Ok(None),
        Err(trouble) => Err(trouble.into_error("the version check")),
    }
}

fn suits((version, dialect): (i64, String), wanted: Option<Dialect>) -> Result<Dialect> {
    let found = Dialect::named(&dialect);
    match found {
        Some(found) if version == VERSION && wanted.is_none_or(|wanted| wanted == found) => Ok(found),
        Some(_) if version == VERSION => Err(Error::new(
            ErrorKind::Config,
            format!(
                "the lock tables were created with ?dialect={dialect}; use that everywhere, or another \
                 ?table_prefix="
            ),
        )),
        _ => Err(Error::new(
            ErrorKind::Config,
            format!(
                "the lock tables have version {version}, and this program supports version {VERSION}; use \
                 the newest program everywhere, or another ?table_prefix="
            ),
        )),
    }
}

fn refused(trouble: Trouble) -> Error {
    if !trouble.is_denied() {
        return trouble.into_error("creating the lock tables");
    }
    let message = "this user may not create the lock tables and procedures; let a user with that right run \
                   what `tollgate sql-schema URL` prints, and grant select, insert, update, delete and \
                   execute on that database";
    trouble.into_error_of(ErrorKind::Denied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_procedure_is_gone_for_a_moment_on_mariadb() {
        let tables = Tables::new("tollgate_");
        let replaced = script(&tables, Dialect::MariaDb);
        assert!(
            !replaced.contains("drop procedure") && !replaced.contains("\ncreate procedure"),
            "{replaced}"
        );
        assert!(replaced.matches("create or replace procedure").count() > 20);
        assert!(script(&tables, Dialect::MySql).contains("drop procedure"), "MySQL cannot replace any");
    }

    /// MySQL itself cannot be asked here: its grammar refuses these, and the whole script with them.
    #[test]
    fn what_the_dialect_mysql_installs_has_nothing_that_only_mariadb_knows() {
        let script = script(&Tables::new("tollgate_"), Dialect::MySql).to_lowercase();
        let told = |line: &&str| !line.trim_start().starts_with("--");
        let script: String = script.lines().filter(told).collect();
        // For MySQL that is a comment.
        let (before, rest) = script.split_once("/*m!").expect("there is one such place");
        let (_, after) = rest.split_once("*/").expect("it ends");
        for unknown in [
            "json_value",
            "returning",
            "sequence",
            "nextval",
            "or replace",
            "immediate",
            "@@in_transaction",
            "/*m!",
        ] {
            assert!(!format!("{before}{after}").contains(unknown), "MySQL does not know {unknown}");
        }
    }
}
