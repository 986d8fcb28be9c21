//! From a URL to a look at the engine as it really is.

use tollgate_core::capabilities::Scope;
use tollgate_core::{BoxFuture, Checkup, Finding, Result};

use crate::url::Url;

/// Examines the engine that `url` names, and changes nothing: what is wrong with it, why that matters and what to
/// do, and what its locks survive.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let checkup = tollgate::doctor("memory:").await?;
/// assert!(!checkup.has_problems());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
///
/// # Errors
/// As [`connect`](crate::connect) for a URL that names no engine, and `Unavailable` for one that cannot be looked at.
pub fn doctor(url: &str) -> BoxFuture<'_, Result<Checkup>> {
    Box::pin(async move { examine(url).await.map_err(|error| error.during("examine")) })
}

async fn examine(url: &str) -> Result<Checkup> {
    if let Ok(parsed) = Url::parse(url) {
        crate::connect::check_runtime(&parsed)?;
    }
    #[cfg(feature = "file")]
    if let Ok(file) = Url::parse(url)
        && file.scheme == "file"
    {
        crate::connect::check_layers(&file)?;
        return examine_folder(crate::connect::folder(&file)?).await;
    }
    #[cfg(feature = "etcd")]
    if let Ok(etcd) = Url::parse(url)
        && crate::etcd::SCHEMES.contains(&etcd.scheme)
    {
        crate::connect::check_layers(&etcd)?;
        return tollgate_etcd::examine(crate::etcd::config(&etcd)?).await;
    }
    #[cfg(feature = "redis")]
    if let Ok(redis) = Url::parse(url)
        && crate::redis::SCHEMES.contains(&redis.scheme)
    {
        crate::connect::check_layers(&redis)?;
        return tollgate_redis::examine(crate::redis::config(&redis)?).await;
    }
    #[cfg(feature = "redis")]
    if let Ok(nodes) = Url::parse(url)
        && crate::redlock::SCHEMES.contains(&nodes.scheme)
    {
        crate::connect::check_layers(&nodes)?;
        return tollgate_redis::examine_redlock(&crate::redlock::config(&nodes)?).await;
    }
    #[cfg(feature = "server")]
    if let Ok(server) = Url::parse(url)
        && crate::server::SCHEMES.contains(&server.scheme)
    {
        crate::connect::check_layers(&server)?;
        return tollgate_remote::examine(crate::server::config(&server)?).await;
    }
    #[cfg(feature = "zookeeper")]
    if let Ok(zookeeper) = Url::parse(url)
        && crate::zookeeper::SCHEMES.contains(&zookeeper.scheme)
    {
        crate::connect::check_layers(&zookeeper)?;
        return tollgate_zookeeper::examine(crate::zookeeper::config(&zookeeper)?).await;
    }
    #[cfg(feature = "mysql")]
    if let Ok(mysql) = Url::parse(url)
        && crate::mysql::SCHEMES.contains(&mysql.scheme)
    {
        crate::connect::check_layers(&mysql)?;
        let style = if crate::mysql::is_session(&mysql)? {
            tollgate_mysql::Style::Session
        } else {
            tollgate_mysql::Style::Lease
        };
        return tollgate_mysql::examine(crate::mysql::config(&mysql)?, style).await;
    }
    #[cfg(feature = "postgres")]
    if let Ok(postgres) = Url::parse(url)
        && crate::postgres::SCHEMES.contains(&postgres.scheme)
    {
        crate::connect::check_layers(&postgres)?;
        let style = match crate::postgres::advisory(&postgres)? {
            None => tollgate_postgres::Style::Lease,
            Some(_) => tollgate_postgres::Style::Session,
        };
        return tollgate_postgres::examine(crate::postgres::config(&postgres)?, style).await;
    }
    // What can be connected to and has no examination of its own.
    let locks = crate::connect(url).await?;
    let what = match locks.capabilities().scope {
        Scope::Process => {
            "the locks live in the memory of one process: there is nothing to examine, and nothing to \
             change"
        }
        Scope::Host | Scope::Network => {
            "the engine accepts connections; its configuration is not examined yet"
        }
    };
    let guarantees = locks.capabilities().guarantees.clone();
    Ok(Checkup { subject: url.to_owned(), findings: vec![Finding::fine(what)], guarantees })
}

#[cfg(feature = "file")]
async fn examine_folder(folder: std::path::PathBuf) -> Result<Checkup> {
    use tollgate_core::{Error, ErrorKind, Keeper};

    let examined = Keeper::global()?.spawn_blocking(move || tollgate_local::examine(folder));
    examined.await.map_err(|panic| {
        Error::new(ErrorKind::Unexpected, "the examination did not finish").caused_by(panic)
    })?
}
