//! Encryption: who is trusted, and who we say we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

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
        .map_err(|error| unexpected("no version of TLS is there", error))?
        .with_root_certificates(roots(files.ca.as_deref())?);
    let mut config = match (&files.cert, &files.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let pem = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
            builder.with_client_auth_cert(certificates(cert)?, pem).map_err(|error| {
                Error::invalid(format!("{} and {} do not belong together", cert.display(), key.display()))
                    .caused_by(error)
            })?
        }
        _ => return Err(Error::invalid("a certificate needs its key: give both ?cert=FILE and &key=FILE")),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// The same as text, for drivers that take nothing else.
#[derive(Debug, Clone)]
pub struct Pem {
    /// Who is trusted.
    pub ca: String,
    /// Our certificate and its key.
    pub identity: Option<(String, String)>,
}

/// What `files` say, and what the system trusts where they do not. Whatever is wrong with them is told as by [`client`].
pub fn pem(files: &TlsFiles) -> Result<Pem> {
    client(files, &[])?;
    let ca = match &files.ca {
        Some(ca) => text(ca)?,
        None => rustls_native_certs::load_native_certs().certs.iter().map(as_pem).collect(),
    };
    let identity = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => Some((text(cert)?, text(key)?)),
        _ => None,
    };
    Ok(Pem { ca, identity })
}

fn as_pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;

    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

fn text(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        Error::new(ErrorKind::Config, format!("{} cannot be read", file.display())).caused_by(error)
    })
}

/// What is wrong with an encrypted connection that was not to be had, and what to do, if it is not that nobody is there.
pub fn mistake(error: &std::io::Error) -> Option<&'static str> {
    use rustls::{AlertDescription as Alert, CertificateError as Cert, Error as Tls};

    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return Some("it hangs up on encrypted connections; is this the port for them?");
    }
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>())?;
    Some(match tls {
        Tls::InvalidMessage(_) => "it does not encrypt; is this the port for encrypted connections?",
        Tls::InvalidCertificate(Cert::NotValidForName | Cert::NotValidForNameContext { .. }) => {
            "its certificate is for another name than the URL has; write the name that it is for"
        }
        Tls::InvalidCertificate(Cert::Expired | Cert::ExpiredContext { .. }) => {
            "its certificate is not valid any more; give it another"
        }
        Tls::InvalidCertificate(Cert::NotValidYet | Cert::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; are the clocks right?"
        }
        Tls::InvalidCertificate(_) => {
            "its certificate is not signed by anybody we trust; name who signs it: ?ca=FILE"
        }
        Tls::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::HandshakeFailure
            | Alert::CertificateUnknown
            | Alert::AccessDenied,
        ) => "it does not accept our certificate, or wants one: ?cert=FILE&key=FILE",
        _ => "encryption cannot be agreed upon",
    })
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| {
                    Error::invalid(format!("{} has no usable certificate", ca.display())).caused_by(error)
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
            "this system trusts nobody; install its certificates (Debian: ca-certificates), or give ?ca=FILE",
        ));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(file, error))?;
    if certificates.is_empty() {
        return Err(Error::invalid(format!("{} has no certificate in PEM", file.display())));
    }
    Ok(certificates)
}

fn unreadable(file: &Path, error: rustls::pki_types::pem::Error) -> Error {
    Error::new(ErrorKind::Config, format!("{} cannot be read", file.display())).caused_by(error)
}

fn unexpected(message: &str, error: rustls::Error) -> Error {
    Error::new(ErrorKind::Unexpected, message).caused_by(error)
}
