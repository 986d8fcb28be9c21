//! The session-shaped engine: a queue of claims, each of which lives as long as its session.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tollgate_core::{
    Age, Details, Holder, LockName, LockState, Mode, Moment, OnDeadlock, OwnerId, Party, Token, Waiter,
};
use tollgate_engine as queue;

use crate::fakes::ended::Ended;
use crate::fakes::wire::{Answer, Engine};

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// A session that ends `ttl` after it was last renewed; a standalone one also with its only claim.
    Open { ttl: Duration, standalone: bool },
    /// Keep a session alive.
    Renew { session: u64 },
    /// Take a lock.
    Acquire { session: u64, wait: bool, claim: Claimed },
    /// Leave the queue or the lock, or never come in.
    Withdraw { name: LockName, owner: OwnerId },
    /// Tell whether a grant is still there; then change its details, and renew its session.
    Check { session: u64, name: LockName, owner: OwnerId, details: Option<Details>, renew: bool },
    /// Give a lock back.
    Release { name: LockName, owner: OwnerId },
    /// Look at one lock.
    Inspect { name: LockName },
    /// Look at many.
    List { prefix: String },
    /// Break a lock.
    Revoke { name: LockName, token: Token, by_force: bool },
    /// Tell the time.
    Time,
}

/// What a claim has beside its session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claimed {
    pub(super) name: LockName,
    pub(super) mode: Mode,
    pub(super) owner: OwnerId,
    pub(super) party: Option<Party>,
    pub(super) details: Details,
}

/// What the engine answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The number of a new session.
    Opened(u64),
    /// The lock is yours.
    Granted { token: Token, age: Option<Age>, waited: bool },
    /// Not now; nothing is left of the claim.
    Busy { ahead: usize },
    /// Done, or still there.
    Done,
    /// There is no such grant, or no longer.
    NotHeld,
    /// The holder was asked to leave, or its lock was taken away.
    Revoked,
    /// There is no such session, or no longer. Nothing was done.
    NoSession,
    /// The claim was over before it became a lock.
    Over,
    /// What was looked for.
    Locks(Vec<LockState>),
    /// What time it is.
    Time(Age),
}

/// The server's time, as parties get it.
fn time() -> Age {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Age(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

struct Session {
    ttl: Duration,
    ends: Instant,
    standalone: bool,
}

/// What the queue keeps about each claim.
struct Kept {
    session: u64,
    details: Details,
}

/// Sessions, and the claims that belong to them.
#[derive(Default)]
pub(super) struct Sessions {
    queue: queue::Engine<Kept>,
    sessions: HashMap<u64, Session>,
    last_session: u64,
    /// Every claim that holds or waits, with its session.
    claims: HashMap<OwnerId, (LockName, u64)>,
    waiting: HashMap<OwnerId, oneshot::Sender<Reply>>,
    /// The number of what a holder said last.
    said: HashMap<OwnerId, u32>,
    ended: Ended,
    /// Whose grants were revoked. Owner ids do not come again.
    revoked: HashSet<OwnerId>,
}

impl Sessions {
    fn open(&mut self, ttl: Duration, standalone: bool) -> Reply {
        self.last_session += 1;
        self.sessions.insert(self.last_session, Session { ttl, ends: Instant::now() + ttl, standalone });
        Reply::Opened(self.last_session)
    }

    fn renew(&mut self, session: u64) -> Reply {
        let Some(session) = self.sessions.get_mut(&session) else { return Reply::NoSession };
        session.ends = Instant::now() + session.ttl;
        Reply::Done
    }

    fn acquire(&mut self, session: u64, wait: bool, claim: Claimed) -> Answer<Reply> {
        if !self.sessions.contains_key(&session) {
            return Answer::Now(Reply::NoSession);
        }
        let Claimed { name, mode, owner, party, details } = claim;
        // Asked again in another session, it cannot be answered: its deadline is the first session's.
        let elsewhere = self.claims.get(&owner).is_some_and(|(_, own)| *own != session);
        if elsewhere || self.ended.knows(owner) {
            self.end_if_done(session);
            return Answer::Now(Reply::Over);
        }
        let claim = queue::Claim {
            name: name.clone(),
            mode,
            owner,
            // It ends with its session.
            ttl: Duration::MAX,
            wait_lease: None,
            lock_delay: Duration::ZERO,
            party,
            // Those who wait look after it.
            on_deadlock: OnDeadlock::Timeout,
            details: Kept { session, details },
        };
        match self.apply(queue::Command::Acquire { claim, wait }) {
            queue::Answer::Granted(granted) => {
                self.claims.entry(owner).or_insert((name, session));
                Answer::Now(Reply::Granted { token: granted.token, age: granted.age, waited: false })
            }
            queue::Answer::Queued { .. } => {
                self.claims.entry(owner).or_insert((name, session));
                let (sender, receiver) = oneshot::channel();
                self.waiting.insert(owner, sender);
                Answer::Later(receiver)
            }
            queue::Answer::Busy { ahead, .. } => {
                self.end_if_done(session);
                Answer::Now(Reply::Busy { ahead })
            }
            other => panic!("the queue answered {other:?} to an acquire"),
        }
    }

    fn check(
        &mut self,
        session: u64,
        name: LockName,
        owner: OwnerId,
        details: Option<Details>,
        renew: bool,
    ) -> Reply {
        if self.revoked.contains(&owner) {
            return Reply::Revoked;
        }
        if !self.sessions.contains_key(&session) {
            return Reply::NoSession;
        }
        let held = self.claims.get(&owner) == Some(&(name.clone(), session));
        if !held || self.waiting.contains_key(&owner) {
            return Reply::NotHeld;
        }
        if let Some(details) = details
            && self.said.get(&owner).is_none_or(|said| *said <= details.revision)
        {
            self.said.insert(owner, details.revision);
            let details = Some(Kept { session, details });
            self.apply(queue::Command::Extend { name, owner, ttl: Duration::MAX, details });
        }
        if renew { self.renew(session) } else { Reply::Done }
    }

    /// Ends a claim, whatever has become of it.
    fn withdraw(&mut self, name: LockName, owner: OwnerId) -> Reply {
        self.apply(queue::Command::Withdraw { name, owner });
        if let Some(waiting) = self.waiting.remove(&owner) {
            // Its client may be gone.
            let _ = waiting.send(Reply::Over);
        }
        self.bury(owner);
        Reply::Done
    }

    fn release(&mut self, name: LockName, owner: OwnerId) -> Reply {
        match self.apply(queue::Command::Release { name, owner }) {
            queue::Answer::Released { .. } => {
                self.bury(owner);
                Reply::Done
            }
            _ => Reply::NotHeld,
        }
    }

    fn revoke(&mut self, name: LockName, token: Token, by_force: bool) -> Reply {
        match self.apply(queue::Command::Revoke { name, token, by_force }) {
            queue::Answer::Revoked => Reply::Done,
            queue::Answer::AskedToLeave => Reply::Revoked,
            _ => Reply::NotHeld,
        }
    }

    /// One command to the queue; whoever it concerns hears of it.
    fn apply(&mut self, command: queue::Command<Kept>) -> queue::Answer {
        // Nothing in the queue depends on time: claims end with their sessions.
        let effects = self.queue.apply(command, Moment::ZERO);
        for event in effects.events {
            match event {
                queue::Event::Granted { owner, token, age, .. } => {
                    if let Some(waiting) = self.waiting.remove(&owner) {
                        // A client that is gone withdraws, or its session ends.
                        let _ = waiting.send(Reply::Granted { token, age, waited: true });
                    }
                }
                queue::Event::AskedToLeave { owner, .. } => drop(self.revoked.insert(owner)),
                queue::Event::Revoked { owner, .. } => {
                    self.revoked.insert(owner);
                    self.bury(owner);
                }
                queue::Event::Expired { .. }
                | queue::Event::Abandoned { .. }
                | queue::Event::Deadlock { .. } => {}
            }
        }
        effects.answer
    }

    /// What has ended stays ended, and a session of its own ends with it.
    fn bury(&mut self, owner: OwnerId) {
        self.ended.remember(owner);
        self.said.remove(&owner);
        if let Some((_, session)) = self.claims.remove(&owner) {
            self.end_if_done(session);
        }
    }

    fn end_if_done(&mut self, session: u64) {
        let standalone = self.sessions.get(&session).is_some_and(|session| session.standalone);
        if standalone && self.claims.values().all(|(_, of)| *of != session) {
            self.sessions.remove(&session);
        }
    }

    /// Ends sessions that nobody renewed, with their claims. Those who wait go first: what a holder of an
    /// ended session leaves behind must not be granted to a waiter of one.
    fn end_sessions(&mut self) {
        let now = Instant::now();
        let over: HashSet<u64> =
            self.sessions.iter().filter(|(_, session)| session.ends <= now).map(|(id, _)| *id).collect();
        if over.is_empty() {
            return;
        }
        self.sessions.retain(|id, _| !over.contains(id));
        let ended = self.claims.iter().filter(|(_, (_, session))| over.contains(session));
        let mut ended: Vec<_> = ended.map(|(owner, (name, _))| (*owner, name.clone())).collect();
        ended.sort_by_key(|(owner, _)| !self.waiting.contains_key(owner));
        for (owner, name) in ended {
            self.withdraw(name, owner);
        }
    }

    fn look(&self, view: &queue::LockView<'_, Kept>) -> LockState {
        let now = Instant::now();
        let left = |kept: &Kept| self.sessions.get(&kept.session).map(|session| session.ends - now);
        let holders = view.holders.iter().map(|holder| Holder {
            mode: holder.mode,
            token: Some(holder.token),
            expires_in: left(holder.details),
            details: holder.details.details.clone(),
        });
        let waiters = view
            .waiters
            .iter()
            .map(|waiter| Waiter { mode: waiter.mode, details: waiter.details.details.clone() });
        LockState { name: view.name.clone(), holders: holders.collect(), waiters: waiters.collect() }
    }
}

impl Engine for Sessions {
    type Request = Request;
    type Reply = Reply;

    fn handle(&mut self, request: Request) -> Answer<Reply> {
        self.end_sessions();
        Answer::Now(match request {
            Request::Acquire { session, wait, claim } => return self.acquire(session, wait, claim),
            Request::Open { ttl, standalone } => self.open(ttl, standalone),
            Request::Renew { session } => self.renew(session),
            Request::Withdraw { name, owner } => self.withdraw(name, owner),
            Request::Check { session, name, owner, details, renew } => {
                self.check(session, name, owner, details, renew)
            }
            Request::Release { name, owner } => self.release(name, owner),
            Request::Inspect { name } => {
                Reply::Locks(self.queue.inspect(&name).iter().map(|view| self.look(view)).collect())
            }
            Request::List { prefix } => {
                Reply::Locks(self.queue.list(&prefix).iter().map(|view| self.look(view)).collect())
            }
            Request::Revoke { name, token, by_force } => self.revoke(name, token, by_force),
            Request::Time => Reply::Time(time()),
        })
    }

    fn tick(&mut self) {
        self.end_sessions();
        self.ended.forget_the_old();
    }
}
