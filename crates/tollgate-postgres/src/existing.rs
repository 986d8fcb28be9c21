//! The URL of a PostgreSQL that a program already has a configuration for.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tollgate_core::url::encoded;
use tollgate_core::{Error, Result};

/// The URL that reaches what `config` reaches, for `tollgate::connect`: it contains the password.
///
/// An open connection or a pool cannot be shared: renewals need connections that the keeper's thread drives, so that a
/// blocked executor of the program loses no lock. Encryption is not taken over, because a program gives it to the driver
/// apart from the configuration: append `&sslmode=require`, with `&sslrootcert=FILE`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config: tokio_postgres::Config = "host=db user=app password=s3cret dbname=shop".parse()?;
/// let url = tollgate_postgres::url_of(&config)?;
/// assert_eq!(url, "postgres:///?host=db&user=app&password=s3cret&dbname=shop");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Unsupported` for a password that is not UTF-8, and for a configuration that requires encryption, whose certificates it does
/// not have.
pub fn url_of(config: &Config) -> Result<String> {
    if config.get_ssl_mode() == SslMode::Require {
        return Err(Error::unsupported(
            "the configuration requires encryption, but its certificates cannot be read from it; write the \
             URL, postgres://HOST/DATABASE?sslmode=require&sslrootcert=FILE",
        ));
    }
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(folder) => folder.display().to_string(),
    };
    let joined = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(","));
    let password = config.get_password().map(|password| String::from_utf8(password.to_vec())).transpose();
    let password =
        password.map_err(|_| Error::unsupported("a password that is not UTF-8 cannot be part of a URL"))?;
    let parameters = [
        ("host", joined(config.get_hosts().iter().map(host).collect())),
        ("hostaddr", joined(config.get_hostaddrs().iter().map(ToString::to_string).collect())),
        ("port", joined(config.get_ports().iter().map(ToString::to_string).collect())),
        ("user", config.get_user().map(str::to_owned)),
        ("password", password),
        ("dbname", config.get_dbname().map(str::to_owned)),
        ("options", config.get_options().map(str::to_owned)),
    ];
    let parameters =
        parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    Ok(format!("postgres:///?{}", parameters.collect::<Vec<_>>().join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PostgresConfig;

    #[test]
    fn the_url_reaches_what_the_configuration_does() {
        let text = "host=a,b port=1,2 user='the app' password='p@ss&/' dbname=shop options='-c x=y'";
        let config: Config = text.parse().unwrap();
        let read = PostgresConfig::from_url(&url_of(&config).unwrap()).unwrap().server;
        assert_eq!(read.get_hosts(), config.get_hosts());
        assert_eq!(read.get_ports(), config.get_ports());
        assert_eq!(read.get_user(), config.get_user());
        assert_eq!(read.get_password(), config.get_password());
        assert_eq!(read.get_dbname(), config.get_dbname());
        assert!(read.get_options().unwrap().contains("-c x=y"));
    }

    #[test]
    fn encryption_that_cannot_be_taken_over_is_refused() {
        let config: Config = "host=a sslmode=require".parse().unwrap();
        assert!(url_of(&config).unwrap_err().to_string().contains("sslrootcert"));
    }
}
