//! PostgreSQL beyond locks: what makes data in it refuse stale tokens, and locks within transactions.

use tollgate_core::{Error, Result};
use tollgate_postgres::PostgresConfig;

use crate::url::Url;

pub use tollgate_postgres::{
    NO_TOKEN, PostgresFence, STALE, TransactionLocks, lock_in_transaction, try_lock_in_transaction, url_of,
};

/// The schemes that name a PostgreSQL.
pub(crate) const SCHEMES: &[&str] = &["postgres", "postgresql"];

/// The parameters that are ours; all others are as libpq and frameworks know them.
const OURS: &[&str] = &[
    "schema",
    "table_prefix",
    "connections",
    "listen_url",
    "style",
    "advisory_key",
    "owner",
    "plain_password",
    "ca",
    "cert",
    "key",
];

/// Which PostgreSQL a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<PostgresConfig> {
    url.check_params_beside(OURS, tollgate_postgres::PARAMETERS)?;
    let others = url.params.iter().filter_map(|(name, value)| match *name {
        "ca" => Some(format!("sslrootcert={value}")),
        "cert" => Some(format!("sslcert={value}")),
        "key" => Some(format!("sslkey={value}")),
        name if tollgate_postgres::PARAMETERS.contains(&name) => Some(format!("{name}={value}")),
        _ => None,
    });
    let others = others.collect::<Vec<_>>().join("&");
    let mut config = PostgresConfig::from_url(&format!("postgres:{}?{others}", url.rest))?;
    crate::url::warn_once(config.notes());
    if let Some(schema) = url.value("schema")? {
        config.schema = schema;
    }
    if let Some(prefix) = url.value("table_prefix")? {
        config.table_prefix = prefix;
    } else if config.schema == "public" {
        // Prisma's ?schema= names that of the application's own tables, which may be called like ours.
        config.table_prefix = "tollgate_".to_owned();
    }
    if let Some(connections) = url.param("connections") {
        config.connections =
            connections.parse().ok().filter(|number| (1..=1000).contains(number)).ok_or_else(|| {
                Error::invalid(
                    "?connections= must be the number of connections that the program may open for its \
                     requests: 1 to 1000",
                )
            })?;
    }
    if let Some(listen) = url.value("listen_url")? {
        config.listen_to(&listen)?;
    }
    config.owner = url.value("owner")?;
    config.timeout = crate::connect::limit(url)?;
    config.plain_password = crate::url::plain_password(url)?;
    Ok(config)
}

/// Whether a URL asks for advisory locks, and which number all of them have, if it says so.
pub(crate) fn advisory(url: &Url<'_>) -> Result<Option<Option<i64>>> {
    let key = url.param("advisory_key");
    let number = |key: &str| {
        key.parse().map_err(|_| {
            Error::invalid("?advisory_key= must be the key of a PostgreSQL advisory lock: a bigint")
        })
    };
    match (url.param("style"), key) {
        (Some("advisory"), key) => Ok(Some(key.map(number).transpose()?)),
        (None | Some("lease"), None) => Ok(None),
        (None | Some("lease"), Some(_)) => {
            Err(Error::invalid("?advisory_key= is for advisory locks; add style=advisory to the URL"))
        }
        (Some(other), _) => {
            Err(Error::invalid(format!("?style={other} is unknown; write lease (the default) or advisory")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_timeout_of_the_url_limits_how_long_its_hosts_are_tried() {
        let timeout = |text| config(&Url::parse(text).unwrap()).unwrap().timeout;
        assert_eq!(timeout("postgres://a,b/d?timeout=2s"), Some(Duration::from_secs(2)));
        assert_eq!(timeout("postgres://a,b/d"), None);
    }
}
