//! Which etcd, as a URL says it.

use tollgate_core::tls::TlsFiles;
use tollgate_core::url::{Host, decoded};
use tollgate_core::{Error, Result};

/// Where etcd listens for clients unless somebody says otherwise.
const PORT: u16 = 2379;

/// Which etcd, who we are to it, and which part of it is ours.
#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// Members of one cluster, or one; whichever answers is used.
    pub endpoints: Vec<Host>,
    /// Who we are, if etcd asks.
    pub login: Option<Login>,
    /// Encrypted, if there is something here.
    pub tls: Option<TlsFiles>,
    /// What the keys of locks start with.
    pub prefix: String,
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Who.
    pub user: String,
    /// Their secret.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl EtcdConfig {
    /// Reads `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/`; `etcds://` encrypts. Without parameters.
    pub fn from_url(url: &str) -> Result<Self> {
        let wrong = || Error::invalid("this is not an etcd URL; write etcd://HOST:PORT,HOST:PORT/");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "etcd" => None,
            "etcds" => Some(TlsFiles::default()),
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(Login::parse(login)?), hosts),
            None => (None, authority),
        };
        if !path.is_empty() {
            return Err(Error::invalid(
                "an etcd URL ends with its hosts; the key prefix is ?prefix=, and / in a password is %2F",
            ));
        }
        let endpoints = tollgate_core::url::hosts(hosts, PORT)?;
        Ok(Self { endpoints, login, tls, prefix: "/locks/".to_owned() })
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self> {
        let (user, password) = text
            .split_once(':')
            .filter(|(user, _)| !user.is_empty())
            .ok_or_else(|| Error::invalid("an etcd user needs a password: write USER:PASSWORD@HOST"))?;
        Ok(Self { user: decoded(user)?, password: decoded(password)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.to_owned(), port }
    }

    #[test]
    fn urls_say_which_etcd() {
        let three = EtcdConfig::from_url("etcd://ann:s%40e:c@a,b:7000,[::1]/").unwrap();
        assert_eq!(three.endpoints, [host("a", 2379), host("b", 7000), host("::1", 2379)]);
        assert_eq!(three.login, Some(Login { user: "ann".to_owned(), password: "s@e:c".to_owned() }));
        assert_eq!((three.tls, three.prefix.as_str()), (None, "/locks/"));
        let bare = EtcdConfig::from_url("etcds://").unwrap();
        assert_eq!(bare.endpoints, [host("127.0.0.1", 2379)]);
        assert_eq!((bare.tls, bare.login), (Some(TlsFiles::default()), None));
    }

    #[test]
    fn what_is_no_url_says_what_to_write() {
        for (url, says) in [
            ("etcd:a", "etcd://HOST:PORT"),
            ("etcdx://a", "etcd://HOST:PORT"),
            ("etcd://a:port", "HOST:PORT"),
            ("etcd://a:0", "HOST:PORT"),
            ("etcd://a/x", "?prefix="),
            ("etcd://ann:%zz@a", "%25"),
            ("etcd://ann@a", "USER:PASSWORD"),
            ("etcd://ann:se/cr3t@a", "%2F"),
        ] {
            let message = EtcdConfig::from_url(url).unwrap_err().to_string();
            assert!(message.contains(says), "{url}: {message}");
        }
        let secret = EtcdConfig::from_url("etcd://ann:hush@a").unwrap();
        assert!(!format!("{secret:?}").contains("hush"));
    }
}
