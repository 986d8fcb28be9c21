//! Encryption: who is trusted, and who we say we are.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tollgate_core::{Error, ErrorKind, Result};

use crate::config::TlsFiles;

/// What encrypted connections are made with.
pub(crate) fn client(files: &TlsFiles) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unexpected("no version of TLS is there", error))?
        .with_root_certificates(roots(files.ca.as_deref())?);
    let config = match (&files.cert, &files.key) {
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
    let mut config = config;
    // etcd speaks nothing else.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
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
