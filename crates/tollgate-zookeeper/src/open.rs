//! How a session begins, and why it does not.

use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_core::tls::{Pem, TlsFiles, insecure, is_refusal, pem};
use tollgate_core::url::Host;
use tollgate_core::{Clock, Error, ErrorKind, Moment, Result};
use zookeeper_client::{Client, Error as Fault, TlsOptions};

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
            Err(Refusal::Unfit(error)) => return Err(error),
            Err(Refusal::Fault(Fault::AuthFailed)) => {
                return Err(Error::new(
                    ErrorKind::Denied,
                    "ZooKeeper does not accept who we are; look at the URL",
                ));
            }
            Err(Refusal::Fault(fault)) => {
                let why = why_not(config).await;
                if why.kind != ErrorKind::Unavailable || why.is_final || Instant::now() >= end {
                    return Err(Error::new(why.kind, why.text).caused_by(fault));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connect(config: &ZooKeeperConfig, ttl: Duration) -> Result<Client, Refusal> {
    let mut connector = Client::connector()
        .with_session_timeout(ttl)
        .with_connection_timeout((ttl * 2 / 5).min(SILENT))
        .with_fail_eagerly();
    if let Some(login) = &config.login {
        connector = connector.with_auth("digest", format!("{}:{}", login.user, login.password).as_bytes());
    }
    let hosts: Vec<_> = config.hosts.iter().map(ToString::to_string).collect();
    let Some(files) = &config.tls else { return Ok(connector.connect(&hosts.join(",")).await?) };
    let connector = connector.with_tls(tls(files)?);
    Ok(connector.secure_connect(&hosts.join(",")).await?)
}

/// Why there is no session.
enum Refusal {
    /// What we have been told to use cannot be used.
    Unfit(Error),
    /// Nobody gave us one.
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn tls(files: &TlsFiles) -> Result<TlsOptions, Refusal> {
    let Pem { ca, identity } = pem(files).map_err(Refusal::Unfit)?;
    // The driver takes the process's own; whoever has chosen one keeps it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let unusable =
        |fault: Fault| Refusal::Unfit(Error::invalid("these certificates cannot be used").caused_by(fault));
    let mut options = TlsOptions::new().with_pem_ca(&ca).map_err(unusable)?;
    if let Some((cert, key)) = identity {
        options = options.with_pem_identity(&cert, &key).map_err(unusable)?;
    }
    Ok(options)
}

/// What servers say about it.
struct Why {
    kind: ErrorKind,
    text: String,
    /// Whether there is nobody of whom more can be expected.
    is_final: bool,
}

/// Asks every server what is wrong with it: the driver does not tell.
async fn why_not(config: &ZooKeeperConfig) -> Why {
    let (mut all, mut is_final) = (Vec::new(), true);
    let mut kind = None;
    for host in &config.hosts {
        let says = match &config.tls {
            None => said_by(host).await,
            Some(files) => shown_by(host, files).await,
        };
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
    let text = format!("no server of this ZooKeeper gives us a session: {}", all.join("; "));
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
        Error::invalid(format!("{} is no name that a certificate can have", host.name)).caused_by(error)
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
            _ => Ok("it takes the connection, and gives no session; has it a leader?".to_owned()),
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
            return Ok("it does not answer; does it want TLS?".to_owned());
        }
        text => text.map_err(|error| away(host, &error))?,
    };
    Ok(match text.lines().next() {
        Some(line) if line.contains("not currently serving") => "it has no leader".to_owned(),
        Some(line) if line.starts_with("Zookeeper version") => "it serves others".to_owned(),
        Some(_) => "this is no ZooKeeper".to_owned(),
        None => "it closes the connection; does it want TLS?".to_owned(),
    })
}
