//! etcd beyond locks: what makes data in it refuse those who have lost their lock.
//!
//! ```no_run
//! # async fn example() -> tollgate::Result<()> {
//! let url = "etcd://127.0.0.1/";
//! let locks = tollgate::connect(url).await?;
//! let fence = tollgate::etcd::fence(url)?;
//!
//! let guard = locks.lock("total").acquire().await?;
//! // Written only if the lock is still held when etcd writes it.
//! fence.guarded(guard.grant())?.put("total", "17").delete("draft").commit().await?;
//! # Ok(())
//! # }
//! ```

use tollgate_core::{Error, Result};
use tollgate_etcd::EtcdConfig;

use crate::url::Url;

pub use tollgate_etcd::{EtcdFence, GuardedTxn, LockKey};

/// The schemes that name an etcd.
pub(crate) const SCHEMES: &[&str] = &["etcd", "etcds"];

/// Writes that etcd applies only while a lock is held. `url` is the one that the locks were connected with.
///
/// ```no_run
/// # async fn example() -> tollgate::Result<()> {
/// let locks = tollgate::connect("etcd://127.0.0.1/").await?;
/// let fence = tollgate::etcd::fence("etcd://127.0.0.1/")?;
/// let guard = locks.lock("total").acquire().await?;
/// fence.guarded(guard.grant())?.put("total", "17").commit().await?;
/// // For transactions of your own client, what they have to compare.
/// let lock = fence.key(guard.grant())?;
/// println!("the create revision of {:?} must be {}", lock.key, lock.create_revision);
/// # Ok(())
/// # }
/// ```
pub fn fence(url: &str) -> Result<EtcdFence> {
    let url = Url::parse(url)?;
    if !SCHEMES.contains(&url.scheme) {
        return Err(Error::invalid("only etcd can check a lock that is held on etcd; write etcd://HOST"));
    }
    crate::connect::check_layers(&url)?;
    let mut config = config(&url)?;
    if let Some(namespace) = url.param("namespace") {
        config.prefix = format!("{}{namespace}/", config.prefix);
    }
    EtcdFence::new(&config)
}

/// Which etcd a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<EtcdConfig> {
    let mut config = EtcdConfig::from_url(&format!("{}:{}", url.scheme, url.rest))?;
    let mut known = vec!["prefix"];
    if let Some(files) = &mut config.tls {
        known.extend(["ca", "cert", "key"]);
        *files = url.tls_files()?;
    } else if url.param("ca").or(url.param("cert")).or(url.param("key")).is_some() {
        return Err(Error::invalid(
            "certificates are for encrypted connections; write etcds instead of etcd at the start of the URL",
        ));
    }
    url.check_params(&known)?;
    if let Some(prefix) = url.value("prefix")? {
        if prefix.is_empty() {
            return Err(Error::invalid(
                "?prefix= must be the prefix of the lock keys; write at least one character",
            ));
        }
        config.prefix = prefix;
    }
    Ok(config)
}
