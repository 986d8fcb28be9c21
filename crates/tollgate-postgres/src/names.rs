//! What things in the database are called: which schema, and what tables and functions start with.

use tollgate_core::{Error, Result};

/// Where in a database everything of ours is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    prefix: String,
}

impl Default for Names {
    fn default() -> Self {
        Self { schema: "tollgate".to_owned(), prefix: String::new() }
    }
}

impl Names {
    pub(crate) fn new(schema: &str, prefix: &str) -> Result<Self> {
        check(schema, "a schema's name")?;
        if !prefix.is_empty() {
            check(prefix, "what tables start with")?;
        }
        Ok(Self { schema: schema.to_owned(), prefix: prefix.to_owned() })
    }

    /// `sql`, which is written for the schema `tollgate` and no prefix, for these names.
    pub(crate) fn written_into(&self, sql: &str) -> String {
        sql.replace("schema tollgate", &format!("schema {}", self.schema))
            .replace("to_regnamespace('tollgate')", &format!("to_regnamespace('{}')", self.schema))
            .replace("tollgate.", &format!("{}.{}", self.schema, self.prefix))
    }
}

/// Names that need no quotes, so that people can write them, too.
fn check(name: &str, what: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts = name.bytes().next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_');
    if starts && name.len() <= 40 && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} cannot be {what}: write up to 40 of a-z, 0-9 and _, and no digit first"
    )))
}
