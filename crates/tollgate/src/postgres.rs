//! PostgreSQL beyond locks: what makes data in it refuse stale tokens, and locks within transactions.

use tollgate_core::{Error, Result};
use tollgate_postgres::PostgresConfig;

use crate::url::Url;

pub use tollgate_postgres::{
    NO_TOKEN, PostgresFence, STALE, TransactionLocks, lock_in_transaction, try_lock_in_transaction,
};

/// The schemes that name a PostgreSQL.
pub(crate) const SCHEMES: &[&str] = &["postgres", "postgresql"];

/// Which PostgreSQL a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<PostgresConfig> {
    url.check_params(&[
        "schema",
        "table_prefix",
        "connections",
        "listen_url",
        "style",
        "advisory_key",
        "host",
        "sslmode",
        "ca",
        "cert",
        "key",
    ])?;
    let socket = url.param("host").map_or(String::new(), |folder| format!("?host={folder}"));
    let mut config = PostgresConfig::from_url(&format!("postgres:{}{socket}", url.rest))?;
    if let Some(schema) = url.value("schema")? {
        config.schema = schema;
    }
    if let Some(prefix) = url.value("table_prefix")? {
        config.table_prefix = prefix;
    }
    if let Some(connections) = url.param("connections") {
        config.connections =
            connections.parse().ok().filter(|number| (1..=1000).contains(number)).ok_or_else(|| {
                Error::invalid("?connections= is how many connections each runtime may open: 1 to 1000")
            })?;
    }
    if let Some(listen) = url.value("listen_url")? {
        config.listen_to(&listen)?;
    }
    match url.param("sslmode") {
        Some(mode) => config.encrypt(mode, url.tls_files()?)?,
        None if url.param("ca").or(url.param("cert")).or(url.param("key")).is_some() => {
            return Err(Error::invalid(
                "certificates are for encrypted connections; add sslmode=require to the URL",
            ));
        }
        None => {}
    }
    Ok(config)
}

/// Whether a URL asks for advisory locks, and which number all of them have, if it says so.
pub(crate) fn advisory(url: &Url<'_>) -> Result<Option<Option<i64>>> {
    let key = url.param("advisory_key");
    let number = |key: &str| {
        key.parse().map_err(|_| {
            Error::invalid("?advisory_key= is the number of an advisory lock, as PostgreSQL knows it")
        })
    };
    match (url.param("style"), key) {
        (Some("advisory"), key) => Ok(Some(key.map(number).transpose()?)),
        (None | Some("lease"), None) => Ok(None),
        (None | Some("lease"), Some(_)) => {
            Err(Error::invalid("?advisory_key= is for advisory locks; add style=advisory to the URL"))
        }
        (Some(other), _) => Err(Error::invalid(format!(
            "?style={other} is not known here; write lease, which is what is meant if nothing is said, or advisory"
        ))),
    }
}
