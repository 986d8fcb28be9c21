//! Which PostgreSQL, as a URL says it.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tollgate_core::tls::TlsFiles;
use tollgate_core::{Error, Result};
use tollgate_sql::check_identifier;

/// How long it may take to connect.
pub(crate) const TO_CONNECT: Duration = Duration::from_secs(5);
/// How long the network may leave bytes unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// After how long of silence the network is asked whether the server is still there.
const ALIVE_AFTER: Duration = Duration::from_secs(15);

/// Which PostgreSQL, who we are to it, and which tables of it are ours.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Where it is and who we are. Prints no password.
    pub(crate) server: Config,
    /// Where notifications come from, if they do not come through `server`.
    pub(crate) listen: Option<Config>,
    /// Encrypted, if there is something here.
    pub tls: Option<TlsFiles>,
    /// The schema that locks are in.
    pub schema: String,
    /// What the names of tables in it start with.
    pub table_prefix: String,
    /// How many connections each runtime may have.
    pub connections: usize,
}

impl PostgresConfig {
    /// What a URL without parameters of ours says: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, several hosts with commas
    /// in between. `?host=/run/postgresql` is a socket in that folder.
    pub fn from_url(url: &str) -> Result<Self> {
        Ok(Self {
            server: server(url)?,
            listen: None,
            tls: None,
            schema: "tollgate".to_owned(),
            table_prefix: String::new(),
            connections: 6,
        })
    }

    /// Where notifications come from: past a pooler that does not let them through.
    pub fn listen_to(&mut self, url: &str) -> Result<()> {
        self.listen = Some(server(url).map_err(|error| Error::invalid(format!("listen_url: {error}")))?);
        Ok(())
    }

    /// How `sslmode=` is meant: encrypted connections are always verified.
    pub fn encrypt(&mut self, mode: &str, files: TlsFiles) -> Result<()> {
        self.tls = match mode {
            "disable" => None,
            "require" | "verify-ca" | "verify-full" => Some(files),
            other => {
                return Err(Error::invalid(format!(
                    "sslmode={other:?} is not known here; write disable, or require: then the server's certificate is checked"
                )));
            }
        };
        let mode = if self.tls.is_some() { SslMode::Require } else { SslMode::Disable };
        for server in [Some(&mut self.server), self.listen.as_mut()].into_iter().flatten() {
            server.ssl_mode(mode);
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_identifier("schema", &self.schema)?;
        check_identifier("table_prefix", &self.table_prefix)?;
        if self.schema.is_empty() || self.schema.starts_with("pg_") {
            return Err(Error::invalid("schema: name one of your own; those called pg_ are PostgreSQL's"));
        }
        Ok(())
    }

    /// The servers' addresses, for messages.
    pub(crate) fn address(&self) -> String {
        let hosts = self.server.get_hosts().iter().map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let ports = self.server.get_ports().iter().map(|port| Some(*port)).chain(std::iter::repeat(None));
        let named = hosts.zip(ports).map(|(host, port)| match port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        });
        named.collect::<Vec<_>>().join(",")
    }
}

fn server(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().map_err(|error| {
        Error::invalid("this is no URL of a PostgreSQL; write postgres://USER:PASSWORD@HOST:PORT/DATABASE")
            .caused_by(error)
    })?;
    if config.get_hosts().is_empty() {
        config.host("127.0.0.1");
    }
    if config.get_user().is_none() {
        config.user("postgres");
    }
    if config.get_dbname().is_none() {
        let user = config.get_user().unwrap_or("postgres").to_owned();
        config.dbname(user);
    }
    config.ssl_mode(SslMode::Disable);
    // Whichever of several takes writes.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.connect_timeout(TO_CONNECT);
    config.keepalives_idle(ALIVE_AFTER);
    config.tcp_user_timeout(UNACKNOWLEDGED);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_which_postgresql() {
        let config =
            PostgresConfig::from_url("postgres://ann:s%40e@db.local:6000,other/shop").expect("a URL");
        assert_eq!(config.server.get_user(), Some("ann"));
        assert_eq!(config.server.get_dbname(), Some("shop"));
        assert_eq!(config.server.get_hosts().len(), 2);
        assert!(!format!("{config:?}").contains("s@e"), "passwords are not printed");
        let bare = PostgresConfig::from_url("postgres://db.local").expect("a URL");
        assert_eq!((bare.server.get_user(), bare.server.get_dbname()), (Some("postgres"), Some("postgres")));
    }

    #[test]
    fn what_is_no_url_says_what_to_write() {
        for url in ["postgres:db", "postgres://a:port/"] {
            let message = PostgresConfig::from_url(url).expect_err("it is none").to_string();
            assert!(message.contains("postgres://USER"), "{url}: {message}");
        }
        let mut config = PostgresConfig::from_url("postgres://a").expect("a URL");
        let error =
            config.encrypt("allow", TlsFiles::default()).expect_err("it would not be safe").to_string();
        assert!(error.contains("require"), "{error}");
    }
}
