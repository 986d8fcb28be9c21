//! Which Redises, and how they are used together.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_core::tls::TlsFiles;
use tollgate_core::{Error, ErrorKind, Result};

use crate::config::{RedisConfig, Servers};
use crate::endpoint::Endpoint;
use crate::keys::check_prefix;
use crate::redlock::script::RESERVED;

/// Which Redises, and which part of them.
#[derive(Clone)]
pub struct RedlockConfig {
    /// One for each node: `redis://USER:PASSWORD@HOST:PORT/DB`, or `rediss://…` encrypted.
    pub nodes: Vec<String>,
    /// Files for those that are encrypted.
    pub tls: TlsFiles,
    /// What the keys of locks start with.
    pub prefix: String,
    /// The longest ttl that any client of these nodes uses. A node that restarted does not vote for so long.
    pub max_ttl: Duration,
}

impl std::fmt::Debug for RedlockConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its URLs have passwords in them.
        f.debug_struct("RedlockConfig").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl RedlockConfig {
    /// How long a ttl may be unless somebody says otherwise.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(300);

    /// The Redises at `nodes`, with the prefix that other clients use too.
    pub fn new(nodes: Vec<String>) -> Self {
        Self { nodes, tls: TlsFiles::default(), prefix: "lock:".to_owned(), max_ttl: Self::DEFAULT_MAX_TTL }
    }

    /// Refuses what cannot be a majority, and takes the URLs apart.
    pub(crate) fn checked(&self) -> Result<Vec<Endpoint>> {
        let count = self.nodes.len();
        if count < 3 {
            return Err(config(format!(
                "Redlock needs at least 3 independent nodes, and the configuration names {count}: with \
                 fewer, the loss of one is the loss of the majority. For a single Redis write redis://HOST"
            )));
        }
        if count.is_multiple_of(2) {
            return Err(config(format!(
                "Redlock needs an odd number of nodes, and the configuration names {count}: the last node \
                 costs a request and survives no further failure. Leave one out, or add one"
            )));
        }
        check_prefix(&self.prefix)?;
        if self.prefix.starts_with(RESERVED) {
            return Err(Error::invalid(format!(
                "keys that start with {RESERVED:?} are reserved for the record of voting nodes; choose \
                 another prefix"
            )));
        }
        let least = crate::redlock::capabilities::MIN_TTL;
        if self.max_ttl < least || !self.max_ttl.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(Error::invalid(format!(
                "max_ttl must be a whole number of milliseconds and at least {least:?}, not {:?}",
                self.max_ttl
            )));
        }
        let nodes = self.nodes.iter().map(|url| self.endpoint(url)).collect::<Result<Vec<_>>>()?;
        let mut seen = HashSet::new();
        for node in &nodes {
            let address = node.address().to_lowercase();
            if !seen.insert(address.clone()) {
                return Err(config(format!(
                    "{address} is named twice; every node must be a separate Redis server"
                )));
            }
        }
        Ok(nodes)
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint> {
        let node = self.node(url)?;
        match &node.servers {
            Servers::One(host) => Ok(Endpoint::new(host.clone(), node.speech()?)),
            _ => Err(config(
                "a Redlock node is one Redis server, not a cluster, and not behind sentinels".to_owned(),
            )),
        }
    }

    /// One node by itself.
    pub(crate) fn node(&self, url: &str) -> Result<RedisConfig> {
        let mut node = RedisConfig::from_url(url)?;
        if let Some(files) = &mut node.tls {
            *files = self.tls.clone();
        }
        Ok(RedisConfig { prefix: self.prefix.clone(), ..node })
    }
}

fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(nodes: &[&str]) -> String {
        let config = RedlockConfig::new(nodes.iter().map(|host| format!("redis://{host}")).collect());
        let error = config.checked().err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    #[test]
    fn what_can_be_no_majority_is_refused_with_the_reason() {
        assert!(refused(&["a"]).contains("at least 3"));
        assert!(refused(&["a", "b"]).contains("at least 3"));
        assert!(refused(&["a", "b", "c", "d"]).contains("odd number"));
        let twice = refused(&["a", "b", "A:6379"]);
        assert!(twice.contains("a:6379 is named twice"), "{twice}");
    }

    #[test]
    fn a_prefix_that_nodes_need_themselves_is_refused() {
        let nodes = ["a", "b", "c"].map(|host| format!("redis://{host}"));
        for prefix in ["tollgate:", "tollgate:member:"] {
            let config = RedlockConfig { prefix: prefix.to_owned(), ..RedlockConfig::new(nodes.to_vec()) };
            let error = config.checked().err().expect("it is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("voting nodes"), "{error}");
        }
    }

    #[test]
    fn a_password_is_never_told() {
        let nodes = ["a", "b", "u:secret@[bad"].map(|host| format!("redis://{host}"));
        let error = RedlockConfig::new(nodes.to_vec()).checked().err().expect("it is refused");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
