//! From a URL to a gate: where the marks of resources are kept.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::gate::Gate;
use tollgate_core::{BootClock, BoxFuture, Clock, Error, ErrorKind, Fence, Keeper, Result, Token};

use crate::connect::{check_namespace, check_runtime, limit};
use crate::url::Url;

/// Opens the gate that `url` names: the marks of resources that cannot keep them themselves, a file or a service behind HTTP.
///
/// - `memory:`, `memory:NAME`: in this process, and forgotten with it.
/// - `file:DIR`: files of this host, for all its processes.
/// - `postgres://…`, `mysql://…`: the table that [`PostgresFence`](crate::postgres::PostgresFence) and
///   [`MySqlFence`](crate::mysql::MySqlFence) use, so that what is fenced by both is one resource.
/// - `tollgate://…`: the server that has the locks; a token that it never gave is refused, unless `?foreign_tokens=allow` says
///   that another engine has the locks.
/// - `redis://…`, also behind sentinels and in a cluster: the keys that [`RedisFence`](crate::redis::RedisFence) uses.
///
/// The URL is written as for [`connect`](crate::connect). `?namespace=NAME` keeps all resources under `NAME/`, and
/// `?timeout=5s` gives up on a store that does not answer.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:").await?;
/// let gate = tollgate::gate("memory:").await?;
///
/// let guard = locks.lock("report").acquire().await?;
/// gate.admit("report", guard.fence()?).await?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
///
/// # Errors
/// `InvalidArgument` for what is no URL; `Unsupported` for an engine that keeps no marks; `Unavailable` if the store cannot be
/// reached.
pub fn gate(url: &str) -> BoxFuture<'_, Result<Arc<dyn Gate>>> {
    Box::pin(async move { open(url).await.map_err(|error| error.during("open the gate")) })
}

async fn open(url: &str) -> Result<Arc<dyn Gate>> {
    let url = Url::parse(url)?;
    check_runtime(&url)?;
    let (limit, namespace) = (limit(&url)?, url.param("namespace"));
    check_namespace(&url)?;
    let opening = store(&url);
    let gate = match limit {
        Some(limit) => within(limit, opening).await?,
        None => opening.await?,
    };
    if limit.is_none() && namespace.is_none() {
        return Ok(gate);
    }
    Ok(Arc::new(Scoped { gate, limit, namespace: namespace.map(str::to_owned) }))
}

async fn store(url: &Url<'_>) -> Result<Arc<dyn Gate>> {
    match url.scheme {
        #[cfg(feature = "memory")]
        "memory" => {
            url.check_params(&[])?;
            Ok(tollgate_core::MemoryGate::named(url.rest))
        }
        #[cfg(feature = "file")]
        "file" => {
            let (dir, keeper) = (crate::connect::folder(url)?, tollgate_core::Keeper::global()?);
            let opened = keeper.spawn_blocking(move || tollgate_local::FileGate::open(dir)).await;
            let gate = opened.map_err(|panic| {
                Error::new(ErrorKind::Unexpected, "the task that opens the folder did not finish")
                    .caused_by(panic)
            })??;
            Ok(Arc::new(gate))
        }
        #[cfg(feature = "mysql")]
        scheme if crate::mysql::SCHEMES.contains(&scheme) => {
            Ok(Arc::new(tollgate_mysql::MySqlGate::connect(crate::mysql::config(url)?).await?))
        }
        #[cfg(feature = "postgres")]
        scheme if crate::postgres::SCHEMES.contains(&scheme) => {
            Ok(Arc::new(tollgate_postgres::PostgresGate::connect(crate::postgres::config(url)?).await?))
        }
        #[cfg(feature = "redis")]
        scheme if crate::redis::SCHEMES.contains(&scheme) => {
            if url.param("prefix").is_some() {
                return Err(Error::invalid(
                    "?prefix= is the prefix of lock keys, and marks have none; use ?namespace= instead",
                ));
            }
            Ok(Arc::new(tollgate_redis::RedisGate::connect(&crate::redis::config(url)?).await?))
        }
        #[cfg(feature = "server")]
        scheme if crate::server::SCHEMES.contains(&scheme) => {
            let (config, takes_foreign) = crate::server::gate(url)?;
            Ok(Arc::new(tollgate_remote::RemoteGate::connect(config, takes_foreign).await?))
        }
        "etcd" | "etcds" | "zookeeper" | "zookeepers" => Err(Error::unsupported(format!(
            "{} keeps no marks: data stored there is fenced by the lock itself; keep the marks of other \
             resources in file:DIR, postgres://, mysql:// or redis://, whatever engine holds the locks",
            url.scheme
        ))),
        "redlock" | "redlocks" => Err(Error::unsupported(
            "Redlock keeps no marks; keep them in a single Redis, redis://HOST, or in file:DIR, \
             postgres:// or mysql://",
        )),
        scheme => {
            crate::engines::check_is_built(scheme)?;
            Err(Error::invalid(
                "the URL names no store for marks: write memory:, file:DIR, postgres://, mysql://, redis:// or \
                 tollgate://",
            ))
        }
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    // A clock that needs no runtime of the caller's: files need none either.
    let clock = BootClock::new(Keeper::global()?);
    tokio::select! {
        biased;
        done = work => done,
        () = clock.sleep_until(clock.now() + limit) => Err(Error::new(
            ErrorKind::Indeterminate,
            format!("the store did not answer within {limit:?}; try again"),
        )),
    }
}

/// A gate as its URL says it: under a name, and within a time.
struct Scoped {
    gate: Arc<dyn Gate>,
    limit: Option<Duration>,
    namespace: Option<String>,
}

impl Scoped {
    /// What the store knows a resource by. Judged by the name that the caller knows.
    fn name<'a>(&self, resource: &'a str) -> Result<Cow<'a, str>> {
        tollgate_core::gate::check(resource)?;
        Ok(match &self.namespace {
            Some(namespace) => format!("{namespace}/{resource}").into(),
            None => resource.into(),
        })
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T>>) -> Result<T> {
        match self.limit {
            Some(limit) => within(limit, asked).await,
            None => asked.await,
        }
    }
}

impl Gate for Scoped {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = self.name(resource).map_err(|error| error.during("admit"))?;
            self.in_time(self.gate.admit(&name, fence)).await
        })
    }

    fn admit_at_once(&self, resource: &str, fence: Fence) -> Option<Result<()>> {
        // What is wrong with a name is told where there is time.
        self.gate.admit_at_once(&self.name(resource).ok()?, fence)
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move { self.in_time(self.gate.highest(&self.name(resource)?)).await })
    }
}
