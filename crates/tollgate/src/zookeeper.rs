//! ZooKeeper beyond locks: what makes data in it refuse those who have lost their lock.
//!
//! ```no_run
//! # async fn example() -> tollgate::Result<()> {
//! let url = "zookeeper://127.0.0.1/";
//! let locks = tollgate::connect(url).await?;
//! let fence = tollgate::zookeeper::fence(url)?;
//!
//! let guard = locks.lock("total").acquire().await?;
//! // Written only if the lock is still held when ZooKeeper writes it.
//! fence.guarded(guard.grant())?.set("/total", "17").delete("/draft").commit().await?;
//! # Ok(())
//! # }
//! ```

use tollgate_core::{Error, Result, parse_duration};
use tollgate_zookeeper::{Access, Style, ZooKeeperConfig};

use crate::url::Url;

pub use tollgate_zookeeper::{GuardedMulti, ZooKeeperFence};

/// The schemes that name a ZooKeeper.
pub(crate) const SCHEMES: &[&str] = &["zookeeper", "zookeepers"];

/// Writes that ZooKeeper applies only while a lock is held. `url` is the one that the locks were connected with.
///
/// ```no_run
/// # async fn example() -> tollgate::Result<()> {
/// let locks = tollgate::connect("zookeeper://127.0.0.1/").await?;
/// let fence = tollgate::zookeeper::fence("zookeeper://127.0.0.1/")?;
/// let guard = locks.lock("total").acquire().await?;
/// fence.guarded(guard.grant())?.set("/total", "17").commit().await?;
/// // For a `multi` of your own client, what it has to check first.
/// println!("{} must be there", fence.node(guard.grant())?);
/// # Ok(())
/// # }
/// ```
pub fn fence(url: &str) -> Result<ZooKeeperFence> {
    let url = Url::parse(url)?;
    if !SCHEMES.contains(&url.scheme) {
        return Err(Error::invalid(
            "only ZooKeeper can check a lock that is held on ZooKeeper; write zookeeper://HOST",
        ));
    }
    crate::connect::check_layers(&url)?;
    let mut config = config(&url)?;
    if let Some(namespace) = url.param("namespace") {
        config = config.within(namespace)?;
    }
    ZooKeeperFence::new(config)
}

/// Which ZooKeeper a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<ZooKeeperConfig> {
    let mut config = ZooKeeperConfig::from_url(&format!("{}:{}", url.scheme, url.rest))?;
    let mut known = vec!["prefix", "layout", "acl", "tick"];
    if let Some(files) = &mut config.tls {
        known.extend(["ca", "cert", "key"]);
        *files = url.tls_files()?;
    } else if url.param("ca").or(url.param("cert")).or(url.param("key")).is_some() {
        return Err(Error::invalid(
            "certificates are for encrypted connections; write zookeepers instead of zookeeper at the start of the URL",
        ));
    }
    url.check_params(&known)?;
    if let Some(prefix) = url.param("prefix") {
        config = config.with_prefix(prefix)?;
    }
    if let Some(layout) = url.param("layout") {
        config.style = Style::named(layout).ok_or_else(|| {
            Error::invalid(
                "?layout= must be curator, curator-rw or kazoo: the client library whose locks are excluded",
            )
        })?;
    }
    if let Some(acl) = url.param("acl") {
        config.access = Access::named(acl).ok_or_else(|| {
            Error::invalid(
                "?acl= must be open, read or creator: it says which users may access the created nodes",
            )
        })?;
        if config.access != Access::Open && config.login.is_none() {
            return Err(Error::invalid(
                "only a user that logs in can restrict nodes to itself: write USER:PASSWORD@HOST, or leave \
                 ?acl= out",
            ));
        }
    }
    if let Some(tick) = url.param("tick") {
        config.tick = parse_duration(tick).map_err(|wrong| Error::invalid(format!("tick: {wrong}")))?;
        if config.tick.is_zero() {
            return Err(Error::invalid("?tick= must be ZooKeeper's tickTime, such as 2s; it is never zero"));
        }
    }
    Ok(config)
}
