//! The contract's side: what each call means for the server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::runtime::Handle;
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error,
    ErrorKind, Event, Extension, Grant, Keeper, LockName, LockState, LossCause, OwnerId, Release, Result,
    Revocation, RevokeMode, Token, inbox,
};
use tollgate_proto::Durability;
use tollgate_proto::frame::Call;

use crate::acquire::deadline;
use crate::calls::Told;
use crate::capabilities::capabilities;
use crate::config::RemoteConfig;
use crate::details::who;
use crate::error;
use crate::events::follow;
use crate::links::Links;

/// Locks on one server.
pub struct RemoteBackend {
    pub(crate) links: Arc<Links>,
    capabilities: Capabilities,
}

impl RemoteBackend {
    /// Connects, so that what is wrong is told at once.
    ///
    /// # Errors `Unavailable` if no server answers; `Config` if what answers is not a lock server,
    /// or of another version.
    pub fn connect(config: RemoteConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let keeper = Keeper::global()?.spawn(async { Handle::current().id() }).await;
            let keeper = keeper.map_err(|error| {
                Error::new(ErrorKind::Unexpected, "the keeper does not run").caused_by(error)
            })?;
            let links = Arc::new(Links::new(config.servers, clock, keeper));
            let link = links.link().await?;
            let capabilities = capabilities(link.welcome().longest);
            Ok(Self { links, capabilities })
        })
    }

    /// Makes every later token larger than `floor`, of every lock, as a move from another engine
    /// needs it.
    pub async fn raise_floor(&self, floor: Token) -> Result<()> {
        tollgate_core::floor::check(floor)?;
        match self.ask(&Call::RaiseFloor { token: floor }).await? {
            Told::Done => Ok(()),
            other => Err(error::of(other)),
        }
    }

    async fn ask(&self, call: &Call<'_>) -> Result<Told> {
        self.links.link().await?.ask(call).await
    }

    /// Releases, and repeats that once if the answer is lost: it acts by owner id.
    async fn release_grant(&self, grant: &Grant) -> Result<Release> {
        let call = Call::Release { name: grant.name.clone(), owner: grant.owner };
        let link = self.links.link().await?;
        let run = link.welcome().run;
        let told = match link.ask(&call).await {
            Err(error) if error.kind() == ErrorKind::Indeterminate => {
                let link = self.links.link().await.map_err(|_| error)?;
                let told = link.ask(&call).await?;
                // The same run of the server remembers what the first call did. Another one in
                // `sync` has every grant that was not released, and before its deadline nothing
                // else ended it.
                let in_time = matches!(grant.deadline, Deadline::At(end) if self.links.now() < end);
                let welcome = link.welcome();
                let is_restarted = welcome.run != run && welcome.durability == Durability::Sync;
                match told {
                    Told::Lost if is_restarted && in_time => Told::Released { again: false },
                    Told::Released { .. } => Told::Released { again: false },
                    told => told,
                }
            }
            told => told?,
        };
        match told {
            Told::Released { again: false } => Ok(Release::Released),
            Told::Released { again: true } | Told::Lost => Ok(Release::AlreadyLost),
            other => Err(error::of(other)),
        }
    }

    /// A page of locks.
    async fn page(&self, prefix: &str, from: u64) -> Result<(Vec<LockState>, Option<u64>)> {
        match self.ask(&Call::List { prefix, from }).await? {
            Told::Seen { locks, next } => Ok((locks, next)),
            other => Err(error::of(other)),
        }
    }
}

impl Backend for RemoteBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.try_now(claim))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(self.wait_for(claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        // Over whichever connection: the server refuses an acquire that comes after its withdrawal.
        Box::pin(async move {
            let call = Call::Withdraw { name: claim.name.clone(), owner: claim.owner };
            match self.ask(&call).await? {
                Told::Done => Ok(()),
                other => Err(error::of(other)),
            }
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let (name, owner) = (grant.name.clone(), grant.owner);
            match self.ask(&Call::Extend { name, owner, ttl, who: details.map(who) }).await? {
                Told::Granted { sent, lasts, .. } => {
                    Ok(Extension::Extended { deadline: deadline(sent, lasts, ttl) })
                }
                Told::Revoked => Ok(Extension::Lost { cause: LossCause::Revoked }),
                Told::Lost => Ok(Extension::Lost { cause: LossCause::Gone }),
                other => Err(error::of(other)),
            }
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(self.release_grant(grant))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            match self.ask(&Call::Inspect { name: name.clone() }).await? {
                Told::Seen { mut locks, .. } => Ok(locks.pop().filter(is_in_use)),
                other => Err(error::of(other)),
            }
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let start = (Vec::new().into_iter(), Some(0), prefix.to_owned());
        Box::pin(stream::unfold(start, move |(mut locks, mut next, prefix)| async move {
            loop {
                if let Some(state) = locks.next() {
                    return Some((Ok(state), (locks, next, prefix)));
                }
                match self.page(&prefix, next?).await {
                    Ok((page, after)) => (locks, next) = (page.into_iter(), after),
                    // The server cannot be asked any further.
                    Err(error) => return Some((Err(error), (Vec::new().into_iter(), None, prefix))),
                }
            }
        }))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        follow(self.links.clone(), prefix)
    }

    fn tells_events(&self) -> bool {
        true
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        Some(inbox::owners_of(self.links.revoked()))
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let by_force = mode == RevokeMode::Force;
            match self.ask(&Call::Break { name: name.clone(), token, by_force }).await? {
                Told::Broken => Ok(Revocation::Revoked),
                Told::Asked => Ok(Revocation::Pending),
                Told::Lost => Ok(Revocation::NotHeld),
                other => Err(error::of(other)),
            }
        })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            match self.ask(&Call::Age).await? {
                Told::Age { age } => Ok(age),
                other => Err(error::of(other)),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.links.close();
        Box::pin(std::future::ready(()))
    }
}

/// A lock that only stays closed after a loss has no holders and no waiters.
fn is_in_use(state: &LockState) -> bool {
    !(state.holders.is_empty() && state.waiters.is_empty())
}
