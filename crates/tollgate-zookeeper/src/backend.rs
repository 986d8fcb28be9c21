//! The contract's side: what each call means for ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error, Event,
    Extension, Grant, Keeper, LockName, LockState, LossCause, Release, Result, Revocation, RevokeMode, Token,
    events,
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
    pub fn connect(config: ZooKeeperConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
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
                    "sessions of this ZooKeeper last {longest:?} at most, and a lock needs 6 ticks of \
                     {tick:?}; if its tickTime differs, set it with ?tick="
                )));
            }
            Ok(Self { layout, sessions, clock, keeper, capabilities: capabilities(range) })
        })
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
            return Err(Error::unsupported(
                "the ttl belongs to the session and cannot be changed; take the lock again with another ttl",
            ));
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
                Ok(true) => {}
                Ok(false) => return Ok(Extension::Lost { cause: LossCause::Revoked }),
                Err(Trouble::NoNode) => return Ok(Extension::Lost { cause: LossCause::Revoked }),
                Err(Trouble::Ended) => {
                    return Ok(Extension::Lost { cause: LossCause::SessionEnded });
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
        // Of a node that is marked or deleted, `lost` tells.
        if self.sessions.is_revoked(grant.owner) {
            return Ok(Extension::Lost { cause: LossCause::Revoked });
        }
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

    /// Completes when the holder is asked to leave, or its node is gone. Only an operator deletes the node of a session that
    /// lives: lost data would have lost the session, too.
    async fn until_revoked(&self, open: &Open, path: &str) {
        loop {
            match open.calls.data_and_watch(path).await {
                Ok((data, ..)) if Value::of(&data).is_some_and(|value| value.revoked) => return,
                Ok((_, _, watch)) => match watch.await {
                    Told::Deleted => return,
                    Told::Changed => continue,
                    _ => {}
                },
                Err(Trouble::NoNode) => return,
                // The session's own end is told otherwise.
                Err(Trouble::Ended) => std::future::pending().await,
                Err(_) => {}
            }
            self.clock.sleep_until(self.clock.now() + PAUSE).await;
        }
    }
}

/// Writes a holder's details, unless it has written later ones: a request may come after its successor. Answers `false` if the
/// holder is asked to leave.
pub(crate) async fn say(calls: &Calls, path: &str, value: &Value) -> Answer<bool> {
    let data = value.to_json().map_err(Trouble::Failed)?;
    loop {
        let (found, stat) = calls.data(path).await?;
        match Value::of(&found) {
            Some(said) if said.revoked => return Ok(false),
            Some(said) if said.details.revision > value.details.revision => return Ok(true),
            _ => {}
        }
        match calls.set(path, &data, Some(stat.version)).await {
            Err(Trouble::Changed) => {}
            answer => return answer.map(|_| true),
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
                    () = self.until_revoked(&open, &path) => {
                        if !self.sessions.has(grant.owner) {
                            // By our own release.
                            std::future::pending::<()>().await;
                        }
                        LossCause::Revoked
                    }
                },
            };
            match cause {
                // Its node may be there until the holder leaves.
                LossCause::Revoked => self.sessions.note_revoked(grant.owner),
                _ => self.sessions.forget(grant.owner),
            }
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

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(self.broken(name, token, mode))
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(self.newest())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.sessions.close())
    }
}
