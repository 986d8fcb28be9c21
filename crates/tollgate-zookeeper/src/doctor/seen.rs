//! What can be asked of a ZooKeeper.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::url::Host;
use tollgate_core::{BootClock, Error, ErrorKind, Keeper, Result};

use super::word::answer;
use crate::calls::Calls;
use crate::config::ZooKeeperConfig;
use crate::error::Trouble;
use crate::open::{Opened, open};
use crate::wire::Acl;

/// The longest session that can be asked for.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// How long the end of our session is waited for.
const TO_CLOSE: Duration = Duration::from_secs(1);

/// A ZooKeeper, as far as it tells.
pub(super) struct Seen {
    /// Every server that the URL names.
    pub(super) servers: Vec<Server>,
    /// What can be asked by those who have a session, or why nobody gives us one.
    pub(super) inside: Result<Inside>,
}

/// A ZooKeeper as somebody sees it who has a session.
pub(super) struct Inside {
    /// How many servers the ensemble has that vote; none if it does not say so.
    pub(super) voters: Option<usize>,
    /// How long a session may last.
    pub(super) longest: Duration,
    /// Whether some server keeps sessions to itself.
    pub(super) has_local_sessions: bool,
    /// The nearest node to the folder of locks that is there, and who may do what with it.
    pub(super) folder: std::result::Result<(String, Vec<Acl>), String>,
}

/// A server, as it speaks of itself.
pub(super) struct Server {
    pub(super) host: Host,
    /// What it says of its state, or why it says nothing.
    pub(super) state: std::result::Result<HashMap<String, String>, String>,
    /// Its settings, where it tells them.
    pub(super) settings: HashMap<String, String>,
}

impl Server {
    /// `leader`, `follower`, `observer` or `standalone`.
    pub(super) fn mode(&self) -> Option<&str> {
        self.state.as_ref().ok()?.get("Mode").map(String::as_str)
    }

    /// Like `3.8.0`.
    pub(super) fn version(&self) -> Option<&str> {
        let text = self.state.as_ref().ok()?.get("Zookeeper version")?;
        text.split(['-', ',', ' ']).next().filter(|version| !version.is_empty())
    }

    pub(super) fn setting(&self, name: &str) -> Option<Duration> {
        self.settings.get(name)?.parse().ok().map(Duration::from_millis)
    }
}

impl Seen {
    pub(super) async fn look(config: &ZooKeeperConfig) -> Result<Self> {
        let mut servers = Vec::new();
        for host in &config.hosts {
            let tls = config.tls.as_ref();
            let state = answer(host, tls, "srvr").await.map_err(|error| error.to_string());
            let state = state.and_then(|text| state_of(&text));
            let settings = answer(host, tls, "conf").await.map(|text| pairs(&text, '=')).unwrap_or_default();
            servers.push(Server { host: host.clone(), state, settings });
        }
        let inside = Inside::look(config).await;
        match inside {
            // Nobody is there at all, or nobody we may talk to: there is nothing to tell of.
            Err(error) if error.kind() != ErrorKind::Unavailable || servers.iter().all(is_silent) => {
                Err(error)
            }
            inside => Ok(Self { servers, inside }),
        }
    }
}

/// What a server says when it is asked for its state.
fn state_of(text: &str) -> std::result::Result<HashMap<String, String>, String> {
    let state = pairs(text, ':');
    if state.contains_key("Zookeeper version") || text.contains("not currently serving") {
        return Ok(state);
    }
    Err(match text.lines().next().filter(|line| !line.is_empty()) {
        None => "the server closes the connection; does it require TLS?".to_owned(),
        Some(line) if line.contains("whitelist") => line.to_owned(),
        Some(_) => "the server is not a ZooKeeper".to_owned(),
    })
}

fn is_silent(server: &Server) -> bool {
    server.state.is_err()
}

impl Inside {
    async fn look(config: &ZooKeeperConfig) -> Result<Self> {
        let keeper = Keeper::global()?;
        let config = config.clone();
        // The session's task stays where the session was opened.
        let session = keeper.clone().spawn(async move {
            let opened = open(&config, Arc::new(BootClock::new(keeper)), LONGEST).await?;
            let (voters, folder) = (voters(&opened).await, folder(&opened.calls, &config.root()?).await);
            let has_local_sessions = are_local(&config).await;
            // It would last as long as ZooKeeper lets it.
            opened.calls.close();
            let mut status = opened.calls.status();
            let _ = tokio::time::timeout(TO_CLOSE, status.wait_for(|status| status.has_ended)).await;
            Ok(Self { longest: opened.ttl, voters, has_local_sessions, folder })
        });
        session.await.map_err(|panic| {
            Error::new(ErrorKind::Unexpected, "the examination did not finish").caused_by(panic)
        })?
    }
}

/// Whether a server has sessions that its leader knows nothing of; ours, which has no nodes, would be one.
async fn are_local(config: &ZooKeeperConfig) -> bool {
    for host in &config.hosts {
        let said = answer(host, config.tls.as_ref(), "mntr").await.map(|text| pairs(&text, '\t'));
        let count = said.ok().and_then(|said| said.get("zk_local_sessions")?.parse::<f64>().ok());
        if count.is_some_and(|count| count > 0.0) {
            return true;
        }
    }
    false
}

/// The lines of an answer that name something and say what it is.
fn pairs(text: &str, between: char) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(between));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

async fn voters(opened: &Opened) -> Option<usize> {
    let text = opened.calls.ensemble().await.ok()?;
    let servers = text.lines().filter(|line| line.starts_with("server.") && !line.contains(":observer"));
    Some(servers.count()).filter(|voters| *voters > 0)
}

/// The nearest node to `path` that is there, with its access list.
async fn folder(calls: &Calls, path: &str) -> std::result::Result<(String, Vec<Acl>), String> {
    let mut path = path;
    loop {
        match calls.acl(path).await {
            Ok(acl) => return Ok((path.to_owned(), acl)),
            Err(Trouble::NoNode) if path != "/" => {
                path = path
                    .rsplit_once('/')
                    .map_or("/", |(above, _)| if above.is_empty() { "/" } else { above });
            }
            Err(trouble) => return Err(Error::from(trouble).message().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_understood() {
        let said = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022\n\
                    Latency min/avg/max: 0/0.0/0\nMode: follower\nNode count: 5\n";
        let server = Server {
            host: Host { name: "a".to_owned(), port: 1 },
            state: Ok(pairs(said, ':')),
            settings: pairs("clientPort=2181\ntickTime=2000\n", '='),
        };
        assert_eq!((server.mode(), server.version()), (Some("follower"), Some("3.8.0")));
        assert_eq!(server.setting("tickTime"), Some(Duration::from_secs(2)));
        assert_eq!(server.setting("maxSessionTimeout"), None);
        let waits = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(state_of(waits), Ok(HashMap::new()));
        assert!(state_of("HTTP/1.1 400 Bad Request\nServer: x\n").unwrap_err().contains("not a ZooKeeper"));
        let unsaid = state_of("srvr is not executed because it is not in the whitelist.\n").unwrap_err();
        assert!(unsaid.contains("whitelist"), "{unsaid}");
    }
}
