//! Which Redis, as a URL says it.

use redis::{ProtocolVersion, RedisConnectionInfo};
use tollgate_core::tls::{self, TlsFiles};
use tollgate_core::url::{Host, decoded};
use tollgate_core::{Error, Result};

use crate::endpoint::Speech;

/// Which Redis, who we are to it, and which part of it is ours.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// Where it is.
    pub servers: Servers,
    /// Who we are.
    pub login: Login,
    /// The number of the database.
    pub database: i64,
    /// Encrypted, if there is something here.
    pub tls: Option<TlsFiles>,
    /// What the keys of locks start with.
    pub prefix: String,
}

/// Where a Redis is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Servers {
    /// One server.
    One(Host),
    /// Whichever is the primary now.
    Sentinel {
        /// Who knows it.
        sentinels: Vec<Host>,
        /// What they call it.
        service: String,
        /// Who we are to them.
        login: Login,
    },
    /// A cluster, of which these are known.
    Cluster(Vec<Host>),
}

/// A user and a password. Prints neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; Redis has one called `default`.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

impl RedisConfig {
    /// What a URL without parameters says, with the prefix that other clients use, too:
    /// `redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://…` encrypted, `redis-sentinel://HOST,HOST/SERVICE/DB` and
    /// `redis-cluster://HOST,HOST`.
    pub fn from_url(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (encrypted, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").ok_or_else(wrong)?),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::parse(login)?, hosts),
            None => (Login::default(), authority),
        };
        let hosts = |port| tollgate_core::url::hosts(hosts, port);
        let (servers, database) = match kind {
            "" => match <[Host; 1]>::try_from(hosts(6379)?) {
                Ok([host]) => (Servers::One(host), path),
                Err(_) => return Err(Error::invalid(SEVERAL)),
            },
            "-sentinel" => {
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() {
                    return Err(Error::invalid(
                        "name the service of the primary: redis-sentinel://HOST:26379/SERVICE, as in \
                         sentinel.conf",
                    ));
                }
                let (sentinels, service) = (hosts(26379)?, decoded(service)?);
                (Servers::Sentinel { sentinels, service, login: Login::default() }, database)
            }
            "-cluster" => (Servers::Cluster(hosts(6379)?), path),
            _ => return Err(wrong()),
        };
        let tls = encrypted.then(TlsFiles::default);
        let database = number(database)?;
        if database != 0 && matches!(servers, Servers::Cluster(_)) {
            return Err(Error::invalid("a cluster has only database 0; leave the number out"));
        }
        Ok(Self { servers, login, database, tls, prefix: "lock:".to_owned() })
    }

    /// How servers are spoken to.
    pub(crate) fn speech(&self) -> Result<Speech> {
        Ok(Speech {
            login: self.login.info().set_db(self.database),
            tls: self.tls.as_ref().map(|files| tls::client(files, &[])).transpose()?,
        })
    }
}

const SEVERAL: &str = "redis:// is one Redis; several are redis-sentinel://, redis-cluster:// or, if they \
                       are independent of each other, redlock://";

fn wrong() -> Error {
    Error::invalid("this is not a Redis URL; write redis://HOST:PORT/")
}

fn number(text: &str) -> Result<i64> {
    if text.is_empty() {
        return Ok(0);
    }
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| Error::invalid(format!("{text:?} is not a Redis database; databases have numbers")))
}

impl Login {
    /// `USER:PASSWORD` or `:PASSWORD`, percent-encoded where they have to be.
    fn parse(text: &str) -> Result<Self> {
        let (user, password) = text.split_once(':').map_or((text, None), |(user, word)| (user, Some(word)));
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        if user.is_some() && password.is_none() {
            return Err(Error::invalid(
                "a user needs a password: write USER:PASSWORD@HOST, or :PASSWORD@HOST",
            ));
        }
        Ok(Self { user, password: password.map(decoded).transpose()? })
    }

    pub(crate) fn info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        info = info.set_lib_name("tollgate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.to_owned(), port }
    }

    #[test]
    fn urls_say_which_redis() {
        let one = RedisConfig::from_url("redis://ann:s%40e:c@cache.local:7000/3").unwrap();
        assert_eq!(one.servers, Servers::One(host("cache.local", 7000)));
        assert_eq!((one.login.user.as_deref(), one.login.password.as_deref()), (Some("ann"), Some("s@e:c")));
        assert_eq!((one.database, one.tls), (3, None));
        let bare = RedisConfig::from_url("rediss://[::1]").unwrap();
        assert_eq!(bare.servers, Servers::One(host("::1", 6379)));
        assert_eq!(bare.tls, Some(TlsFiles::default()));
        let sentinel = RedisConfig::from_url("redis-sentinel://:pw@a,b:1/main/2").unwrap();
        let sentinels = vec![host("a", 26379), host("b", 1)];
        let (service, login) = ("main".to_owned(), Login::default());
        assert_eq!(sentinel.servers, Servers::Sentinel { sentinels, service, login });
        assert_eq!((sentinel.database, sentinel.login.user), (2, None));
        let cluster = RedisConfig::from_url("redis-cluster://a,b").unwrap();
        assert_eq!(cluster.servers, Servers::Cluster(vec![host("a", 6379), host("b", 6379)]));
    }

    #[test]
    fn what_is_no_url_says_what_to_write() {
        for (url, says) in [
            ("redis:cache", "redis://HOST:PORT"),
            ("redis://a,b", "redlock://"),
            ("redis://a:port", "HOST:PORT"),
            ("redis://a:0", "HOST:PORT"),
            ("redis://a/x", "numbers"),
            ("redis://:%zz@a", "%25"),
            ("redis://ann@a", "USER:PASSWORD"),
            ("redis://ann:se/cr3t@a", "%2F"),
            ("redis-sentinel://a", "SERVICE"),
            ("redis-cluster://a/1", "database 0"),
            ("redis-something://a", "redis://HOST:PORT"),
        ] {
            let message = RedisConfig::from_url(url).unwrap_err().to_string();
            assert!(message.contains(says), "{url}: {message}");
        }
        let secret = RedisConfig::from_url("redis://:hush@a").unwrap();
        assert!(!format!("{secret:?}").contains("hush"));
    }
}
