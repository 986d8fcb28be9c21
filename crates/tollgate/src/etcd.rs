//! etcd beyond locks: what makes data in it refuse those who have lost their lock.

use std::path::PathBuf;

use tollgate_core::{Error, Result};
use tollgate_etcd::EtcdConfig;

use crate::url::Url;

/// The schemes that name an etcd.
pub(crate) const SCHEMES: &[&str] = &["etcd", "etcds"];

/// Which etcd a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<EtcdConfig> {
    let mut config = EtcdConfig::from_url(&format!("{}:{}", url.scheme, url.rest))?;
    let mut known = vec!["prefix"];
    if let Some(files) = &mut config.tls {
        known.extend(["ca", "cert", "key"]);
        let file = |key| Ok::<_, Error>(value(url, key)?.map(PathBuf::from));
        (files.ca, files.cert, files.key) = (file("ca")?, file("cert")?, file("key")?);
    } else if url.param("ca").or(url.param("cert")).or(url.param("key")).is_some() {
        return Err(Error::invalid(
            "certificates are for encrypted connections; write etcds instead of etcd at the start of the URL",
        ));
    }
    url.check_params(&known)?;
    if let Some(prefix) = value(url, "prefix")? {
        config.prefix = prefix;
    }
    Ok(config)
}

/// The value of a parameter, without its percent-encoding.
fn value(url: &Url<'_>, key: &str) -> Result<Option<String>> {
    url.param(key).map(tollgate_etcd::decoded).transpose()
}
