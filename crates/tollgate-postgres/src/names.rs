//! Where in a database everything is, for those who bring a connection of their own and no URL.

use tollgate_core::{Error, Result};
use tollgate_sql::check_identifier;

use crate::schema::Tables;

/// A schema, and what the names of tables and functions in it start with.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    tables: Tables,
}

impl Default for Names {
    fn default() -> Self {
        Self::of("tollgate", "")
    }
}

impl Names {
    /// Names that are known to be good.
    pub(crate) fn of(schema: &str, prefix: &str) -> Self {
        Self { tables: Tables::new(schema, prefix) }
    }

    pub(crate) fn schema(&self) -> &str {
        self.tables.schema()
    }

    pub(crate) fn prefix(&self) -> &str {
        self.tables.prefix()
    }

    pub(crate) fn new(schema: &str, prefix: &str) -> Result<Self> {
        check_identifier("schema", schema)?;
        check_identifier("table_prefix", prefix)?;
        if schema.is_empty() {
            return Err(Error::invalid("the schema name is empty; the default is tollgate"));
        }
        Ok(Self::of(schema, prefix))
    }

    /// SQL that is written for the usual names, with these. It may create the schema, too.
    pub(crate) fn written_into(&self, sql: &str) -> String {
        self.tables.named(sql)
    }
}
