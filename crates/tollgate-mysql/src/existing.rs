//! The URL of a MySQL or MariaDB that a program already has a client for.

use mysql_async::Opts;
use tollgate_core::url::encoded;
use tollgate_core::{Error, Result};

/// The URL that reaches what a client with `opts` reaches, for `tollgate::connect`: it contains the password.
///
/// An open connection or a pool cannot be shared: renewals need connections that the keeper's thread drives, so that a
/// blocked executor of the program loses no lock. Of a pool, `pool.get_conn().await?.opts()` are the options.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let opts = mysql_async::Opts::from_url("mysql://app:s3cret@db:3307/shop")?;
/// assert_eq!(tollgate_mysql::url_of(&opts)?, "mysql://app:s3cret@db:3307/shop");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Unsupported` for an encrypted client, whose certificates a URL names (`?ssl-mode=required&ca=FILE`); `InvalidArgument` for a
/// client without a database. A server that the client reaches by a socket file is reached by its host and port.
pub fn url_of(opts: &Opts) -> Result<String> {
    if opts.ssl_opts().is_some() {
        return Err(Error::unsupported(
            "the certificates of this client cannot be read from it; write the URL, \
             mysql://HOST/DATABASE?ssl-mode=required&ca=FILE",
        ));
    }
    let database = opts
        .db_name()
        .ok_or_else(|| Error::invalid("the client names no database, and locks need one for their tables"))?;
    let user = opts.user().map(encoded).unwrap_or_default();
    let login = match opts.pass() {
        Some(password) => format!("{user}:{}@", encoded(password)),
        None if user.is_empty() => String::new(),
        None => format!("{user}@"),
    };
    let host = opts.ip_or_hostname();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(format!("mysql://{login}{host}:{}/{}", opts.tcp_port(), encoded(database)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MySqlConfig;

    #[test]
    fn the_url_says_what_the_client_was_opened_with() {
        for url in [
            "mysql://u:p%40ss@h:3307/shop",
            "mysql://u@h:3306/shop",
            "mysql://u:%2F%3A@127.0.0.1:3306/shop_2",
        ] {
            assert_eq!(url_of(&Opts::from_url(url).unwrap()).unwrap(), url);
            MySqlConfig::from_url(url).unwrap();
        }
        assert!(url_of(&Opts::from_url("mysql://u@h").unwrap()).is_err());
    }
}
