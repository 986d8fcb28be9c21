//! The contract's side: what each call means for a database.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tollgate_core::inbox::Inbox;
use tollgate_core::queued::{self, Acquired, Queue, Wait, granted, note_age};
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Contention, Deadline, Details,
    Error, ErrorKind, Event, Extension, Grant, Keeper, LockName, LockState, LossCause, OwnerId, Release,
    Result, Revocation, RevokeMode, Token, events,
};

use crate::database::{Ask, Database, Seen, Ticket, written};
use crate::sweep::Sweeper;

/// How often locks are looked at for events.
const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// After how long it is looked again whether somebody still sits on a lock's row.
const SAT_ON: Duration = Duration::from_millis(50);

/// Locks in a database.
pub struct SqlBackend<D> {
    database: Arc<D>,
    inbox: Arc<Inbox>,
    clock: Arc<dyn Clock>,
    sweeper: Sweeper,
    /// What is added to the time before it is divided into periods.
    phase: u64,
}

impl<D: Database> SqlBackend<D> {
    /// Locks in `database`, whose hand-overs arrive in `inbox`.
    pub fn new(database: D, inbox: Arc<Inbox>, clock: Arc<dyn Clock>) -> Result<Self> {
        let database = Arc::new(database);
        let sweeper = Sweeper::start(&Keeper::global()?, &database);
        let phase = OwnerId::random().to_bits() as u32;
        Ok(Self { database, inbox, clock, sweeper, phase: u64::from(phase) * 1000 })
    }

    /// The database itself.
    pub fn database(&self) -> &D {
        &self.database
    }

    /// Asks until there is an answer, or, from a place in the queue, keeps that.
    async fn ask(&self, claim: &Claim, how: Ask) -> Result<Acquired<Ticket>> {
        let details = written(&claim.details)?;
        let mut pause = SAT_ON;
        loop {
            match (self.database.ask(claim, how, &details).await?, how) {
                (Some(answer), _) => return Ok(answer),
                (None, Ask::Once) => {
                    let contention = Contention { ahead: None, retry_after: Some(SAT_ON) };
                    return Ok(Acquired::Busy { contention, age: None });
                }
                (None, Ask::Again(place)) => {
                    // If it is not there any more it is in, or too late: it hears of that when it asks again.
                    let free_in = (!self.database.refresh(claim, place).await?).then_some(SAT_ON);
                    let wait = Wait { ahead: 0, free_in, foreign: false, told: false };
                    return Ok(Acquired::Queued { place, wait, age: None });
                }
                // A place in the queue is not to be had before they leave.
                (None, Ask::ToWait) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(SAT_ON * 10);
                }
            }
        }
    }

    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        tollgate_core::floor::check(floor)?;
        self.database.raise_floor(name, floor).await
    }
}

impl<D: Database> Queue for SqlBackend<D> {
    type Place = Ticket;

    async fn enter(&self, claim: &Claim) -> Result<Acquired<Ticket>> {
        self.ask(claim, Ask::ToWait).await
    }

    async fn again(&self, claim: &Claim, place: &Ticket) -> Result<Acquired<Ticket>> {
        if let Some(wait) = self.database.keep(claim, *place).await? {
            return Ok(Acquired::Queued { place: *place, wait, age: None });
        }
        self.ask(claim, Ask::Again(*place)).await
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// A waiter that hears of its turn refreshes its place, and looks when all before it have been silent for too long. Others
    /// look now and then, the more often the nearer their turn is: all of a queue together ask about as often as a few would.
    fn pause(&self, claim: &Claim, wait: Wait) -> Duration {
        let (refresh, hears) = (self.refresh_in(claim.ttl), self.inbox.hears());
        let look = self.database.look_every(hears);
        let pause = match (hears, wait.told) {
            (true, true) => refresh,
            (true, false) => refresh.min(look),
            (false, _) => refresh.min(look * (wait.ahead + 1)),
        };
        match wait.free_in {
            Some(free_in) if wait.ahead == 0 || wait.told => pause.min(free_in + Duration::from_millis(2)),
            _ => pause,
        }
    }
}

impl<D> SqlBackend<D> {
    /// When places are refreshed next. All claims of a client do that at the same time, so that one statement is enough for them,
    /// and each client at another.
    fn refresh_in(&self, ttl: Duration) -> Duration {
        let period = (ttl / 3).max(Duration::from_millis(1)).as_nanos();
        let now = u128::from(self.clock.now().as_nanos()) + u128::from(self.phase);
        Duration::from_nanos(u64::try_from(period - now % period).unwrap_or(u64::MAX))
    }
}

impl<D: Database> Backend for SqlBackend<D> {
    fn capabilities(&self) -> &Capabilities {
        self.database.capabilities()
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            match self.ask(claim, Ask::Once).await? {
                Acquired::Granted { token, sent, age } => {
                    self.sweeper.is_needed();
                    note_age(claim, age);
                    Ok(Attempt::Granted(granted(claim, token, sent)))
                }
                Acquired::Busy { contention, age } => {
                    note_age(claim, age);
                    Ok(Attempt::Busy(contention))
                }
                Acquired::Queued { .. } => {
                    Err(Error::new(ErrorKind::Unexpected, "the backend queued a claim that must not wait"))
                }
            }
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let grant = queued::wait(self, claim).await?;
            self.sweeper.is_needed();
            Ok(grant)
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (database, name, owner) = (&*self.database, &claim.name, claim.owner);
            // Whoever gives up is not to wait for somebody who sits on the row, too.
            if database.withdraw(name, owner).await? || database.forget(name, owner).await? {
                return Ok(());
            }
            // It is in, where nothing is done beside the row; and what took long may have been the way to the server.
            if database.leave(name, owner).await? {
                return Ok(());
            }
            let message = "another transaction holds the row lock of this lock; the claim was not withdrawn";
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            Ok(match self.database.extend(grant, ttl, details).await? {
                Some(sent) => Extension::Extended { deadline: Deadline::counted_from(sent, ttl) },
                None if self.database.is_revoked(grant).await? => {
                    Extension::Lost { cause: LossCause::Revoked }
                }
                None => Extension::Lost { cause: LossCause::Gone },
            })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let released = match self.database.release(grant).await {
                Err(error) if error.kind() == ErrorKind::Indeterminate => {
                    // It acts by owner id, so it may be repeated. If the lock is gone before its time, it was the first
                    // one that gave it back.
                    let again = self.database.release(grant).await?;
                    again || matches!(grant.deadline, Deadline::At(end) if self.clock.now() < end)
                }
                answer => answer?,
            };
            Ok(if released { Release::Released } else { Release::AlreadyLost })
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            let seen = self.database.inspect(name).await?;
            Ok(Some(state(name.clone(), &seen)).filter(|state| !is_idle(state)))
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let start = Some((VecDeque::new(), String::new(), prefix.to_owned()));
        Box::pin(stream::unfold(start, move |listing| async move {
            let (mut due, mut after, prefix): (VecDeque<LockState>, _, _) = listing?;
            loop {
                if let Some(state) = due.pop_front() {
                    return Some((Ok(state), Some((due, after, prefix))));
                }
                let page = match self.database.page(&prefix, &after).await {
                    // The database cannot be asked any further.
                    Err(error) => return Some((Err(error), None)),
                    Ok(page) => page,
                };
                after = page.last()?.name.clone();
                due.extend(states(&page));
            }
        }))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.clock.clone(), prefix, EVENTS_EVERY)
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        Some(self.inbox.revocations())
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        self.database.revoke(name, token, mode)
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        self.database.age()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.database.close();
        Box::pin(std::future::ready(()))
    }
}

/// One lock, of rows that are all its own.
fn state(name: LockName, seen: &[Seen]) -> LockState {
    let mut holders: Vec<_> = seen.iter().filter_map(Seen::holder).collect();
    holders.sort_by_key(|holder| holder.token);
    LockState { name, holders, waiters: seen.iter().filter_map(Seen::waiter).collect() }
}

/// All locks of a page. Names that are none of ours are left out: somebody wrote into our tables.
fn states(page: &[Seen]) -> impl Iterator<Item = LockState> {
    page.chunk_by(|one, other| one.name == other.name)
        .filter_map(|seen| Some(state(LockName::new(&seen[0].name).ok()?, seen)))
        .filter(|state| !is_idle(state))
}

fn is_idle(state: &LockState) -> bool {
    state.holders.is_empty() && state.waiters.is_empty()
}
