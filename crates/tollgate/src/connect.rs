//! From a URL to locks: the one place that knows every backend.

use tollgate_core::{Error, Locks, Result};

use crate::url::Url;

/// Connects to the engine that `url` names.
///
/// - `file:DIR`: kernel locks in a folder of this host; `file:` alone is `$XDG_STATE_HOME/tollgate`, or
///   `~/.local/state/tollgate`. The folder is taken as it is written, nothing is decoded.
/// - `memory:` and `memory:NAME`: this process's own engines.
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
pub async fn connect(url: &str) -> Result<Locks> {
    open(url).await.map_err(|error| error.during("connect"))
}

async fn open(url: &str) -> Result<Locks> {
    let url = Url::parse(url)?;
    match url.scheme {
        #[cfg(feature = "file")]
        "file" => file(&url).await,
        #[cfg(feature = "memory")]
        "memory" => {
            url.check_params(&[])?;
            Locks::new(std::sync::Arc::new(tollgate_embedded::MemoryBackend::named(url.rest)?))
        }
        scheme => Err(Error::invalid(format!(
            "no engine is called {scheme:?} here; known are {}",
            [("file:DIR", cfg!(feature = "file")), ("memory:", cfg!(feature = "memory"))]
                .into_iter()
                .filter_map(|(scheme, built)| built.then_some(scheme))
                .collect::<Vec<_>>()
                .join(", ")
        ))),
    }
}

#[cfg(feature = "file")]
async fn file(url: &Url<'_>) -> Result<Locks> {
    use std::sync::Arc;

    use tollgate_core::{BootClock, ErrorKind, Keeper};
    use tollgate_local::FileBackend;

    let dir = folder(url)?;
    let keeper = Keeper::global()?;
    let clock = Arc::new(BootClock::new(keeper.clone()));
    let opened = keeper.clone().spawn_blocking(move || FileBackend::open(dir, clock, keeper)).await;
    let backend = opened.map_err(|panic| {
        Error::new(ErrorKind::Unexpected, "opening the folder did not come to an end").caused_by(panic)
    })??;
    Locks::new(Arc::new(backend))
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
