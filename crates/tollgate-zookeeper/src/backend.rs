//! The contract's side: what each call means for ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error, Event,
    Extension, Grant, Keeper, LockName, LockState, LossCause, Release, Result, Revocation, Token, events,
};

use crate::acquire::{Value, sweep};
use crate::calls::{Answer, Calls};
use crate::capabilities::{capabilities, ttls};
use crate::config::ZooKeeperConfig;
use crate::error::Trouble;
use crate::paths::Layout;
use crate::session::{Means, Open, Seat};
use crate::sessions::{Leftover, Sessions};
use crate::wire::Event as Told;

/// How often whoever wants to hear of events looks.
const EVERY: Duration = Duration::from_millis(250);
/// Before a watch that broke is made again.
const PAUSE: Duration = Duration::from_millis(50);

/// Locks on one ZooKeeper.
pub struct ZooKeeperBackend {
    pub(crate) layout: Layout,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Keeper,
    capabilities: Capabilities,
}

/// A session to look with, which is there as long as somebody does.
pub(crate) struct Visit {
    open: Open,
    _seat: Seat,
}

impl std::ops::Deref for Visit {
    type Target = Open;

    fn deref(&self) -> &Open {
        &self.open
    }
}

impl ZooKeeperBackend {
    /// Connects, so that what is wrong is told at once, and learns how long sessions may last.
    pub async fn connect(config: ZooKeeperConfig, clock: Arc<dyn Clock>) -> Result<Self> {
        let layout = Layout::new(config.root()?, config.style);
        let tick = config.tick;
        let keeper = Keeper::global()?;
        let means = Means {
            config: Arc::new(config),
            layout: layout.clone(),
            keeper: keeper.clone(),
            clock: clock.clone(),
        };
        let sessions = Arc::new(Sessions::new(means));
        let Open { ttl: longest, .. } = sessions.visitor().session().opened().await?;
        let range = ttls(Duration::ZERO, longest, tick);
        if longest < range.min {
            return Err(Error::invalid(format!(
                "sessions of this ZooKeeper last {longest:?} at most, and a lock needs 6 ticks of {tick:?}; is its \
                 tickTime another? Then say ?tick="
            )));
        }
        Ok(Self { layout, sessions, clock, keeper, capabilities: capabilities(range) })
    }

    /// A session to look with.
    pub(crate) async fn visit(&self) -> Result<Visit> {
        let seat = self.sessions.visitor();
        let open = seat.session().opened().await?;
        open.calls.connected().await?;
        Ok(Visit { open, _seat: seat })
    }

    async fn withdrawn(&self, claim: &Claim) -> Result<()> {
        let folder = self.layout.folder(&claim.name);
        let done = match self.sessions.leftover(claim.owner) {
            Leftover::Nothing => Ok(()),
            Leftover::Node(session, node) => match session.opened().await {
                Ok(open) => open.calls.delete(&format!("{folder}/{node}")).await.map(drop),
                Err(_) => Err(Trouble::Ended),
            },
            Leftover::Unknown(session) => match session.opened().await {
                Ok(open) => sweep(&open.calls, &folder, claim.owner).await,
                Err(_) => Err(Trouble::Ended),
            },
        };
        match done {
            // With the session went what it had.
            Ok(()) | Err(Trouble::Ended) => {
                self.sessions.forget(claim.owner);
                Ok(())
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn extended(&self, grant: &Grant, ttl: Duration, details: Option<&Details>) -> Result<Extension> {
        if ttl != grant.ttl {
            return Err(Error::unsupported("the ttl is the session's; take the lock again with another"));
        }
        let gone = Extension::Lost { cause: LossCause::Gone };
        let Some(path) = self.path_of(grant)? else { return Ok(gone) };
        let Some(session) = self.sessions.home(grant.owner) else { return Ok(gone) };
        if session.is_over() {
            return Ok(Extension::Lost { cause: LossCause::SessionEnded });
        }
        if let Some(details) = details {
            let open = session.opened().await?;
            match say(&open.calls, &path, &Value::new(ttl, details)).await {
                Ok(()) => {}
                Err(Trouble::NoNode) => return Ok(gone),
                Err(Trouble::Ended) => {
                    return Ok(Extension::Lost { cause: LossCause::SessionEnded });
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
        // Of a node that somebody deletes, `lost` tells.
        match session.refresh(ttl).await {
            Ok(()) => {
                if grant.standalone {
                    session.let_end(true);
                }
                Ok(Extension::Extended { deadline: session.deadline(ttl) })
            }
            Err(_) => Ok(Extension::Lost { cause: LossCause::SessionEnded }),
        }
    }

    async fn released(&self, grant: &Grant) -> Result<Release> {
        let Some(path) = self.path_of(grant)? else { return Ok(Release::AlreadyLost) };
        let open = match self.sessions.home(grant.owner) {
            Some(session) if session.is_over() => {
                self.sessions.forget(grant.owner);
                return Ok(Release::AlreadyLost);
            }
            Some(session) => Visit { open: session.opened().await?, _seat: session.enter_anyway() },
            None => self.visit().await?,
        };
        let mut again = false;
        loop {
            let answer = open.calls.delete(&path).await;
            // A lock that was still ours by the deadline was given back by the request whose answer was lost.
            let in_time = matches!(grant.deadline, Deadline::At(end) if self.clock.now() < end);
            let released = match answer {
                Ok(deleted) => deleted || (again && in_time),
                Err(Trouble::Ended) => false,
                Err(Trouble::Failed(error)) if error.is_retryable() && !again => {
                    again = true;
                    continue;
                }
                Err(trouble) => return Err(trouble.into()),
            };
            self.sessions.forget(grant.owner);
            return Ok(if released { Release::Released } else { Release::AlreadyLost });
        }
    }

    /// Completes when the node at `path` is gone.
    async fn gone(&self, open: &Open, path: &str) {
        loop {
            match open.calls.data_and_watch(path).await {
                Ok((_, _, watch)) => {
                    if watch.await == Told::Deleted {
                        return;
                    }
                }
                Err(Trouble::NoNode) => return,
                // The session's own end is told otherwise.
                Err(Trouble::Ended) => std::future::pending().await,
                Err(_) => {}
            }
            self.clock.sleep_until(self.clock.now() + PAUSE).await;
        }
    }
}

/// Has the node of a claim say something else, unless its holder has said something later: a request may come after its
/// successor.
async fn say(calls: &Calls, path: &str, value: &Value) -> Answer<()> {
    let data = value.to_json().map_err(Trouble::Failed)?;
    loop {
        let (found, stat) = calls.data(path).await?;
        let said = serde_json::from_slice(&found).map_or(0, |said: Value| said.details.revision);
        if said > value.details.revision {
            return Ok(());
        }
        match calls.set(path, &data, Some(stat.version)).await {
            Err(Trouble::Changed) => {}
            answer => return answer.map(drop),
        }
    }
}

impl Backend for ZooKeeperBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(self.wait(claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.withdrawn(claim))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(self.extended(grant, ttl, details))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(self.released(grant))
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        let path = self.path_of(grant).ok()??;
        Some(Box::pin(async move {
            let Some(session) = self.sessions.home(grant.owner) else { return LossCause::Gone };
            let cause = match session.opened().await {
                Err(_) => LossCause::SessionEnded,
                Ok(open) => tokio::select! {
                    () = session.ended() => LossCause::SessionEnded,
                    () = self.gone(&open, &path) => {
                        if !self.sessions.has(grant.owner) {
                            // By our own release.
                            std::future::pending::<()>().await;
                        }
                        LossCause::Gone
                    }
                },
            };
            self.sessions.forget(grant.owner);
            cause
        }))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(self.seen(name))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        self.listed(prefix)
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.clock.clone(), prefix, EVERY)
    }

    fn revoke<'a>(&'a self, name: &'a LockName, token: Token) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(self.broken(name, token))
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(self.newest())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.sessions.close())
    }
}
