//! Tollgate's own server, from URLs to its configuration.

use tollgate_core::{Error, Result};
use tollgate_remote::RemoteConfig;

use crate::url::Url;

/// The schemes that name a lock server.
pub(crate) const SCHEMES: &[&str] = &["tollgate", "tollgate+unix"];

/// Which server a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<RemoteConfig> {
    url.check_params(&[])?;
    RemoteConfig::from_url(&format!("{}:{}", url.scheme, url.rest))
}

/// Which server a URL names, and whether its marks are for tokens of other engines, too.
pub(crate) fn gate(url: &Url<'_>) -> Result<(RemoteConfig, bool)> {
    url.check_params(&["foreign_tokens"])?;
    let takes_foreign = match url.param("foreign_tokens") {
        None | Some("refuse") => false,
        Some("allow") => true,
        Some(other) => {
            return Err(Error::invalid(format!(
                "?foreign_tokens={other} is unknown; write refuse (the default) or allow"
            )));
        }
    };
    Ok((RemoteConfig::from_url(&format!("{}:{}", url.scheme, url.rest))?, takes_foreign))
}
