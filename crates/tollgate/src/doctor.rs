//! From a URL to a look at the engine as it really is.

use tollgate_core::{Checkup, Error, Finding, Result};

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
pub async fn doctor(url: &str) -> Result<Checkup> {
    examine(url).await.map_err(|error| error.during("examine"))
}

async fn examine(url: &str) -> Result<Checkup> {
    let parsed = Url::parse(url)?;
    match parsed.scheme {
        #[cfg(feature = "file")]
        "file" => {
            let folder = crate::connect::folder(&parsed)?;
            let examined =
                tollgate_core::Keeper::global()?.spawn_blocking(move || tollgate_local::examine(folder));
            examined.await.map_err(|panic| {
                Error::new(tollgate_core::ErrorKind::Unexpected, "the examination did not come to an end")
                    .caused_by(panic)
            })?
        }
        // Whatever else can be connected to has nothing to be examined, or says what is wrong when it is.
        _ => {
            let locks = crate::connect(url).await?;
            let subject = url.to_owned();
            let findings = vec![Finding::fine(
                "its locks live in the memory of one process: there is nothing to examine, and nothing to change",
            )];
            Ok(Checkup { subject, findings, guarantees: locks.capabilities().guarantees.clone() })
        }
    }
}
