//! Encryption: who is trusted, and who we say we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, Error as Tls, RootCertStore};

use crate::url::Host;
use crate::{Error, ErrorKind, Result};

/// Files for an encrypted connection, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signs the server's certificate; whoever the system trusts, if not said.
    pub ca: Option<PathBuf>,
    /// Our certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// What encrypted connections are made with. `protocols` is what is spoken inside, as TLS calls it, if it wants to know.
pub fn client(files: &TlsFiles, protocols: &[&str]) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unexpected("no version of TLS is available", error))?
        .with_root_certificates(roots(files.ca.as_deref())?);
    let mut config = match (&files.cert, &files.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let pem = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
            builder.with_client_auth_cert(certificates(cert)?, pem).map_err(|error| {
                Error::invalid(format!(
                    "the certificate {} and the key {} do not match",
                    cert.display(),
                    key.display()
                ))
                .caused_by(error)
            })?
        }
        _ => return Err(Error::invalid("a certificate needs its key: give both ?cert=FILE and &key=FILE")),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// What is wrong with an encrypted connection to `host` that was not to be had, and what to do. `plain` is how a URL without
/// encryption begins.
pub fn insecure(host: &Host, plain: &str, error: std::io::Error) -> Error {
    let (kind, message) = match of_tls(&error) {
        Some(Tls::InvalidMessage(_)) => (
            ErrorKind::Config,
            format!(
                "{host} does not speak TLS; write {plain}:// instead of {plain}s://, or use another port"
            ),
        ),
        Some(Tls::InvalidCertificate(wrong)) => (ErrorKind::Config, mistrusted(host, wrong)),
        Some(Tls::AlertReceived(_)) => (
            ErrorKind::Denied,
            format!(
                "{host} rejected the client certificate; give one that it trusts with ?cert=FILE&key=FILE"
            ),
        ),
        _ => (
            ErrorKind::Unavailable,
            format!("the TLS handshake with {host} failed; does it speak TLS on this port?"),
        ),
    };
    Error::new(kind, message).caused_by(error)
}

fn mistrusted(host: &Host, wrong: &CertificateError) -> String {
    use CertificateError as Wrong;

    let advice = match wrong {
        Wrong::Expired | Wrong::ExpiredContext { .. } => "has expired; renew it",
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "is not valid yet; compare the clocks of both machines"
        }
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            "is not valid for that name; use a name that it is valid for, or have it reissued"
        }
        // Two authorities may have one name.
        Wrong::UnknownIssuer | Wrong::BadSignature => {
            "is not trusted; name the authority that signed it with ?ca=FILE"
        }
        _ => "is not trusted; renew it, or name the authority that signed it with ?ca=FILE",
    };
    format!("the certificate of {host} {advice}")
}

/// Whether the other side said that it does not want to speak with us.
pub fn is_refusal(error: &std::io::Error) -> bool {
    matches!(of_tls(error), Some(Tls::AlertReceived(_)))
}

/// What was wrong with the encryption, if that is what failed.
fn of_tls(error: &std::io::Error) -> Option<&Tls> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>())
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| {
                    Error::invalid(format!("{} contains no usable certificate", ca.display()))
                        .caused_by(error)
                })?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(Error::new(
            ErrorKind::Config,
            "this system has no trusted root certificates; install them (Debian: ca-certificates), or give \
             ?ca=FILE",
        ));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(file, error))?;
    if certificates.is_empty() {
        return Err(Error::invalid(format!("{} contains no PEM certificate", file.display())));
    }
    Ok(certificates)
}

fn unreadable(file: &Path, error: rustls::pki_types::pem::Error) -> Error {
    Error::new(ErrorKind::Config, format!("{} cannot be read", file.display())).caused_by(error)
}

fn unexpected(message: &str, error: rustls::Error) -> Error {
    Error::new(ErrorKind::Unexpected, message).caused_by(error)
}
