//! How a session begins, and why it does not.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_core::url::Host;
use tollgate_core::{Clock, Error, ErrorKind, Moment, Result};
use zookeeper_client::{Client, Error as Fault};

use crate::calls::Calls;
use crate::config::ZooKeeperConfig;

/// How long servers are asked that are there, but elect a leader.
const TO_ELECT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a server may take to say what is wrong with it.
const TO_SAY: Duration = Duration::from_secs(1);
/// How soon a connection that is silent is given up for another, at most.
const SILENT: Duration = Duration::from_secs(4);

/// A session that ZooKeeper has just made.
pub(crate) struct Opened {
    pub(crate) calls: Calls,
    /// When it was asked for.
    pub(crate) asked: Moment,
    /// How long it lives.
    pub(crate) ttl: Duration,
}

/// Opens a session that is to live for `ttl`; ZooKeeper may give another. On the keeper: what keeps it alive is a task of the
/// runtime that this runs on.
pub(crate) async fn open(config: &ZooKeeperConfig, clock: &dyn Clock, ttl: Duration) -> Result<Opened> {
    let end = Instant::now() + TO_ELECT;
    loop {
        let asked = clock.now();
        match connect(config, ttl).await {
            Ok(client) => {
                let ttl = client.session_timeout();
                return Ok(Opened { calls: Calls::new(client, config.access), asked, ttl });
            }
            Err(Fault::AuthFailed) => {
                return Err(Error::new(
                    ErrorKind::Denied,
                    "ZooKeeper does not accept who we are; look at the URL",
                ));
            }
            Err(fault) => {
                let why = why_not(&config.hosts).await;
                if why.is_final || Instant::now() >= end {
                    return Err(Error::new(ErrorKind::Unavailable, why.text).caused_by(fault));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connect(config: &ZooKeeperConfig, ttl: Duration) -> std::result::Result<Client, Fault> {
    let mut connector = Client::connector()
        .with_session_timeout(ttl)
        .with_connection_timeout((ttl * 2 / 5).min(SILENT))
        .with_fail_eagerly();
    if let Some(login) = &config.login {
        connector = connector.with_auth("digest", format!("{}:{}", login.user, login.password).as_bytes());
    }
    let hosts: Vec<_> = config.hosts.iter().map(ToString::to_string).collect();
    connector.connect(&hosts.join(",")).await
}

/// Why there is no session.
struct Why {
    text: String,
    /// Whether there is nobody of whom more can be expected.
    is_final: bool,
}

/// Asks every server what is wrong with it: the driver does not tell.
async fn why_not(hosts: &[Host]) -> Why {
    let mut all = Vec::new();
    let mut is_final = true;
    for host in hosts {
        let says = match said_by(host).await {
            Ok(says) => {
                is_final = false;
                says
            }
            Err(error) => {
                is_final &= error.kind() != std::io::ErrorKind::TimedOut;
                error.to_string()
            }
        };
        all.push(format!("{host}: {says}"));
    }
    let text = format!("no server of this ZooKeeper gives us a session ({}); is it up?", all.join("; "));
    Why { text, is_final }
}

/// What a server answers to one of ZooKeeper's words of four letters.
pub(crate) async fn asked(host: &Host, word: &str) -> std::io::Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        // Servers that close without a word say nothing either.
        let _ = stream.take(65536).read_to_end(&mut answer).await;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer");
    tokio::time::timeout(TO_SAY, asking).await.unwrap_or_else(|_| Err(silent()))
}

/// What a server says of itself.
async fn said_by(host: &Host) -> std::io::Result<String> {
    let text = asked(host, "srvr").await?;
    Ok(match text.lines().next() {
        Some(line) if line.contains("not currently serving") => "it has no leader".to_owned(),
        Some(line) if line.starts_with("Zookeeper version") => "it serves others".to_owned(),
        Some(_) => "this is no ZooKeeper".to_owned(),
        None => "it closes the connection; does it want TLS?".to_owned(),
    })
}
