//! Which ZooKeeper, as a URL says it.

use std::time::Duration;

use tollgate_core::tls::TlsFiles;
use tollgate_core::url::{Host, decoded};
use tollgate_core::{Error, LockName, Result};

use crate::names::{is_taken, path_of};

/// Where ZooKeeper listens for clients unless somebody says otherwise.
const PORT: u16 = 2181;
/// ZooKeeper's own unit of time unless somebody says otherwise.
const TICK: Duration = Duration::from_secs(2);

/// Which ZooKeeper, who we are to it, and which part of it is ours.
#[derive(Debug, Clone)]
pub struct ZooKeeperConfig {
    /// Servers of one ensemble, or one; whichever answers is used.
    pub hosts: Vec<Host>,
    /// Who we are, if the nodes of locks are not everybody's.
    pub login: Option<Login>,
    /// Encrypted, if there is something here.
    pub tls: Option<TlsFiles>,
    /// The node that everything is under, like `/app`; empty for the root.
    pub chroot: String,
    /// The node that the folders of locks are in.
    pub prefix: String,
    /// Whose nodes ours look like.
    pub style: Style,
    /// Who may use the nodes we create.
    pub access: Access,
    /// ZooKeeper's unit of time, `tickTime` in its configuration. Too large a value costs time, too small a one safety.
    pub tick: Duration,
}

/// A user and a password, as ZooKeeper's scheme `digest` has them.
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

/// Whose locks ours exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Curator's `InterProcessMutex`.
    #[default]
    Curator,
    /// Curator's `InterProcessReadWriteLock`.
    CuratorReadWrite,
    /// kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

impl Style {
    /// The style that a URL calls so.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "curator" => Some(Self::Curator),
            "curator-rw" => Some(Self::CuratorReadWrite),
            "kazoo" => Some(Self::Kazoo),
            _ => None,
        }
    }
}

/// Who may use the nodes we create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Open,
    /// Whoever logs in as we do; others may look.
    Readable,
    /// Whoever logs in as we do.
    Closed,
}

impl Access {
    /// The access that a URL calls so.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "open" => Some(Self::Open),
            "read" => Some(Self::Readable),
            "creator" => Some(Self::Closed),
            _ => None,
        }
    }
}

impl ZooKeeperConfig {
    /// Reads `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/CHROOT`; `zookeepers://` encrypts. Without parameters.
    pub fn from_url(url: &str) -> Result<Self> {
        let wrong =
            || Error::invalid("this is not a ZooKeeper URL; write zookeeper://HOST:PORT,HOST:PORT/CHROOT");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "zookeeper" => None,
            "zookeepers" => Some(TlsFiles::default()),
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(Login::parse(login)?), hosts),
            None => (None, authority),
        };
        let hosts = tollgate_core::url::hosts(hosts, PORT)?;
        let access = if login.is_some() { Access::Closed } else { Access::Open };
        Ok(Self {
            hosts,
            login,
            tls,
            chroot: folder(path)?,
            prefix: "/locks".to_owned(),
            style: Style::default(),
            access,
            tick: TICK,
        })
    }

    /// With the folders of locks in `prefix`.
    pub fn with_prefix(mut self, prefix: &str) -> Result<Self> {
        self.prefix = folder(prefix)?;
        Ok(self)
    }

    /// With the locks of a namespace alone.
    pub fn within(mut self, namespace: &str) -> Result<Self> {
        self.prefix = format!("{}/{}", self.prefix, path_of(&LockName::new(namespace)?));
        Ok(self)
    }

    /// The node that the folders of locks are in, from the real root.
    pub(crate) fn root(&self) -> Result<String> {
        let root = format!("{}{}", self.chroot, self.prefix);
        if root.is_empty() || root == "/zookeeper" || root.starts_with("/zookeeper/") {
            return Err(Error::invalid(
                "locks need a node of their own, and /zookeeper belongs to ZooKeeper; write ?prefix=/locks",
            ));
        }
        Ok(root)
    }
}

/// A path like `/a/b`, or nothing.
fn folder(text: &str) -> Result<String> {
    let text = decoded(text)?;
    let text = text.trim_matches('/');
    if text.is_empty() {
        return Ok(String::new());
    }
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && part.chars().all(is_taken);
    if !text.split('/').all(plain) {
        return Err(Error::invalid("this is not a valid ZooKeeper path; write it like /app/locks"));
    }
    Ok(format!("/{text}"))
}

impl Login {
    fn parse(text: &str) -> Result<Self> {
        let (user, password) = text
            .split_once(':')
            .filter(|(user, _)| !user.is_empty())
            .ok_or_else(|| Error::invalid("a ZooKeeper user needs a password: write USER:PASSWORD@HOST"))?;
        let login = Self { user: decoded(user)?, password: decoded(password)? };
        if login.user.contains(':') {
            return Err(Error::invalid("the name of a ZooKeeper user cannot contain a :"));
        }
        Ok(login)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_which_zookeeper() {
        let three = ZooKeeperConfig::from_url("zookeeper://ann:s%40e:c@a,b:7000,[::1]/app/x/").unwrap();
        let hosts: Vec<_> = three.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:2181", "b:7000", "[::1]:2181"]);
        assert_eq!(three.login, Some(Login { user: "ann".to_owned(), password: "s@e:c".to_owned() }));
        assert_eq!((three.root().unwrap().as_str(), three.access), ("/app/x/locks", Access::Closed));
        let bare = ZooKeeperConfig::from_url("zookeeper://").unwrap();
        assert_eq!((bare.root().unwrap().as_str(), bare.access), ("/locks", Access::Open));
        assert_eq!(bare.with_prefix("/a/b/").unwrap().root().unwrap(), "/a/b");
    }

    #[test]
    fn what_is_no_url_says_what_to_write() {
        for (url, says) in [
            ("zookeeper:a", "zookeeper://HOST:PORT"),
            ("zoo://a", "zookeeper://HOST:PORT"),
            ("zookeeper://a:port", "HOST:PORT"),
            ("zookeeper://a/x//y", "/app/locks"),
            ("zookeeper://a/../y", "/app/locks"),
            ("zookeeper://a/%EE%80%80", "/app/locks"),
            ("zookeeper://a/x%F0%9F%98%80", "/app/locks"),
            ("zookeeper://ann@a", "USER:PASSWORD"),
        ] {
            let message = ZooKeeperConfig::from_url(url).unwrap_err().to_string();
            assert!(message.contains(says), "{url}: {message}");
        }
        let bare = || ZooKeeperConfig::from_url("zookeeper://a").unwrap();
        assert!(bare().with_prefix("").unwrap().root().is_err());
        assert!(bare().with_prefix("/%EE%80%80").is_err() && bare().with_prefix("/%C2%80").is_err());
        assert!(bare().with_prefix("/zookeeper/locks").unwrap().root().is_err());
        let secret = ZooKeeperConfig::from_url("zookeeper://ann:hush@a").unwrap();
        assert!(!format!("{secret:?}").contains("hush"));
    }
}
