//! Redis beyond locks: what makes data in it refuse stale tokens.
//!
//! ```no_run
//! # async fn example(guard: tollgate::Guard, mut redis: redis::aio::MultiplexedConnection) -> tollgate::Result<()> {
//! use tollgate::redis::RedisFence;
//!
//! RedisFence::around("total")?.set(&mut redis, "total", 17, guard.fence()?).await?;
//! # Ok(())
//! # }
//! ```

use tollgate_core::{Error, Result};
use tollgate_redis::{Login, RedisConfig, Servers};

use crate::url::Url;

pub use tollgate_redis::{FencedCall, FencedScript, RedisFence, url_of};

/// The schemes that name a Redis.
pub(crate) const SCHEMES: &[&str] =
    &["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// Which Redis a URL names.
pub(crate) fn config(url: &Url<'_>) -> Result<RedisConfig> {
    let mut config = RedisConfig::from_url(&format!("{}:{}", url.scheme, url.rest))?;
    let mut known = vec!["prefix"];
    if let Some(files) = &mut config.tls {
        known.extend(["ca", "cert", "key"]);
        *files = url.tls_files()?;
    } else if url.param("ca").or(url.param("cert")).or(url.param("key")).is_some() {
        return Err(Error::invalid(
            "certificates are for encrypted connections; write rediss instead of redis at the start of the URL",
        ));
    }
    if let Servers::Sentinel { login, .. } = &mut config.servers {
        known.extend(["sentinel_user", "sentinel_password"]);
        *login = Login { user: url.value("sentinel_user")?, password: url.value("sentinel_password")? };
    }
    url.check_params(&known)?;
    if let Some(prefix) = url.value("prefix")? {
        config.prefix = prefix;
    }
    Ok(config)
}
