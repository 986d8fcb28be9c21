//! Which PostgreSQL, as a URL says it.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;
use tollgate_core::tls::TlsFiles;
use tollgate_core::{Error, Result};
use tollgate_sql::check_identifier;

use crate::dial::Ranks;
use crate::libpq;
use crate::names::Names;
use crate::ownership::Ownership;

/// How long it may take to connect.
pub(crate) const TO_CONNECT: Duration = Duration::from_secs(5);
/// How long it may take to make tables and functions, beside others that start at the same time.
pub(crate) const TO_INSTALL: Duration = Duration::from_secs(10);
/// How long the network may leave bytes unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// After how long of silence the network is asked whether the server is still there.
const ALIVE_AFTER: Duration = Duration::from_secs(15);

/// The driver's own for the same.
const LIBPQ_ALIVE_AFTER: Duration = Duration::from_secs(2 * 60 * 60);

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
    /// How many connections a client may have for its requests, over all runtimes that use it. One more renews, and one listens.
    pub connections: usize,
    /// Whether a server that asks for the password as it is gets it, where others could read it, too.
    pub plain_password: bool,
    /// A role that is trusted with the schema of locks, beside this user and superusers.
    pub owner: Option<String>,
    /// Whether a server that cannot be trusted, or does not encrypt, is spoken to without encryption.
    pub(crate) may_be_plain: bool,
    /// How long a caller waits for a connection, if it waits for less than 5 s: all hosts share it.
    pub timeout: Option<Duration>,
    /// What of the URL is not done as it is said.
    pub(crate) notes: Vec<String>,
    /// Which of the servers have proved good.
    pub(crate) ranks: Arc<Ranks>,
}

impl PostgresConfig {
    /// What a URL without parameters of ours says: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, several hosts with commas
    /// in between. It may have all [parameters](crate::PARAMETERS) that libpq knows: `?host=/run/postgresql` is a socket in
    /// that folder. What concerns locks is done, what would be less safe if it were left out is an error, and the rest is
    /// [noted](Self::notes).
    pub fn from_url(url: &str) -> Result<Self> {
        let said = libpq::read(url)?;
        let mut config = Self {
            server: set_up(said.server),
            listen: None,
            tls: None,
            schema: "tollgate".to_owned(),
            table_prefix: String::new(),
            connections: 4,
            plain_password: false,
            owner: None,
            may_be_plain: false,
            timeout: None,
            notes: said.notes,
            ranks: Arc::default(),
        };
        match said.sslmode {
            Some(mode) => config.encrypt(&mode, said.files)?,
            // A certificate is of use only on an encrypted connection.
            None if said.files != TlsFiles::default() => config.encrypt("require", said.files)?,
            None => {}
        }
        Ok(config)
    }

    /// What of the URL is not done as it is said, and why. Without values, which may be secrets.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where notifications come from: past a pooler that does not let them through.
    pub fn listen_to(&mut self, url: &str) -> Result<()> {
        let said = libpq::read(url).map_err(|error| Error::invalid(format!("listen_url: {error}")))?;
        if said.sslmode.is_some() || said.files != TlsFiles::default() {
            return Err(Error::invalid(
                "listen_url: it uses the encryption of the main URL; write sslmode= and the certificates \
                 there, and not here",
            ));
        }
        self.notes.extend(said.notes.into_iter().map(|note| format!("listen_url: {note}")));
        self.listen = Some(set_up(said.server));
        Ok(())
    }

    /// How `sslmode=` is meant: encrypted connections are always verified. With `prefer` and `allow` those that cannot be had
    /// are replaced by others that are not encrypted, which is noted.
    pub fn encrypt(&mut self, mode: &str, files: TlsFiles) -> Result<()> {
        (self.tls, self.may_be_plain) = match mode {
            "disable" if files != TlsFiles::default() => {
                return Err(Error::invalid(
                    "certificates are for encrypted connections; write sslmode=require, or leave the \
                     certificates out",
                ));
            }
            "disable" => (None, false),
            "allow" | "prefer" => (Some(files), true),
            "require" | "verify-ca" | "verify-full" => (Some(files), false),
            other => {
                return Err(Error::invalid(format!(
                    "sslmode={other:?} is unknown; write disable, or require: then the server's \
                     certificate is checked"
                )));
            }
        };
        if self.may_be_plain {
            self.notes.push(format!(
                "sslmode={mode} in the URL gives no protection against attackers on the network: if the \
                 server is not trusted or does not speak TLS, the connection is not encrypted; write \
                 sslmode=require"
            ));
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_identifier("schema", &self.schema)?;
        check_identifier("table_prefix", &self.table_prefix)?;
        if self.schema.is_empty() || self.schema.starts_with("pg_") {
            return Err(Error::invalid(
                "schema: name a schema of your own; names that start with pg_ are reserved by PostgreSQL",
            ));
        }
        Ok(())
    }

    /// What in the database is ours, and the roles that are trusted with it.
    pub(crate) fn ownership(&self) -> Ownership {
        Ownership::of(&Names::of(&self.schema, &self.table_prefix), self.owner.as_deref())
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

/// What a URL says, and what is usual here where it says nothing.
fn set_up(mut server: Config) -> Config {
    // Whichever of several takes writes.
    server.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if server.get_keepalives_idle() == LIBPQ_ALIVE_AFTER {
        server.keepalives_idle(ALIVE_AFTER);
    }
    if server.get_tcp_user_timeout().is_none() {
        server.tcp_user_timeout(UNACKNOWLEDGED);
    }
    server
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
            config.encrypt("alow", TlsFiles::default()).expect_err("there is no such mode").to_string();
        assert!(error.contains("require"), "{error}");
    }

    #[test]
    fn certificates_in_a_url_without_sslmode_encrypt_and_are_verified() {
        for file in ["sslrootcert=/ca", "sslcert=/cert&sslkey=/key"] {
            let config = PostgresConfig::from_url(&format!("postgres://h/d?{file}")).expect(file);
            assert!(config.tls.is_some_and(|files| files != TlsFiles::default()), "{file}");
            assert!(!config.may_be_plain && config.notes.is_empty(), "{file}");
            let disabled = PostgresConfig::from_url(&format!("postgres://h/d?{file}&sslmode=disable"));
            let message = disabled.expect_err("the certificates would have no effect").to_string();
            assert!(message.contains("sslmode=require"), "{message}");
        }
    }
}
