//! MySQL and MariaDB beyond locks: what makes data in them refuse stale tokens, and locks within transactions.

use tollgate_core::{Error, Result};
use tollgate_mysql::{Dialect, MySqlConfig};

use crate::url::Url;

pub use tollgate_mysql::{MySqlFence, MySqlTransactions};

/// The schemes that name a MySQL or MariaDB.
pub(crate) const SCHEMES: &[&str] = &["mysql", "mariadb"];

/// Whether a URL asks for the server's own session locks.
pub(crate) fn is_session(url: &Url<'_>) -> Result<bool> {
    match url.param("style") {
        None | Some("lease") => Ok(false),
        Some("session") => Ok(true),
        Some(other) => Err(Error::invalid(format!(
            "?style={other} is not known here; write lease, which is what is meant if nothing is said, or session"
        ))),
    }
}

/// Which server a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<MySqlConfig> {
    url.check_params(&["table_prefix", "dialect", "connections", "style", "ssl-mode", "ca", "cert", "key"])?;
    let mut config = MySqlConfig::from_url(&format!("mysql:{}", url.rest))?;
    if let Some(prefix) = url.value("table_prefix")? {
        config.table_prefix = prefix;
    }
    if let Some(dialect) = url.param("dialect") {
        let known = Dialect::named(dialect);
        config.dialect = Some(known.ok_or_else(|| {
            Error::invalid(
                "?dialect= is mysql or mariadb: whether tokens are counted in rows or by a sequence",
            )
        })?);
    }
    if let Some(connections) = url.param("connections") {
        config.connections =
            connections.parse().ok().filter(|number| (1..=1000).contains(number)).ok_or_else(|| {
                Error::invalid("?connections= is how many connections each runtime may open: 1 to 1000")
            })?;
    }
    let has_files = url.param("ca").or(url.param("cert")).or(url.param("key")).is_some();
    config.tls = match url.param("ssl-mode") {
        Some("required" | "verify_ca" | "verify_identity") => Some(url.tls_files()?),
        None | Some("disabled") if !has_files => None,
        None | Some("disabled") => {
            return Err(Error::invalid(
                "certificates are for encrypted connections; add ssl-mode=required to the URL",
            ));
        }
        Some(other) => {
            return Err(Error::invalid(format!(
                "ssl-mode={other:?} is not known here; write disabled, or required: then the server's certificate is checked"
            )));
        }
    };
    Ok(config)
}
