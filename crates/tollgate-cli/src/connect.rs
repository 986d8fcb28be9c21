//! From `--url` to locks that more than one process can see.

use tollgate::capabilities::Scope;
use tollgate::{Error, Locks, Result};

pub(crate) async fn connect(url: &str) -> Result<Locks> {
    let locks = tollgate::connect(url).await?;
    if locks.capabilities().scope == Scope::Process {
        return Err(Error::unsupported(format!(
            "locks of {url} are seen by one process only, and this command is one of its own; use file:DIR"
        )));
    }
    Ok(locks)
}
