//! The contract's side: what each call means for advisory locks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio_postgres::types::Type;
use tollgate_core::capabilities::Modes;
use tollgate_core::wait::Outage;
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Contention, Deadline, Details,
    Error, ErrorKind, Event, Extension, Grant, Keeper, LockName, LockState, LossCause, Mode, Release, Result,
    Revocation, RevokeMode, Token, events,
};
use tollgate_sql::of_sessions;

use super::books::{Books, Entry, Hopeless};
use super::clerk::Clerk;
use super::session::{Taken, pooler, token};
use super::sessions::{Sessions, TO_ANSWER, answered};
use super::texts::{Step, Texts};
use super::{lost, view};
use crate::config::PostgresConfig;
use crate::driven::Value;
use crate::error::Trouble;
use crate::names::Names;

/// How often locks are looked at for events.
const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// How long a connection is waited for whose claim is withdrawn; then it is ended from the other side.
const TO_WITHDRAW: Duration = Duration::from_secs(2);

/// PostgreSQL's own advisory locks, each on a connection of its own: `postgres://…?style=advisory`.
///
/// A lock called `NAME` is `pg_advisory_lock(hashtextextended('NAME', 0))`, so other programs that take that exclude with it.
/// Nothing expires: a lock ends with its connection, and a connection that is lost is noticed within 5 s.
pub struct AdvisoryBackend {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

/// What advisory locks can do.
pub(crate) fn capabilities_of_advisory() -> Capabilities {
    of_sessions("postgres-advisory", Modes { shared: true, permit: false })
}

/// What calls and the keeper share.
pub(super) struct Shared {
    pub(super) sessions: Sessions,
    pub(super) books: Books,
    pub(super) clerk: Clerk,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) keeper: Keeper,
}

impl AdvisoryBackend {
    /// Connects, so that what is wrong is told at once. With a `key` all locks are the one with that number, as other programs
    /// know it; without, each name has a number of its own.
    ///
    /// # Errors
    /// `Config` behind a pooler that does not leave connections their server process; `Denied` where this user may not log in,
    /// or not create what is missing; `Unavailable` if PostgreSQL cannot be reached.
    pub fn connect(
        config: PostgresConfig,
        key: Option<i64>,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            config.check()?;
            let texts = Texts::new(&Names::of(&config.schema, &config.table_prefix), key);
            let shared = Arc::new(Shared {
                sessions: Sessions::connect(config, texts).await?,
                books: Books::default(),
                clerk: Clerk::default(),
                clock,
                keeper: Keeper::global()?,
            });
            Ok(Self { shared, capabilities: capabilities_of_advisory() })
        })
    }

    /// Makes every later token of every lock larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, floor: Token) -> Result<()> {
        tollgate_core::floor::check(floor)?;
        let floor = i64::try_from(floor.get()).unwrap_or(i64::MAX);
        let sessions = &self.shared.sessions;
        sessions.ask(&sessions.texts.floor, &[(&floor, Type::INT8)]).await.map(drop)
    }
}

/// How asking for a lock went.
enum Asked {
    Granted(Grant),
    Busy,
}

impl Shared {
    /// Asks for a lock over a connection of its own.
    async fn ask(self: &Arc<Self>, claim: &Claim, waits: bool) -> Result<Asked> {
        let step = step(claim.mode, waits)?;
        if let Some(entry) = self.books.find(claim.owner) {
            let token = entry.state().token;
            return match token {
                Some(token) => Ok(Asked::Granted(Grant::new(claim, token, Deadline::Never))),
                None => Err(Error::new(ErrorKind::Unavailable, "this claim is already being taken")),
            };
        }
        let session = self.sessions.lend().await?;
        let entry = self.books.enter(claim, session, waits);
        self.clerk.is_needed(self);
        let taken = self.take(&entry, step).await;
        match taken? {
            Taken::In { token: number, waited } => {
                Ok(Asked::Granted(self.granted(&entry, token(number)?, waited)))
            }
            Taken::Busy => {
                // Nothing hangs on the connection.
                let session = entry.session.lock().await.take();
                self.strike_out(&entry, session);
                Ok(Asked::Busy)
            }
            Taken::ByAnother => {
                entry.session.lock().await.take();
                self.strike_out(&entry, None);
                Err(pooler())
            }
        }
    }

    async fn take(&self, entry: &Arc<Entry>, step: Step) -> Result<Taken> {
        let mut place = entry.session.lock().await;
        let Some(session) = place.as_mut() else { return Err(disconnected()) };
        let asking = session.take(step, entry.claim.name.as_str());
        let answer = if entry.waits {
            tokio::select! {
                biased;
                answer = asking => answer,
                () = entry.verdict.notified() => {
                    let hopeless = entry.state().hopeless.clone();
                    return Err(match hopeless {
                        Some(Hopeless::Collision(other)) => collision(&entry.claim.name, &other),
                        _ => disconnected(),
                    });
                }
            }
        } else {
            answered(TO_ANSWER, asking).await
        };
        answer.map_err(|trouble| refused(trouble, entry))
    }

    fn granted(&self, entry: &Entry, token: Token, waited: bool) -> Grant {
        let mut state = entry.state();
        state.token = Some(token);
        state.outdated = true;
        drop(state);
        let grant = Grant::new(&entry.claim, token, Deadline::Never);
        if waited { grant.after_waiting() } else { grant }
    }

    /// Waits for a lock. Who has stood in the queue before the server went away goes on waiting.
    async fn wait(self: &Arc<Self>, claim: &Claim) -> Result<Grant> {
        let mut outage = Outage::default();
        let mut waited = false;
        loop {
            let error = match self.ask(claim, true).await {
                Ok(Asked::Granted(grant)) => return Ok(Grant { waited: grant.waited || waited, ..grant }),
                Ok(Asked::Busy) => {
                    Error::new(ErrorKind::Unavailable, "PostgreSQL took the request for an earlier one")
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

    /// Takes a claim out, wherever it stands.
    async fn withdraw(self: &Arc<Self>, claim: &Claim) -> Result<()> {
        let Some(entry) = self.books.find(claim.owner) else { return Ok(()) };
        let waits = entry.waits && entry.state().token.is_none();
        if waits {
            // It fails by that, and the connection is free again.
            self.sessions.cancel(&entry.place).await?;
        }
        self.leave(&entry, TO_WITHDRAW).await.map(drop)
    }

    /// Gives back whatever `entry` has, over its own connection or by ending that. Answers whether it was alive.
    async fn leave(self: &Arc<Self>, entry: &Arc<Entry>, limit: Duration) -> Result<bool> {
        let mut place = entry.session.lock().await;
        let given_back = match place.as_mut() {
            Some(session) => answered(limit, session.give_back()).await.unwrap_or(false),
            None => false,
        };
        let session = place.take().filter(|_| given_back);
        drop(place);
        if !given_back {
            self.sessions.end(&entry.place).await?;
        }
        self.strike_out(entry, session);
        Ok(given_back)
    }

    fn strike_out(self: &Arc<Self>, entry: &Entry, session: Option<super::session::Session>) {
        match self.books.strike_out(entry, session) {
            Some(session) => self.sessions.take_back(session),
            None if entry.state().written => self.clerk.ring(self),
            None => {}
        }
    }

    /// Marks a grant, and ends its connection if that is wanted. The mark comes first: the holder looks for it when its
    /// connection is gone.
    async fn revoke(&self, name: &LockName, token: Token, mode: RevokeMode) -> Result<Revocation> {
        let sessions = &self.sessions;
        let Some(place) = view::holder(sessions, name, token).await? else {
            return Ok(Revocation::NotHeld);
        };
        let number = token.get() as i64;
        let values: [(Value<'_>, Type); 2] = [(&&*place.label, Type::TEXT), (&number, Type::INT8)];
        if sessions.ask(&sessions.texts.mark, &values).await?.is_empty() {
            return Ok(Revocation::NotHeld);
        }
        if mode == RevokeMode::Ask {
            return Ok(Revocation::Pending);
        }
        sessions.end(&place).await.map_err(|error| match error.kind() {
            ErrorKind::Denied => Error::new(
                ErrorKind::Denied,
                "the holder was asked to leave, but its connection was not ended: only its own user, a \
                 member of that role or of pg_signal_backend, may end it",
            )
            .caused_by(error),
            _ => error,
        })?;
        Ok(Revocation::Revoked)
    }

    /// Asks over the connection of a lock whether it is there, and notes it if not.
    pub(super) async fn is_connected(self: &Arc<Self>, entry: &Arc<Entry>, limit: Duration) -> bool {
        let mut place = entry.session.lock().await;
        let Some(session) = place.as_mut() else { return false };
        if answered(limit, session.ping()).await.is_ok() {
            return true;
        }
        self.disconnect(entry, &mut place);
        false
    }

    /// Closes a connection that is dead for us, and has the server know it, so that the lock is free.
    pub(super) fn disconnect(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        place: &mut Option<super::session::Session>,
    ) {
        *place = None;
        let (shared, entry) = (self.clone(), entry.clone());
        drop(self.keeper.spawn(async move {
            let mut outage = Outage::default();
            while let Err(error) = shared.sessions.end(&entry.place).await {
                let Ok(pause) = outage.pause(error) else { return };
                tokio::time::sleep(pause).await;
            }
        }));
    }
}

fn step(mode: Mode, waits: bool) -> Result<Step> {
    match (mode, waits) {
        (Mode::Exclusive, false) => Ok(Step::Try),
        (Mode::Exclusive, true) => Ok(Step::Wait),
        (Mode::Shared, false) => Ok(Step::TryShared),
        (Mode::Shared, true) => Ok(Step::WaitShared),
        (Mode::Permit { .. }, _) => {
            Err(Error::unsupported("PostgreSQL's advisory locks have no permits; leave out ?style=advisory"))
        }
    }
}

/// What an answer that is none means for whoever asked.
fn refused(trouble: Trouble, entry: &Entry) -> Error {
    let canceled = trouble.is_answer();
    let error = trouble.into_error("the acquire");
    if canceled && entry.waits && error.kind() == ErrorKind::Unavailable {
        return Error::new(ErrorKind::Unavailable, "the wait was cancelled on the server; try again")
            .caused_by(error);
    }
    error
}

fn disconnected() -> Error {
    Error::new(ErrorKind::Indeterminate, "the connection to PostgreSQL was lost during the wait")
}

fn collision(name: &LockName, other: &str) -> Error {
    Error::invalid(format!(
        "{name:?} and {other:?} are the same lock to PostgreSQL: both have the same key, and {other:?} is \
         held; rename one of them, or leave out ?style=advisory"
    ))
}

impl Backend for AdvisoryBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            match self.shared.ask(claim, false).await.map_err(|error| error.on(&claim.name))? {
                Asked::Granted(grant) => Ok(Attempt::Granted(grant)),
                Asked::Busy => match view::namesake(&self.shared.sessions, &claim.name).await? {
                    Some(other) => Err(collision(&claim.name, &other)),
                    None => Ok(Attempt::Busy(Contention::default())),
                },
            }
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
            Ok(match self.shared.pinged(&entry).await {
                Some(cause) => Extension::Lost { cause },
                None if self.shared.is_revoked(&entry).await => Extension::Lost { cause: LossCause::Revoked },
                None => Extension::Extended { deadline: Deadline::Never },
            })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let Some(entry) = self.shared.books.held(grant) else { return Ok(Release::AlreadyLost) };
            let alive = self.shared.leave(&entry, TO_ANSWER).await.map_err(|error| error.on(&grant.name))?;
            Ok(if alive { Release::Released } else { Release::AlreadyLost })
        })
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        Some(Box::pin(lost::wait(self.shared.clone(), grant)))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(
            async move { view::inspect(&self.shared.sessions, name).await.map_err(|error| error.on(name)) },
        )
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let prefix = prefix.to_owned();
        let listed = async move {
            match view::list(&self.shared.sessions, &prefix).await {
                Ok(states) => states.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            }
        };
        Box::pin(stream::once(listed).flat_map(stream::iter))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.shared.clock.clone(), prefix, EVENTS_EVERY)
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
            let now = "select (date_part('epoch', clock_timestamp()) * 1000000)::bigint";
            let rows = self.shared.sessions.ask(now, &[]).await?;
            let row = rows
                .first()
                .ok_or_else(|| Error::new(ErrorKind::Unexpected, "the server reported no time"))?;
            Ok(Age(row.get::<_, i64>(0).unsigned_abs()))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.sessions.close())
    }
}

impl std::fmt::Debug for AdvisoryBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdvisoryBackend")
            .field("modes", &Modes { shared: true, permit: false })
            .finish_non_exhaustive()
    }
}
