//! Which server, as a URL says it.

use std::path::PathBuf;

use tollgate_core::url::{Host, decoded, hosts};
use tollgate_core::{Error, Result};

/// The port of the server unless the URL says another.
const PORT: u16 = 7420;

/// Which server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Addresses of one server, or of several over one engine. They are tried in turn.
    pub servers: Vec<Address>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(Host),
    /// A Unix socket of this machine.
    Unix(PathBuf),
}

impl RemoteConfig {
    /// Reads `tollgate://HOST:PORT,HOST:PORT` or `tollgate+unix:PATH`, without parameters.
    pub fn from_url(url: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "this is not the URL of a lock server; write tollgate://HOST:PORT or tollgate+unix:PATH",
            )
        };
        if let Some(path) = url.strip_prefix("tollgate+unix:") {
            let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
            if path.is_empty() {
                return Err(wrong());
            }
            return Ok(Self { servers: vec![Address::Unix(PathBuf::from(decoded(path)?))] });
        }
        let authority = url.strip_prefix("tollgate://").ok_or_else(wrong)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains('@') {
            return Err(Error::invalid(
                "a lock server takes no user and password in its URL; write tollgate://HOST:PORT",
            ));
        }
        if authority.contains('/') {
            return Err(Error::invalid(
                "the URL of a lock server ends with its hosts; to keep locks apart, use ?namespace=",
            ));
        }
        let servers = hosts(authority, PORT)?.into_iter().map(Address::Tcp).collect();
        Ok(Self { servers })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host) => host.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_or_a_socket() {
        let read = |url: &str| {
            let servers = RemoteConfig::from_url(url).unwrap().servers;
            servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(read("tollgate://"), "127.0.0.1:7420");
        assert_eq!(read("tollgate://db1,db2:7421/"), "db1:7420 db2:7421");
        assert_eq!(read("tollgate://[::1]:7421"), "[::1]:7421");
        assert_eq!(read("tollgate+unix:/run/tollgate.sock"), "/run/tollgate.sock");
        assert_eq!(read("tollgate+unix:///run/to%20ll.sock"), "/run/to ll.sock");
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for url in [
            "tollgate:host",
            "tollgate+unix:",
            "http://host",
            "tollgate://host/db",
            "tollgate://user:secret@host",
            "tollgate://a,",
        ] {
            let error = RemoteConfig::from_url(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
