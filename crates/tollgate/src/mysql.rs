//! MySQL and MariaDB beyond locks: what makes data in them refuse stale tokens, and locks within transactions.

use tollgate_core::{Error, Result};
use tollgate_mysql::{Dialect, MySqlConfig};

use crate::url::Url;

pub use tollgate_mysql::{MySqlFence, MySqlTransactions, url_of};

/// The schemes that name a MySQL or MariaDB.
pub(crate) const SCHEMES: &[&str] = &["mysql", "mariadb"];

/// Whether a URL asks for the server's own session locks.
pub(crate) fn is_session(url: &Url<'_>) -> Result<bool> {
    match url.param("style") {
        None | Some("lease") => Ok(false),
        Some("session") => Ok(true),
        Some(other) => {
            Err(Error::invalid(format!("?style={other} is unknown; write lease (the default) or session")))
        }
    }
}

/// The parameters that are ours; all others are as MySQL's programs and frameworks know them.
const OURS: &[&str] = &[
    "table_prefix",
    "dialect",
    "connections",
    "owner",
    "plain_password",
    "style",
    "ssl-mode",
    "ca",
    "cert",
    "key",
];

/// Which server a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<MySqlConfig> {
    url.check_params_beside(OURS, tollgate_mysql::PARAMETERS)?;
    let mut config = MySqlConfig::from_url(&format!("mysql:{}", url.rest))?;
    let mut others = Vec::new();
    for (name, _) in &url.params {
        let known = match *name {
            "ca" => "ssl-ca",
            "cert" => "ssl-cert",
            "key" => "ssl-key",
            name if tollgate_mysql::PARAMETERS.contains(&name) => name,
            _ => continue,
        };
        others.push((known, url.value(name)?.unwrap_or_default()));
    }
    config.set_parameters(&others)?;
    crate::url::warn_once(config.notes());
    if let Some(prefix) = url.value("table_prefix")? {
        config.table_prefix = prefix;
    }
    if let Some(dialect) = url.param("dialect") {
        let known = Dialect::named(dialect);
        config.dialect = Some(known.ok_or_else(|| {
            Error::invalid(
                "?dialect= must be mysql (tokens are counted in rows) or mariadb (tokens come from a \
                 sequence)",
            )
        })?);
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
    config.owner = url.value("owner")?;
    config.plain_password = crate::url::plain_password(url)?;
    Ok(config)
}
