//! Grants that came from elsewhere: adopting, extending, releasing and inheriting them.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::backend::{Extension, Release};
use crate::claim::Claim;
use crate::client::Locks;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::{Deadline, Grant};
use crate::guard::Guard;
use crate::hold::Limits;
use crate::pending::Pending;

impl Locks {
    /// Makes a guard of a grant that came from elsewhere, after renewing it.
    ///
    /// Fails with `Lost` if it is gone. If the engine cannot be asked, the grant's own deadline counts as
    /// long as it is on this host's clock and has not passed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-adopt").await?;
    /// let grant = locks.lock("import").no_renew().acquire().await?.into_grant()?;
    /// let json = serde_json::to_string(&grant).expect("a grant is JSON");
    ///
    /// // Perhaps in another process:
    /// let grant = serde_json::from_str(&json).expect("it was written here");
    /// let guard = locks.adopt(grant).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn adopt(&self, grant: Grant) -> Result<Guard> {
        let named = |error: Error| error.during("adopt").on(&grant.name);
        let capabilities = self.client.backend.capabilities();
        self.client.check_open().and_then(|()| capabilities.check_adoptable(&grant)).map_err(named)?;
        let clock = &*self.client.clock;
        let deadline = match self.extended(&grant, grant.ttl).await {
            Ok(deadline) => deadline,
            Err(error) => match (error.kind(), grant.deadline) {
                (
                    ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Indeterminate,
                    Deadline::At(deadline),
                ) if clock.now() < deadline => grant.deadline,
                _ => return Err(named(error)),
            },
        };
        let guard = Guard::new(&self.client, Grant { deadline, ..grant.clone() }, Limits::default());
        guard.check().map_err(named)?;
        Ok(guard)
    }

    /// Renews a grant that nobody keeps to `ttl` from now, without taking it into this program's hands, and
    /// gives the grant as it is then.
    ///
    /// Fails with `Lost` if it is gone.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-extend-grant").await?;
    /// use std::time::Duration;
    ///
    /// let grant = locks.lock("import").no_renew().acquire().await?.into_grant()?;
    /// let longer = locks.extend_grant(&grant, Duration::from_secs(60)).await?;
    /// assert_eq!(longer.token, grant.token);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn extend_grant(&self, grant: &Grant, ttl: Duration) -> Result<Grant> {
        let named = |error: Error| error.during("extend").on(&grant.name);
        let capabilities = self.client.backend.capabilities();
        self.client
            .check_open()
            .and_then(|()| capabilities.check_adoptable(grant))
            .and_then(|()| capabilities.check_ttl(ttl))
            .map_err(named)?;
        let deadline = self.extended(grant, ttl).await.map_err(named)?;
        Ok(Grant { ttl, deadline, ..grant.clone() })
    }

    /// Gives back a grant that nobody keeps: `AlreadyLost` if it was lost before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-release-grant").await?;
    /// use tollgate::Release;
    ///
    /// let grant = locks.lock("import").no_renew().acquire().await?.into_grant()?;
    /// assert_eq!(locks.release_grant(&grant).await?, Release::Released);
    /// assert_eq!(locks.release_grant(&grant).await?, Release::AlreadyLost);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_grant(&self, grant: &Grant) -> Result<Release> {
        let named = |error: Error| error.during("release").on(&grant.name);
        let capabilities = self.client.backend.capabilities();
        self.client.check_open().and_then(|()| capabilities.check_adoptable(grant)).map_err(named)?;
        self.client.backend.release(grant).await.map_err(named)
    }

    /// Makes a guard of a grant that another process [bequeathed](Guard::bequeath), and of the open file its
    /// lock hangs on. Those who look at the lock see this process from here on.
    ///
    /// Fails with `Lost` if `lock` does not hold the grant, and where locks do not hang on a descriptor.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let url = format!("file:{}", folder.path().display());
    /// let locks = tollgate::connect(&url).await?;
    /// let (grant, lock) = locks.lock("import").acquire().await?.bequeath()?;
    ///
    /// // In a child that inherited the descriptor:
    /// let guard = tollgate::connect(&url).await?.inherit(grant, lock).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inherit(&self, grant: Grant, lock: OwnedFd) -> Result<Guard> {
        let named = |error: Error| error.during("inherit").on(&grant.name);
        self.client.check_open().map_err(named)?;
        let claim = Claim { owner: grant.owner, ..Claim::new(grant.name.clone(), grant.mode, grant.ttl) };
        // If this future is dropped, what was taken over is released.
        let pending = Pending::new(&self.client, claim);
        let inherited = self.client.backend.inherit(&grant, lock).await;
        let guard = inherited.map(|()| Guard::new(&self.client, grant.clone(), Limits::default()));
        pending.settle();
        let guard = guard.map_err(named)?;
        guard.check().map_err(named)?;
        Ok(guard)
    }

    /// Asks the engine to renew `grant`; the new deadline, or why there is none.
    async fn extended(&self, grant: &Grant, ttl: Duration) -> Result<Deadline> {
        let clock = &*self.client.clock;
        let extended = tokio::select! {
            biased;
            extended = self.client.backend.extend(grant, ttl, None) => extended?,
            () = clock.sleep_until(clock.now() + ttl / 6) => {
                return Err(Error::new(ErrorKind::Timeout, "the engine does not answer; try again"));
            }
        };
        match extended {
            Extension::Extended { deadline } => Ok(deadline),
            Extension::Lost { cause } => {
                Err(Error::new(ErrorKind::Lost, format!("the lock is lost: {cause}; take it again")))
            }
        }
    }
}
