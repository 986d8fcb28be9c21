//! PostgreSQL beyond locks: its tables.

use tollgate_core::{Error, Result};
use tollgate_postgres::PostgresConfig;

use crate::url::Url;

/// The schemes that name a PostgreSQL.
pub(crate) const SCHEMES: &[&str] = &["postgres", "postgresql"];

/// Everything that locks need in the database that `url` names, as SQL, for those who create it themselves. Asks nobody.
///
/// ```
/// let ddl = tollgate::postgres::schema("postgres://127.0.0.1/shop?schema=locks")?;
/// assert!(ddl.contains("create schema if not exists \"locks\""));
/// # tollgate::Result::Ok(())
/// ```
pub fn schema(url: &str) -> Result<String> {
    let url = Url::parse(url)?;
    if !SCHEMES.contains(&url.scheme) {
        return Err(Error::invalid("only databases have a schema; write postgres://HOST/DATABASE"));
    }
    crate::connect::check_layers(&url)?;
    tollgate_postgres::ddl(&config(&url)?)
}

/// Which PostgreSQL a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<PostgresConfig> {
    url.check_params(&[
        "schema",
        "table_prefix",
        "connections",
        "listen_url",
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
