//! How a session begins, and why it does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_core::tls::{TlsFiles, insecure, is_refusal};
use tollgate_core::url::Host;
use tollgate_core::{Clock, Error, ErrorKind, Moment, Result};

use crate::calls::Calls;
use crate::config::ZooKeeperConfig;
use crate::wire::{Client, Dialer, Refusal, SILENT};

/// How long servers are asked that are there, but elect a leader.
const TO_ELECT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a server may take to say what is wrong with it.
const TO_SAY: Duration = Duration::from_secs(1);

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
pub(crate) async fn open(config: &ZooKeeperConfig, clock: Arc<dyn Clock>, ttl: Duration) -> Result<Opened> {
    let end = Instant::now() + TO_ELECT;
    let tls = config.tls.as_ref().map(|files| tollgate_core::tls::client(files, &[])).transpose()?;
    let login = config.login.as_ref().map(|login| format!("{}:{}", login.user, login.password));
    let mut dialer = Dialer::new(&config.hosts, tls, login, clock, SILENT);
    loop {
        let refusal = match Client::open(dialer, ttl).await {
            Ok(client) => {
                let (asked, ttl) = {
                    let status = client.status();
                    let status = status.borrow();
                    (status.asked, status.timeout)
                };
                return Ok(Opened { calls: Calls::new(client, config.access), asked, ttl });
            }
            Err((same, refusal)) => {
                dialer = same;
                refusal
            }
        };
        let fault = match refusal {
            Refusal::Denied => {
                return Err(Error::new(ErrorKind::Denied, "ZooKeeper rejected the login; check the URL"));
            }
            Refusal::Expired => std::io::Error::other("the server grants no session"),
            Refusal::Nobody(error) => error,
        };
        let why = why_not(config).await;
        if why.kind != ErrorKind::Unavailable || why.is_final || Instant::now() >= end {
            return Err(Error::new(why.kind, why.text).caused_by(fault));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What servers say about it.
struct Why {
    kind: ErrorKind,
    text: String,
    /// Whether there is nobody of whom more can be expected.
    is_final: bool,
}

/// Asks every server what is wrong with it: whoever gives no session does not say why.
async fn why_not(config: &ZooKeeperConfig) -> Why {
    let (mut all, mut is_final) = (Vec::new(), true);
    let mut kind = None;
    let asking = config.hosts.iter().map(async |host| match &config.tls {
        None => said_by(host).await,
        Some(files) => shown_by(host, files).await,
    });
    for (host, says) in config.hosts.iter().zip(join_all(asking).await) {
        let (says, its_kind) = match says {
            Ok(says) => {
                is_final = false;
                (format!("{host}: {says}"), ErrorKind::Unavailable)
            }
            Err(error) => (error.message().to_owned(), error.kind()),
        };
        all.push(says);
        // What all have in common, or that there is nobody.
        kind = Some(kind.filter(|kind| *kind != its_kind).map_or(its_kind, |_| ErrorKind::Unavailable));
    }
    let text = format!("no server of this ZooKeeper grants a session: {}", all.join("; "));
    Why { kind: kind.unwrap_or(ErrorKind::Unavailable), text, is_final }
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

/// How a server takes an encrypted connection.
async fn shown_by(host: &Host, files: &TlsFiles) -> Result<String> {
    let config = tollgate_core::tls::client(files, &[])?;
    let name = ServerName::try_from(host.name.clone()).map_err(|error| {
        Error::invalid(format!("{} is not a name that a certificate can have", host.name)).caused_by(error)
    })?;
    let handshake = async {
        let stream =
            TcpStream::connect((host.name.as_str(), host.port)).await.map_err(|error| away(host, &error))?;
        let mut stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|error| insecure(host, "zookeeper", error))?;
        // It says only now that it does not like our certificate, or that we have none.
        match tokio::time::timeout(TO_SAY / 2, stream.read_u8()).await {
            Ok(Err(error)) if is_refusal(&error) => Err(insecure(host, "zookeeper", error)),
            _ => Ok("it accepts the connection, but grants no session; does it have a leader?".to_owned()),
        }
    };
    let silent = || Ok("it does not answer, or does not speak TLS".to_owned());
    tokio::time::timeout(TO_SAY, handshake).await.unwrap_or_else(|_| silent())
}

fn away(host: &Host, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{host}: {error}"))
}

/// What a server says of itself.
async fn said_by(host: &Host) -> Result<String> {
    let text = match asked(host, "srvr").await {
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            return Ok("it does not answer; does it require TLS?".to_owned());
        }
        text => text.map_err(|error| away(host, &error))?,
    };
    Ok(match text.lines().next() {
        Some(line) if line.contains("not currently serving") => "it has no leader".to_owned(),
        Some(line) if line.starts_with("Zookeeper version") => "it serves other clients".to_owned(),
        Some(_) => {
            return Err(Error::new(ErrorKind::Unavailable, format!("{host}: this is not a ZooKeeper")));
        }
        None => "it closes the connection; does it require TLS?".to_owned(),
    })
}
