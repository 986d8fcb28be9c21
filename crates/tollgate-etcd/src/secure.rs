//! Encryption of a connection, and what can be wrong with it.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
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
        Error::invalid(format!("{} is no name that a certificate can have", host.name)).caused_by(error)
    })?;
    let connected = TlsConnector::from(tls.clone()).connect(name, tcp).await;
    connected.map_err(|error| insecure(host, error))
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

/// Whether the other side said that it does not want to speak with us.
pub(crate) fn is_refusal(error: &std::io::Error) -> bool {
    matches!(tls_error(error), Some(rustls::Error::AlertReceived(_)))
}

/// What was wrong with the encryption, if that is what failed.
fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
}

fn insecure(host: &Host, error: std::io::Error) -> Error {
    let said = |kind, message: String| Error::new(kind, message);
    match tls_error(&error) {
        Some(rustls::Error::InvalidMessage(_)) => said(
            ErrorKind::Config,
            format!("{host} does not speak TLS; write etcd:// instead of etcds://, or another port"),
        ),
        Some(rustls::Error::InvalidCertificate(wrong)) => match wrong {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                said(ErrorKind::Config, format!("the certificate of {host} has expired; have it renewed"))
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => said(
                ErrorKind::Config,
                format!("the certificate of {host} is not valid yet; compare the clocks of both machines"),
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => said(
                ErrorKind::Config,
                format!("the certificate of {host} is not for that name; write the name that it is for, or have it renewed"),
            ),
            // Two authorities may have one name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => said(
                ErrorKind::Config,
                format!("the certificate of {host} is not trusted; name who signed it with ?ca=FILE"),
            ),
            _ => said(
                ErrorKind::Config,
                format!("the certificate of {host} is not trusted; have it renewed, or name who signed it with ?ca=FILE"),
            )
            .caused_by(error),
        },
        Some(rustls::Error::AlertReceived(_)) => said(
            ErrorKind::Denied,
            format!("{host} refused our certificate; give one it knows with ?cert=FILE&key=FILE"),
        ),
        _ => said(
            ErrorKind::Unavailable,
            format!("no encrypted connection to {host} came about; does it speak TLS on this port?"),
        )
        .caused_by(error),
    }
}
