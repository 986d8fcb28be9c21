//! Which MySQL or MariaDB, as a URL says it.

use std::time::Duration;

use mysql_async::{ClientIdentity, OptsBuilder, SslOpts};
use tollgate_core::tls::TlsFiles;
use tollgate_core::url::{Host, decoded, hosts};
use tollgate_core::{Error, Result};
use tollgate_sql::check_identifier;

/// How long it may take to connect, unless the URL says otherwise.
pub(crate) const TO_CONNECT: Duration = Duration::from_secs(5);
/// After how long of silence the network is asked whether the server is still there.
const ALIVE_AFTER: Duration = Duration::from_secs(15);
/// Where both listen unless somebody says otherwise.
const PORT: u16 = 3306;
/// What servers take as they come. Our packets are a few hundred bytes.
const LARGEST_PACKET: usize = 16 << 20;
/// As long as a connection may be idle: said to each, so that the driver need not ask.
const IDLE: usize = 8 * 3600;

/// What every connection is told first: rows that somebody sits on are not waited for for ever, everybody must see what
/// others have done, and each statement is a transaction unless it says otherwise.
const OURS: &str = "set session autocommit = 1, innodb_lock_wait_timeout = 1, sql_mode = '', time_zone = '+00:00', \
                    wait_timeout = ";
/// The most that a server takes: nothing is sent over the connection of a lock while it is held.
const LONGEST_IDLE: usize = 365 * 24 * 3600;
const ISOLATION: &str = "set session transaction isolation level read committed";

/// Which database server, who we are to it, and which tables of it are ours.
#[derive(Debug, Clone)]
pub struct MySqlConfig {
    /// Where it is.
    pub host: Host,
    /// Who we are.
    pub login: Login,
    /// The database that the tables are in.
    pub database: String,
    /// Encrypted, if there is something here.
    pub tls: Option<TlsFiles>,
    /// What the names of our tables start with.
    pub table_prefix: String,
    /// Where tokens come from; what suits the server, if it is not said.
    pub dialect: Option<Dialect>,
    /// How many connections a client may have for its requests, over all runtimes that use it. One more renews.
    pub connections: usize,
    /// An account that is trusted with what has our names, as `USER@HOST`, beside this one.
    pub owner: Option<String>,
    /// Whether the password may go over a connection that is not encrypted to a server elsewhere.
    pub plain_password: bool,
    /// How long it may take to connect.
    pub(crate) to_connect: Duration,
    /// What of the URL is not done as it is said.
    pub(crate) notes: Vec<String>,
}

/// A user and a password. Prints no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Who.
    pub user: String,
    /// Their secret, if they have one.
    pub password: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A sequence, as MariaDB has.
    MariaDb,
    /// A counter in the row of each lock. Those rows are never deleted.
    MySql,
}

impl Dialect {
    /// The dialect that a URL calls so.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mariadb" => Some(Self::MariaDb),
            "mysql" => Some(Self::MySql),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }
}

impl MySqlConfig {
    /// What a URL without parameters says: `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or `mariadb://…`.
    pub fn from_url(url: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "this is not a MySQL or MariaDB URL; write mysql://USER:PASSWORD@HOST:PORT/DATABASE",
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        if !matches!(scheme, "mysql" | "mariadb") {
            return Err(wrong());
        }
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Login::parse(login)?, address),
            None => (Login { user: "root".to_owned(), password: None }, authority),
        };
        let Ok([host]) = <[Host; 1]>::try_from(hosts(address, PORT)?) else {
            return Err(Error::invalid(
                "a lock is in one database; name one server, or a proxy that always leads to the same \
                 primary",
            ));
        };
        let database = decoded(database)?;
        if database.is_empty() || database.contains('/') {
            return Err(Error::invalid(
                "name the database for the lock tables: mysql://USER:PASSWORD@HOST:PORT/DATABASE",
            ));
        }
        let table_prefix = "tollgate_".to_owned();
        Ok(Self {
            host,
            login,
            database,
            tls: None,
            table_prefix,
            dialect: None,
            connections: 6,
            owner: None,
            plain_password: false,
            to_connect: TO_CONNECT,
            notes: Vec::new(),
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_identifier("table_prefix", &self.table_prefix)?;
        if self.table_prefix.is_empty() {
            return Err(Error::invalid(
                "table_prefix must not be empty, or the lock tables could collide with yours",
            ));
        }
        Ok(())
    }

    /// How connections are opened that are ours alone.
    pub(crate) fn options(&self) -> Result<OptsBuilder> {
        self.options_of(IDLE)
    }

    /// The same for connections that locks hang on.
    pub(crate) fn lasting_options(&self) -> Result<OptsBuilder> {
        self.options_of(LONGEST_IDLE)
    }

    fn options_of(&self, idle: usize) -> Result<OptsBuilder> {
        let setup = vec![format!("{OURS}{idle}"), ISOLATION.to_owned()];
        Ok(self.plain_options()?.wait_timeout(Some(idle)).setup(setup))
    }

    /// The same without anything that is told to the server.
    pub(crate) fn plain_options(&self) -> Result<OptsBuilder> {
        let builder = OptsBuilder::default()
            .ip_or_hostname(self.host.name.clone())
            .tcp_port(self.host.port)
            .user(Some(&self.login.user))
            .pass(self.login.password.as_ref())
            .db_name(Some(&self.database))
            // Or connections would go past a proxy that is named here.
            .prefer_socket(false)
            .tcp_keepalive(Some(ALIVE_AFTER))
            .max_allowed_packet(Some(LARGEST_PACKET))
            .wait_timeout(Some(IDLE))
            .stmt_cache_size(64);
        Ok(match &self.tls {
            None => builder,
            Some(files) => builder.ssl_opts(encrypted(files)?),
        })
    }
}

fn encrypted(files: &TlsFiles) -> Result<SslOpts> {
    // The driver reads them as well, and does not say which one is wrong.
    tollgate_core::tls::client(files, &[])?;
    let mut options = SslOpts::default();
    if let Some(ca) = &files.ca {
        options = options.with_root_certs(vec![ca.clone().into()]).with_disable_built_in_roots(true);
    }
    match (&files.cert, &files.key) {
        (None, None) => Ok(options),
        (Some(cert), Some(key)) => {
            Ok(options
                .with_client_identity(Some(ClientIdentity::new(cert.clone().into(), key.clone().into()))))
        }
        _ => Err(Error::invalid("a certificate needs its key: give both ?cert=FILE and &key=FILE")),
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self> {
        let (user, password) = text.split_once(':').map_or((text, None), |(user, word)| (user, Some(word)));
        if user.is_empty() {
            return Err(Error::invalid("a password needs a user: write USER:PASSWORD@HOST"));
        }
        Ok(Self { user: decoded(user)?, password: password.map(decoded).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_which_database() {
        let full = MySqlConfig::from_url("mysql://ann:s%40e:c@db.local:7000/shop").expect("a URL");
        assert_eq!(full.host, Host { name: "db.local".to_owned(), port: 7000 });
        assert_eq!(full.login, Login { user: "ann".to_owned(), password: Some("s@e:c".to_owned()) });
        assert_eq!((full.database.as_str(), full.table_prefix.as_str()), ("shop", "tollgate_"));
        let bare = MySqlConfig::from_url("mariadb://[::1]/test").expect("a URL");
        assert_eq!((bare.host.port, bare.login.user.as_str()), (3306, "root"));
        assert!(!format!("{full:?}").contains("s@e"), "passwords are not printed");
    }

    #[test]
    fn what_is_no_url_says_what_to_write() {
        for (url, says) in [
            ("mysql:db", "mysql://USER"),
            ("oracle://a/b", "mysql://USER"),
            ("mysql://a", "DATABASE"),
            ("mysql://a/", "DATABASE"),
            ("mysql://a,b/c", "one server"),
            ("mysql://a:port/c", "HOST:PORT"),
            ("mysql://:word@a/c", "USER:PASSWORD"),
        ] {
            let message = MySqlConfig::from_url(url).expect_err("it is none").to_string();
            assert!(message.contains(says), "{url}: {message}");
        }
        let mut config = MySqlConfig::from_url("mysql://a/b").expect("a URL");
        config.table_prefix = "a`b".to_owned();
        assert!(config.check().is_err());
        config.table_prefix = String::new();
        assert!(config.check().is_err());
    }
}
