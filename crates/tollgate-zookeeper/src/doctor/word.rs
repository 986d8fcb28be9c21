//! ZooKeeper's words of four letters, spoken as clients of the server speak.

use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_core::tls::{TlsFiles, client};
use tollgate_core::url::Host;

use crate::open::asked;

/// How long a server may take to answer. Its first handshake takes a busy one seconds.
const TO_SAY: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const LONGEST: u64 = 65536;

/// What a server answers to `word`, over an encrypted connection if there are files for one.
pub(super) async fn answer(host: &Host, tls: Option<&TlsFiles>, word: &str) -> io::Result<String> {
    let Some(files) = tls else { return asked(host, word).await };
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
    tokio::time::timeout(TO_SAY, over_tls(host, files, word)).await.unwrap_or_else(|_| Err(silent()))
}

async fn over_tls(host: &Host, files: &TlsFiles, word: &str) -> io::Result<String> {
    let config = client(files, &[]).map_err(io::Error::other)?;
    let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = Vec::new();
    // Servers that close without a word say nothing either.
    let _ = stream.take(LONGEST).read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
