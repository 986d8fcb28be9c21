//! The contract's side: what each call means for `GET_LOCK`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::runtime::Handle;
use tollgate_core::capabilities::Modes;
use tollgate_core::wait::Outage;
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Contention, Deadline, Details,
    Error, ErrorKind, Event, Extension, Grant, Keeper, LockName, LockState, LossCause, Mode, Release, Result,
    Revocation, Token, events,
};
use tollgate_sql::{of_sessions, within};

use super::books::{Books, Entry};
use super::clerk::Clerk;
use super::connection::Connection;
use super::desk::{Desk, TO_ANSWER};
use super::key::key;
use super::view;
use crate::config::MySqlConfig;
use crate::error::{Trouble, silent};

/// How often locks are looked at for events.
const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// How long a connection is waited for whose claim is withdrawn; then it is ended from the other side.
const TO_WITHDRAW: Duration = Duration::from_secs(2);

/// The server's own `GET_LOCK`, each lock on a connection of its own: `mysql://…?style=session`.
///
/// A lock called `NAME` is `GET_LOCK('NAME', …)` if that is lower-case ASCII and at most 64 bytes long, so other programs that
/// take that exclude with it. Nothing expires: a lock ends with its connection, and one that is lost is noticed within 5 s.
pub struct SessionBackend {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

/// What locks by `GET_LOCK` can do.
pub(crate) fn capabilities_of_sessions() -> Capabilities {
    of_sessions("mysql-session", Modes::EXCLUSIVE)
}

/// What calls and the keeper share.
pub(super) struct Shared {
    pub(super) desk: Desk,
    pub(super) books: Books,
    pub(super) clerk: Clerk,
    clock: Arc<dyn Clock>,
    pub(super) keeper: Keeper,
}

impl SessionBackend {
    /// Connects, so that what is wrong is told at once.
    ///
    /// # Errors
    /// `Config` on Galera and behind a proxy that lends connections; `Denied` where this user may not log in, or not create what
    /// is missing; `Unavailable` if the server cannot be reached.
    pub async fn connect(config: MySqlConfig, clock: Arc<dyn Clock>) -> Result<Self> {
        let shared = Arc::new(Shared {
            desk: Desk::connect(config).await?,
            books: Books::default(),
            clerk: Clerk::default(),
            clock,
            keeper: Keeper::global()?,
        });
        Ok(Self { shared, capabilities: capabilities_of_sessions() })
    }
}

impl Shared {
    /// Asks for a lock over a connection of its own. `None` if it is somebody else's.
    async fn ask(self: &Arc<Self>, claim: &Claim, waits: bool) -> Result<Option<Grant>> {
        if claim.mode != Mode::Exclusive {
            return Err(Error::unsupported(
                "GET_LOCK is exclusive; leave out ?style=session for other modes",
            ));
        }
        loop {
            if let Some(entry) = self.books.find(claim.owner) {
                let token = entry.state().token;
                return match token {
                    Some(token) => Ok(Some(Grant::new(claim, token, Deadline::Never))),
                    None => {
                        Err(Error::new(ErrorKind::Unavailable, "this very claim is being asked for already"))
                    }
                };
            }
            let connection = self.desk.lend().await?;
            let was_used = connection.was_used();
            let entry = self.books.enter(claim, connection, waits);
            self.clerk.is_needed(self);
            match self.take(&entry).await {
                Ok(Some((token, waited))) => return self.granted(&entry, token, waited).map(Some),
                Ok(None) => {
                    // Nothing hangs on the connection.
                    let connection = entry.connection.lock().await.take();
                    self.strike_out(&entry, connection);
                    return Ok(None);
                }
                // It was closed while nobody used it, most likely; nothing hangs on it once it is gone.
                Err(trouble) if was_used && trouble.is_of_connection() => {
                    *entry.connection.lock().await = None;
                    self.desk.end(&entry.place).await?;
                    self.strike_out(&entry, None);
                }
                Err(trouble) => return Err(refused(trouble, &entry)),
            }
        }
    }

    /// Takes the lock at once, or else waits for it if that is wanted.
    async fn take(&self, entry: &Arc<Entry>) -> Result<Option<(Result<Token>, bool)>, Trouble> {
        let mut place = entry.connection.lock().await;
        let Some(connection) = place.as_mut() else { return Err(silent(TO_ANSWER)) };
        let name = &entry.claim.name;
        let at_once = within(TO_ANSWER, connection.take(name, false)).await;
        if let Some(token) = at_once.unwrap_or_else(|| Err(silent(TO_ANSWER)))? {
            return Ok(Some((token, false)));
        }
        if !entry.waits {
            return Ok(None);
        }
        let mut lost = entry.lost.subscribe();
        tokio::select! {
            biased;
            taken = connection.take(name, true) => match taken? {
                Some(token) => Ok(Some((token, true))),
                None => Err(silent(TO_ANSWER)),
            },
            _ = lost.wait_for(|lost| *lost) => Err(silent(TO_ANSWER)),
        }
    }

    fn granted(&self, entry: &Entry, token: Result<Token>, waited: bool) -> Result<Grant> {
        let token = token?;
        let mut state = entry.state();
        state.token = Some(token);
        state.outdated = true;
        drop(state);
        let grant = Grant::new(&entry.claim, token, Deadline::Never);
        Ok(if waited { grant.after_waiting() } else { grant })
    }

    /// Waits for a lock. Who has stood in the queue before the server went away goes on waiting.
    async fn wait(self: &Arc<Self>, claim: &Claim) -> Result<Grant> {
        let mut outage = Outage::default();
        let mut waited = false;
        loop {
            let error = match self.ask(claim, true).await {
                Ok(Some(grant)) => return Ok(Grant { waited: grant.waited || waited, ..grant }),
                Ok(None) => Error::new(ErrorKind::Unavailable, "the server took the request for an old one"),
                Err(error) => error,
            };
            waited |= self.books.find(claim.owner).is_some_and(|entry| entry.state().queued);
            if !waited {
                return Err(error);
            }
            let mut pause = outage.pause(error)?;
            loop {
                self.clock.sleep_until(self.clock.now() + pause).await;
                match self.withdraw(claim).await {
                    Ok(()) => break,
                    Err(error) => pause = outage.pause(error)?,
                }
            }
        }
    }

    /// Takes a claim out, wherever it stands. Whoever asked for it has been dropped, so nobody knows what its connection is
    /// about: it is ended.
    async fn withdraw(self: &Arc<Self>, claim: &Claim) -> Result<()> {
        let Some(entry) = self.books.find(claim.owner) else { return Ok(()) };
        if entry.state().token.is_some() {
            return self.leave(&entry, TO_WITHDRAW).await.map(drop);
        }
        self.desk.cancel(&entry.place).await?;
        self.desk.end(&entry.place).await?;
        *entry.connection.lock().await = None;
        self.strike_out(&entry, None);
        Ok(())
    }

    /// Gives back whatever `entry` has, over its own connection or by ending that. Answers whether it was there.
    async fn leave(self: &Arc<Self>, entry: &Arc<Entry>, limit: Duration) -> Result<bool> {
        let mut place = entry.connection.lock().await;
        let given_back = match place.as_mut() {
            Some(connection) => {
                within(limit, connection.give_back()).await.unwrap_or_else(|| Err(silent(limit))).ok()
            }
            None => None,
        };
        let connection = place.take().filter(|_| given_back.is_some());
        drop(place);
        if given_back.is_none() {
            self.desk.end(&entry.place).await?;
        }
        self.strike_out(entry, connection);
        Ok(given_back == Some(true))
    }

    fn strike_out(self: &Arc<Self>, entry: &Entry, connection: Option<Connection>) {
        match self.books.strike_out(entry, connection) {
            Some(connection) => self.desk.take_back(connection, Handle::current().id()),
            None if entry.state().written => self.clerk.ring(self),
            None => {}
        }
    }

    /// The server has forgotten it, or cannot be asked: whoever holds it is told, and the server is, too.
    pub(super) fn give_up(self: &Arc<Self>, entry: &Arc<Entry>) {
        if entry.lost.send_replace(true) {
            return;
        }
        let (shared, entry) = (self.clone(), entry.clone());
        drop(self.keeper.spawn(async move {
            let mut outage = Outage::default();
            while let Err(error) = shared.desk.end(&entry.place).await {
                let Ok(pause) = outage.pause(error) else { return };
                tokio::time::sleep(pause).await;
            }
        }));
    }

    /// Asks the server whether it has a lock for us.
    async fn is_held(&self, entry: &Entry) -> Result<bool> {
        let question = format!(
            "select is_used_lock(x'{}') <=> {}",
            view::hex(key(&entry.claim.name).as_bytes()),
            entry.place.id
        );
        let rows = self.desk.ask(question).await?;
        Ok(rows.first().and_then(|row| row.get::<i64, _>(0)) == Some(1))
    }
}

/// What an answer that is none means for whoever asked.
fn refused(trouble: Trouble, entry: &Entry) -> Error {
    let canceled = trouble.code().is_some();
    let error = trouble.into_error("the acquire");
    if canceled && entry.waits && error.kind() == ErrorKind::Unavailable {
        return Error::new(ErrorKind::Unavailable, "the wait was ended from outside; try again")
            .caused_by(error);
    }
    error
}

impl Backend for SessionBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            Ok(match self.shared.ask(claim, false).await.map_err(|error| error.on(&claim.name))? {
                Some(grant) => Attempt::Granted(grant),
                None => Attempt::Busy(Contention::default()),
            })
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move { self.shared.wait(claim).await.map_err(|error| error.on(&claim.name)) })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.shared.withdraw(claim))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        _ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let Some(entry) = self.shared.books.held(grant) else {
                return Ok(Extension::Lost { cause: LossCause::Gone });
            };
            if let Some(details) = details {
                self.shared.say(&entry, details).await?;
            }
            if !*entry.lost.borrow() && self.shared.is_held(&entry).await? {
                return Ok(Extension::Extended { deadline: Deadline::Never });
            }
            self.shared.give_up(&entry);
            Ok(Extension::Lost { cause: LossCause::SessionEnded })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let Some(entry) = self.shared.books.held(grant) else { return Ok(Release::AlreadyLost) };
            let was_there =
                self.shared.leave(&entry, TO_ANSWER).await.map_err(|error| error.on(&grant.name))?;
            Ok(if was_there { Release::Released } else { Release::AlreadyLost })
        })
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        let entry = self.shared.books.held(grant);
        Some(Box::pin(async move {
            let Some(entry) = entry else { return LossCause::Gone };
            let told = entry.lost.subscribe().wait_for(|lost| *lost).await.is_ok();
            if told && !entry.state().over {
                return LossCause::SessionEnded;
            }
            // It was released: nothing can be lost any more.
            std::future::pending().await
        }))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move { view::inspect(&self.shared.desk, name).await.map_err(|error| error.on(name)) })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let prefix = prefix.to_owned();
        let listed = async move {
            match view::list(&self.shared.desk, &prefix).await {
                Ok(states) => states.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            }
        };
        Box::pin(stream::once(listed).flat_map(stream::iter))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.shared.clock.clone(), prefix, EVENTS_EVERY)
    }

    fn revoke<'a>(&'a self, name: &'a LockName, token: Token) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let desk = &self.shared.desk;
            let Some(connection) = view::holder(desk, name, token).await? else {
                return Ok(Revocation::NotHeld);
            };
            desk.end(&connection).await.map_err(|error| error.on(name))?;
            Ok(Revocation::Revoked)
        })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            let now = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
            let told =
                self.shared.desk.ask(now.to_owned()).await?.first().and_then(|row| row.get::<u64, _>(0));
            told.map(Age).ok_or_else(|| Error::new(ErrorKind::Unexpected, "the server tells no time"))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.desk.close())
    }
}

impl std::fmt::Debug for SessionBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionBackend")
    }
}
