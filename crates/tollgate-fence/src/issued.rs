//! A gate that asks the lock engine before it believes a token.

use std::sync::Arc;

use tollgate_core::capabilities::Scope;
use tollgate_core::{BoxFuture, Error, Fence, Gate, Holder, Locks, Mode, Result, Stale, Token};

/// A gate that lets nobody in with a token that was never given: whoever would raise the mark must hold the lock at that
/// moment, or an earlier grant of it, as the engine sees it.
///
/// Without it a single request with the token 2^53 - 1 shuts everybody out for good: callers have to be trusted. With it such
/// a request is refused, and nothing is remembered. The resource's name is the lock's name.
///
/// The engine is asked once for each holder and resource: a token that the mark stands at was checked when it raised it. A
/// holder that lost its lock before its first request is refused, too, which is no more than right.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// use std::sync::Arc;
/// use tollgate::{Fence, Gate, MemoryGate, Token};
/// use tollgate_fence::Issued;
///
/// # let dir = tempfile::tempdir().expect("a folder");
/// let locks = tollgate::connect(&format!("file:{}", dir.path().display())).await?;
/// let gate = Issued::new(Arc::new(MemoryGate::new()), locks.clone())?;
///
/// let guard = locks.lock("orders").acquire().await?;
/// assert!(gate.admit("orders", Fence::shown(Token::MAX, true)).await.is_err());
/// gate.admit("orders", guard.fence()?).await?;
/// # Ok(())
/// # }
/// ```
pub struct Issued {
    gate: Arc<dyn Gate>,
    locks: Locks,
}

impl Issued {
    /// A gate before `gate`, which asks the engine of `locks`.
    ///
    /// # Errors
    /// `Unsupported` if that engine can tell nothing of other processes' locks.
    pub fn new(gate: Arc<dyn Gate>, locks: Locks) -> Result<Self> {
        if locks.capabilities().scope == Scope::Process {
            return Err(Error::unsupported(format!(
                "the {} engine knows only the locks of one process, and cannot tell which tokens were \
                 granted to other processes; name the engine that the holders use",
                locks.capabilities().backend
            )));
        }
        Ok(Self { gate, locks })
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        // Whoever is at the mark or below it raises nothing.
        let mark = self.gate.highest(resource).await?;
        if mark.is_none_or(|mark| fence.token() > mark) {
            self.check(resource, fence).await?;
        }
        self.gate.admit(resource, fence).await
    }

    async fn check(&self, resource: &str, fence: Fence) -> Result<()> {
        let token = fence.token();
        let state = self.locks.inspect(resource).await?;
        // A reader raises no mark, and who holds a permit has no fence at all.
        let fits = |holder: &&Holder| match holder.mode {
            Mode::Exclusive => true,
            Mode::Shared => !fence.is_exclusive(),
            Mode::Permit { .. } => false,
        };
        let holders = state.iter().flat_map(|state| &state.holders);
        let held = holders.filter(fits).filter_map(|holder| holder.token).max();
        if held.is_some_and(|held| token <= held) {
            return Ok(());
        }
        let message = format!(
            "the engine knows no holder of {resource:?} with the token {token}: the lock was lost, or the \
             token was never granted; take the lock again"
        );
        Err(Stale::unheld(token, message))
    }
}

impl Gate for Issued {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.decide(resource, fence))
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        self.gate.highest(resource)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::MemoryGate;

    use super::*;

    #[tokio::test]
    async fn only_writers_raise_the_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let locks = tollgate::connect(&format!("file:{}", folder.path().display())).await.expect("it opens");
        let gate = Issued::new(Arc::new(MemoryGate::new()), locks.clone()).expect("it tells");
        let reader = locks.lock("r").shared().acquire().await.expect("it is free");
        let permit = locks.lock("p").permit(2).acquire().await.expect("it is free");
        let writer = locks.lock("w").acquire().await.expect("it is free");
        for (resource, token, exclusive, passes) in [
            ("r", reader.token(), true, false),
            ("r", reader.token(), false, true),
            ("p", permit.token(), true, false),
            ("p", permit.token(), false, false),
            ("w", writer.token(), true, true),
        ] {
            let admitted = gate.admit(resource, Fence::shown(token, exclusive)).await;
            assert_eq!(admitted.is_ok(), passes, "{resource}, exclusive: {exclusive}: {admitted:?}");
        }
    }
}
