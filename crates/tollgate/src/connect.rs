//! From a URL to locks: the one place that knows every backend.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::layer::{Metrics, Namespace, OnTokio, Timeout, Trace};
use tollgate_core::{Backend, BootClock, BoxFuture, Error, Keeper, Locks, Result, parse_duration};

use crate::url::Url;

/// Connects to the engine that `url` names.
///
/// - `file:DIR`: kernel locks in a folder of this host; `file:` alone is `$XDG_STATE_HOME/tollgate`, or
///   `~/.local/state/tollgate`. The folder is taken as it is written, nothing is decoded.
/// - `memory:` and `memory:NAME`: this process's own engines.
/// - `redis://USER:PASSWORD@HOST:PORT/DB`: one Redis. `?prefix=` is what its keys start with, `lock:` unless said.
///   `rediss://` encrypts; `?ca=FILE` names who signed its certificate, `?cert=FILE&key=FILE` are ours.
/// - `redis-sentinel://HOST,HOST/SERVICE/DB`: whichever Redis the sentinels call the primary.
/// - `redis-cluster://HOST,HOST`: a cluster, of which a few servers are named.
/// - `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT`: one etcd, of which some members are named; whichever answers is used.
///   `?prefix=` is what its keys start with, `/locks/` unless said. `etcds://` encrypts, with `?ca=`, `?cert=` and `?key=`.
/// - `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/CHROOT`: one ZooKeeper, of which some servers are named. `?prefix=` is the
///   node its locks are in, `/locks` unless said; `?layout=` whose locks to exclude: `curator`, `curator-rw` or `kazoo`; `?tick=`
///   its `tickTime`, 2 s unless said; `?acl=` who may use what is created: `open`, `read` or `creator`. `zookeepers://` encrypts.
/// - `mysql://USER:PASSWORD@HOST:PORT/DATABASE` or `mariadb://…`: leases in tables of that database, which are made if they
///   are not there. `?table_prefix=` is what their names start with, `tollgate_` unless said; `?dialect=mysql` counts tokens
///   in rows, as servers without sequences have to; `?connections=` is how many it opens at most; `?ssl-mode=required`
///   encrypts, with `?ca=`, `?cert=` and `?key=`; without, a password goes to another machine only with
///   `?plain_password=allow`. `?style=session` is the server's own `GET_LOCK`, with a connection for each
///   lock.
/// - `postgres://USER:PASSWORD@HOST:PORT/DATABASE`: leases in tables of that database, which are made if they are not there.
///   `?schema=` is where, `tollgate` unless said; `?owner=` a role that is trusted with it; `?table_prefix=` what their names start
///   with; `?connections=` how many it
///   opens for its requests at most, 4 unless said; `?listen_url=` the way past a pooler that lets no notifications through.
///   `?sslmode=require` encrypts, with `?ca=`, `?cert=` and `?key=`; without, a server elsewhere that asks for the password in
///   clear text is refused, unless `?plain_password=allow`. `?style=advisory` takes PostgreSQL's own advisory locks
///   instead, `pg_advisory_lock(hashtextextended(NAME, 0))`, each on a connection of its own; with `?advisory_key=N` all names
///   are the lock with that number. The parameters that libpq and frameworks know are done as far as they concern locks.
/// - `tollgate://HOST:PORT,HOST:PORT`: Tollgate's own server, which `tollgate serve` runs; of several addresses the first that
///   answers is used. `tollgate+unix:PATH` is its Unix socket.
/// - `redlock://HOST:PORT,HOST:PORT,HOST:PORT/DB`: a majority of independent Redises. `?max_ttl=5m` is the longest ttl that
///   any client uses, and the same for all. On their first start [`redlock_init`](crate::redlock_init) says that they are new.
///
/// Every URL takes `?namespace=NAME`, which keeps all its locks under `NAME/`, out of the way of others, and
/// `?timeout=5s`, after which an engine that does not answer, or cannot be connected to, is given up on.
///
/// What is asked of the engine can be watched: there is a `tracing` span for every operation and the `metrics`
/// facade knows how long they took, how many locks are held, waited for and lost.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:").await?;
/// assert_eq!(locks.capabilities().backend, "memory");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
pub fn connect(url: &str) -> BoxFuture<'_, Result<Locks>> {
    Box::pin(async move { open(url).await.map_err(|error| error.during("connect")) })
}

async fn open(url: &str) -> Result<Locks> {
    let url = Url::parse(url)?;
    check_runtime(&url)?;
    let backend = match limit(&url)? {
        Some(limit) => {
            Timeout::of_connecting(&BootClock::new(Keeper::global()?), limit, backend(&url)).await?
        }
        None => backend(&url).await?,
    };
    Locks::new(layered(backend, &url)?)
}

/// Fails where the driver of this URL's engine would panic, because there is no Tokio runtime.
pub(crate) fn check_runtime(url: &Url<'_>) -> Result<()> {
    if crate::engines::needs_tokio(url.scheme) { OnTokio::check() } else { Ok(()) }
}

/// What every backend is wrapped in: what the URL asks for, and what those see who watch.
fn layered(mut backend: Arc<dyn Backend>, url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    if crate::engines::needs_tokio(url.scheme) {
        backend = Arc::new(OnTokio::new(backend));
    }
    if let Some(limit) = limit(url)? {
        backend = Arc::new(Timeout::new(backend, clock.clone(), limit)?);
    }
    if let Some(namespace) = url.param("namespace") {
        backend = Arc::new(Namespace::new(backend, namespace)?);
    }
    // Outside the namespace: whoever reads a trace wants to find the names that are in the program.
    backend = Arc::new(Trace::new(backend));
    Ok(Arc::new(Metrics::new(backend, clock)))
}

pub(crate) fn limit(url: &Url<'_>) -> Result<Option<Duration>> {
    let parsed = url.param("timeout").map(parse_duration).transpose();
    let limit = parsed.map_err(|wrong| Error::invalid(format!("timeout: {wrong}")))?;
    if limit.is_some_and(|limit| limit.is_zero()) {
        return Err(Timeout::too_short());
    }
    Ok(limit)
}

/// Refuses what [`layered`] would, without an engine.
#[cfg(any(
    feature = "etcd",
    feature = "file",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "server",
    feature = "zookeeper"
))]
pub(crate) fn check_layers(url: &Url<'_>) -> Result<()> {
    limit(url)?;
    check_namespace(url)
}

/// Refuses a namespace that cannot be one.
pub(crate) fn check_namespace(url: &Url<'_>) -> Result<()> {
    url.param("namespace").map_or(Ok(()), Namespace::check)
}

async fn backend(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    match url.scheme {
        #[cfg(feature = "etcd")]
        scheme if crate::etcd::SCHEMES.contains(&scheme) => etcd(url).await,
        #[cfg(feature = "file")]
        "file" => file(url).await,
        #[cfg(feature = "memory")]
        "memory" => {
            url.check_params(&[])?;
            Ok(Arc::new(tollgate_embedded::MemoryBackend::named(url.rest)?))
        }
        #[cfg(feature = "mysql")]
        scheme if crate::mysql::SCHEMES.contains(&scheme) => mysql(url).await,
        #[cfg(feature = "postgres")]
        scheme if crate::postgres::SCHEMES.contains(&scheme) => postgres(url).await,
        #[cfg(feature = "redis")]
        scheme if crate::redis::SCHEMES.contains(&scheme) => redis(url).await,
        #[cfg(feature = "redis")]
        scheme if crate::redlock::SCHEMES.contains(&scheme) => redlock(url).await,
        #[cfg(feature = "server")]
        scheme if crate::server::SCHEMES.contains(&scheme) => server(url).await,
        #[cfg(feature = "zookeeper")]
        scheme if crate::zookeeper::SCHEMES.contains(&scheme) => zookeeper(url).await,
        scheme => Err(crate::engines::unknown(scheme)),
    }
}

#[cfg(feature = "etcd")]
async fn etcd(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::etcd::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    Ok(Arc::new(tollgate_etcd::EtcdBackend::connect(config, clock).await?))
}

#[cfg(feature = "zookeeper")]
async fn zookeeper(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::zookeeper::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    Ok(Arc::new(tollgate_zookeeper::ZooKeeperBackend::connect(config, clock).await?))
}

#[cfg(feature = "server")]
async fn server(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::server::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    Ok(Arc::new(tollgate_remote::RemoteBackend::connect(config, clock).await?))
}

#[cfg(feature = "mysql")]
async fn mysql(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::mysql::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    if crate::mysql::is_session(url)? {
        return Ok(Arc::new(tollgate_mysql::SessionBackend::connect(config, clock).await?));
    }
    Ok(Arc::new(tollgate_mysql::connect(config, clock).await?))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::postgres::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    if let Some(key) = crate::postgres::advisory(url)? {
        return Ok(Arc::new(tollgate_postgres::AdvisoryBackend::connect(config, key, clock).await?));
    }
    Ok(Arc::new(tollgate_postgres::connect(config, clock).await?))
}

#[cfg(feature = "redis")]
async fn redis(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::redis::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    Ok(Arc::new(tollgate_redis::RedisBackend::connect(config, clock).await?))
}

#[cfg(feature = "redis")]
async fn redlock(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    let config = crate::redlock::config(url)?;
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    Ok(Arc::new(tollgate_redis::RedlockBackend::connect(config, clock).await?))
}

#[cfg(feature = "file")]
async fn file(url: &Url<'_>) -> Result<Arc<dyn Backend>> {
    use tollgate_core::ErrorKind;
    use tollgate_local::FileBackend;

    let dir = folder(url)?;
    let keeper = Keeper::global()?;
    let clock = Arc::new(BootClock::new(keeper.clone()));
    let opened = keeper.clone().spawn_blocking(move || FileBackend::open(dir, clock, keeper)).await;
    let backend = opened.map_err(|panic| {
        Error::new(ErrorKind::Unexpected, "the task that opens the folder did not finish").caused_by(panic)
    })??;
    Ok(Arc::new(backend))
}

/// The folder that a `file:` URL names.
#[cfg(feature = "file")]
pub(crate) fn folder(url: &Url<'_>) -> Result<std::path::PathBuf> {
    url.check_params(&[])?;
    // `file:///var/lock` is what people write who know file URLs from elsewhere.
    let rest = match url.rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(Error::invalid("a file: URL has no host; write file:DIR")),
        None => url.rest,
    };
    if rest.is_empty() { tollgate_local::default_dir() } else { Ok(rest.into()) }
}
