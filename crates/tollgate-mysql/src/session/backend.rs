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
    Revocation, RevokeMode, Token, events,
};
use tollgate_sql::{of_sessions, within};

use super::books::{Books, Entry};
use super::clerk::Clerk;
use super::connection::Connection;
use super::desk::{Desk, TO_ANSWER, may_not_end};
use super::key::key;
use super::marks::Mark;
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
    pub fn connect(config: MySqlConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let shared = Arc::new(Shared {
                desk: Desk::connect(config).await?,
                books: Books::default(),
                clerk: Clerk::default(),
                clock,
                keeper: Keeper::global()?,
            });
            Ok(Self { shared, capabilities: capabilities_of_sessions() })
        })
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
                    None => Err(Error::new(ErrorKind::Unavailable, "this claim is already being taken")),
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
        entry.claim.wait_status.set_queued();
        let mut lost = entry.lost.subscribe();
        tokio::select! {
            biased;
            taken = connection.take(name, true) => match taken? {
                Some(token) => Ok(Some((token, true))),
                None => Err(silent(TO_ANSWER)),
            },
            _ = lost.wait_for(Option::is_some) => Err(silent(TO_ANSWER)),
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
                Ok(None) => {
                    Error::new(ErrorKind::Unavailable, "the server took the request for an earlier one")
                }
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

    /// The server has forgotten it, or cannot be asked: the holder is told, and the server is, too.
    pub(super) fn give_up(self: &Arc<Self>, entry: &Arc<Entry>) {
        entry.lose(LossCause::SessionEnded);
        if std::mem::replace(&mut entry.state().given_up, true) {
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

    /// Marks a grant, and ends its connection if that is wanted. The mark comes first: the holder looks for it when its
    /// connection is gone.
    async fn revoke(&self, name: &LockName, token: Token, mode: RevokeMode) -> Result<Revocation> {
        let Some(connection) = view::holder(&self.desk, name, token).await? else {
            return Ok(Revocation::NotHeld);
        };
        self.desk.mark(&Mark::of(name, connection, token)).await?;
        if mode == RevokeMode::Ask {
            return Ok(Revocation::Pending);
        }
        match self.desk.place_of(connection).await? {
            Some(place) => self.desk.end(&place).await?,
            // Other users' connections are not shown to every user.
            None if view::user(&self.desk, name).await? == Some(connection) => return Err(may_not_end()),
            None => {}
        }
        Ok(Revocation::Revoked)
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
        return Error::new(ErrorKind::Unavailable, "the wait was cancelled on the server; try again")
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
            let is_held = entry.loss().is_none() && self.shared.is_held(&entry).await?;
            if entry.loss().is_none() {
                self.shared.look_for_marks(std::slice::from_ref(&entry)).await;
            }
            if !is_held && entry.loss() != Some(LossCause::Revoked) {
                self.shared.give_up(&entry);
            }
            Ok(match entry.loss() {
                Some(cause) => Extension::Lost { cause },
                None => Extension::Extended { deadline: Deadline::Never },
            })
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
            let told = entry.lost.subscribe().wait_for(Option::is_some).await.is_ok();
            if let Some(cause) = entry.loss().filter(|_| told && !entry.state().over) {
                return cause;
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
        one_by_one(async move { view::list(&self.shared.desk, &prefix).await })
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        let (prefix, desk) = (prefix.to_owned(), &self.shared.desk);
        let list = move || {
            let prefix = prefix.clone();
            one_by_one(async move { view::list_written(desk, &prefix).await })
        };
        events::poll_with(list, self.shared.clock.clone(), EVENTS_EVERY)
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move { self.shared.revoke(name, token, mode).await.map_err(|error| error.on(name)) })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            let now = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
            let told =
                self.shared.desk.ask(now.to_owned()).await?.first().and_then(|row| row.get::<u64, _>(0));
            told.map(Age).ok_or_else(|| Error::new(ErrorKind::Unexpected, "the server reported no time"))
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

/// The locks of a listing, or its error.
fn one_by_one<'a>(
    listing: impl Future<Output = Result<Vec<LockState>>> + Send + 'a,
) -> BoxStream<'a, Result<LockState>> {
    let listed = async move {
        match listing.await {
            Ok(states) => states.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    };
    Box::pin(stream::once(listed).flat_map(stream::iter))
}
