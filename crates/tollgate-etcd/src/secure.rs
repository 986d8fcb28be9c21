//! Encryption of a connection, and what can be wrong with it.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_core::tls::{insecure, is_refusal};
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Result};

/// How long a server may take to say that it does not like our certificate.
const TO_REFUSE: Duration = Duration::from_millis(500);

/// Encrypts a connection.
pub(crate) async fn secured(
    host: &Host,
    tls: &Arc<ClientConfig>,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.name.clone()).map_err(|error| {
        Error::invalid(format!("{} is not a name that a certificate can have", host.name)).caused_by(error)
    })?;
    let connected = TlsConnector::from(tls.clone()).connect(name, tcp).await;
    connected.map_err(|error| insecure(host, "etcd", error))
}

/// Whether a server that hung up does not like our certificate, or that we have none.
///
/// It says so after we think that all is well, and what we send meanwhile may keep us from hearing it. So nothing is sent here.
pub(crate) async fn is_refused(host: &Host, tls: &Arc<ClientConfig>) -> bool {
    let refused = async {
        let tcp = TcpStream::connect((host.name.as_str(), host.port)).await.ok()?;
        let mut stream = match secured(host, tls, tcp).await {
            Ok(stream) => stream,
            Err(error) => return Some(error.kind() == ErrorKind::Denied),
        };
        Some(stream.read_u8().await.is_err_and(|error| is_refusal(&error)))
    };
    tokio::time::timeout(TO_REFUSE, refused).await.ok().flatten().unwrap_or(false)
}
