//! The tables and procedures: their names, and how they come into the database.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tollgate_core::{Error, ErrorKind, Result};
use tollgate_sql::named;

use crate::config::{Dialect, MySqlConfig};
use crate::error::Trouble;

/// Which `schema.sql` this is.
const VERSION: i64 = 2;
/// How long whoever comes second waits until the tables are made, in seconds.
pub(crate) const TO_INSTALL: u32 = 30;

/// How the tables of one client are called.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    prefix: Arc<str>,
}

impl Tables {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
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
        if line.starts_with("create procedure") {
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
    tables.named(&parts.join("\n"))
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
pub(crate) async fn install(link: &mut Conn, tables: &Tables, wanted: Option<Dialect>) -> Result<Dialect> {
    let older = match version(link, tables).await? {
        Some((number, dialect)) if number < VERSION => Dialect::named(&dialect),
        Some(found) => return suits(found, wanted),
        None => None,
    };
    // Tables that are there keep their tokens where they are.
    let dialect = match older.or(wanted) {
        Some(dialect) => dialect,
        None => native(link).await.map_err(|trouble| trouble.into_error("the database"))?,
    };
    let name = tables.named("tollgate_schema");
    let locked: Option<Option<i64>> = link
        .exec_first("select get_lock(?, ?)", (&name, TO_INSTALL))
        .await
        .map_err(|error| Trouble::of(error).into_error("creating the tables of locks"))?;
    if locked.flatten() != Some(1) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "somebody else has been creating the tables of locks for a long time; try again",
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
    match version(link, tables).await? {
        Some(found) => suits(found, wanted),
        None => Err(Error::new(ErrorKind::Unexpected, "the tables of locks were made and are not there")),
    }
}

async fn make(link: &mut Conn, tables: &Tables, dialect: Dialect) -> Result<()> {
    link.query_drop(script(tables, dialect)).await.map_err(|error| refused(Trouble::of(error)))
}

/// What suits the server. Nodes of Galera keep parts of a sequence to themselves, so that its numbers do not rise there.
async fn native(link: &mut Conn) -> std::result::Result<Dialect, Trouble> {
    let version: Option<String> = link.query_first("select version()").await.map_err(Trouble::of)?;
    if !version.is_some_and(|version| version.contains("MariaDB")) {
        return Ok(Dialect::MySql);
    }
    let galera: Option<Row> = link
        .query_first("show global variables where variable_name = 'wsrep_on' and value = 'ON'")
        .await
        .map_err(Trouble::of)?;
    Ok(if galera.is_some() { Dialect::MySql } else { Dialect::MariaDb })
}

/// Which version is there, and whose tokens it has; none if there is nothing.
async fn version(link: &mut Conn, tables: &Tables) -> Result<Option<(i64, String)>> {
    let asked = link.query_first(tables.named("select version, dialect from tollgate_version")).await;
    match asked.map_err(Trouble::of) {
        Ok(found) => Ok(found),
        Err(trouble) if trouble.is_missing() => Ok(None),
        Err(trouble) => Err(trouble.into_error("the database")),
    }
}

fn suits((version, dialect): (i64, String), wanted: Option<Dialect>) -> Result<Dialect> {
    let found = Dialect::named(&dialect);
    match found {
        Some(found) if version == VERSION && wanted.is_none_or(|wanted| wanted == found) => Ok(found),
        Some(_) if version == VERSION => Err(Error::new(
            ErrorKind::Config,
            format!(
                "the tables of locks were made with ?dialect={dialect}; use that everywhere, or another ?table_prefix="
            ),
        )),
        _ => Err(Error::new(
            ErrorKind::Config,
            format!(
                "the tables of locks are of version {version}, and this program knows version {VERSION}; use the newest \
                 program everywhere, or another ?table_prefix="
            ),
        )),
    }
}

fn refused(trouble: Trouble) -> Error {
    if !trouble.is_denied() {
        return trouble.into_error("creating the tables of locks");
    }
    let message = "this user may not create the tables and procedures of locks; have somebody who may run what \
                   `tollgate sql-schema URL` prints, and grant select, insert, update, delete and execute on that database";
    trouble.into_error_of(ErrorKind::Denied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

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
