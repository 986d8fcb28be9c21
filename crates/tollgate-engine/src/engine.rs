//! The engine: one function per command.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tollgate_types::{LockName, Moment, OwnerId, Token};

use crate::arena::Key;
use crate::command::{Claim, Command};
use crate::effect::{Answer, Effects, Event, Granted};
use crate::grant::Tokens;
use crate::party::{Parties, Standing};
use crate::schedule::Schedule;
use crate::table::{Lock, Place, State, Table};

/// A table of locks. `D` is what the caller keeps about each claim.
///
/// Acquire, extend, release and withdraw take amortised O(log n) in the number of claims, those on the same
/// name included; a grant to many readers at once takes its share for each of them. A claim with a deadlock policy looks at
/// those ahead of it, and one that waits while its party has others, at all who wait for the same and whom those wait for. Nothing is left behind by a
/// name that nobody holds or waits for.
pub struct Engine<D> {
    /// The latest time it was ever told: the engine's time never goes back.
    pub(crate) now: Moment,
    pub(crate) table: Table<D>,
    pub(crate) tokens: Tokens,
    pub(crate) parties: Parties<D>,
    /// Parties that may be in a circle now: one of several claims that they waited with waits no longer.
    pub(crate) suspects: Vec<Key<Standing<D>>>,
    /// When to look at which claim.
    pub(crate) alarms: Schedule<Place<D>>,
    /// When which lock-delay ends.
    pub(crate) delays: BTreeSet<(Moment, Key<Lock<D>>)>,
    /// Whether claims are granted at all.
    pub(crate) is_granting: bool,
}

/// How much an engine holds. All zero when idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Names that are held, waited for or under a lock-delay.
    pub locks: usize,
    /// Claims that hold a lock.
    pub holders: usize,
    /// Claims that wait for one.
    pub waiters: usize,
    /// Parties with at least one claim.
    pub parties: usize,
    /// Leases and lock-delays whose end is watched.
    pub alarms: usize,
}

/// How much it holds, not what: owner ids are secrets.
impl<D> fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("now", &self.now).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<D> Default for Engine<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D> Engine<D> {
    /// An engine without locks, whose first token is the smallest.
    pub fn new() -> Self {
        Self {
            now: Moment::ZERO,
            table: Table::new(),
            tokens: Tokens { last: None },
            parties: Parties::new(),
            suspects: Vec::new(),
            alarms: Schedule::new(),
            delays: BTreeSet::new(),
            is_granting: true,
        }
    }

    /// An engine without locks, whose tokens are all above `floor`.
    pub fn with_floor(floor: Token) -> Self {
        Self { tokens: Tokens { last: Some(floor) }, ..Self::new() }
    }

    /// Does what is due at `now`, then what the command says. A `now` before an earlier one counts as that.
    pub fn apply(&mut self, command: Command<D>, now: Moment) -> Effects {
        self.now = self.now.max(now);
        let mut events = Vec::new();
        self.expire_due(&mut events);
        self.look_at_suspects(&mut events);
        let answer = match command {
            Command::Acquire { claim, wait } => self.acquire(claim, wait, &mut events),
            Command::Extend { name, owner, ttl, details } => self.extend(&name, owner, ttl, details),
            Command::Release { name, owner } => self.release(&name, owner, &mut events),
            Command::Withdraw { name, owner } => self.withdraw(&name, owner, &mut events),
            Command::Revoke { name, token, by_force } => self.revoke(&name, token, by_force, &mut events),
            Command::Tick => Answer::Ticked,
            Command::RaiseFloor { token } => {
                self.tokens.raise(token);
                Answer::FloorRaised
            }
        };
        self.look_at_suspects(&mut events);
        Effects { answer, events }
    }

    fn look_at_suspects(&mut self, events: &mut Vec<Event>) {
        while let Some(party) = self.suspects.pop() {
            self.break_cycles(party, events);
        }
    }

    /// When the next [`Command::Tick`] is due: the end of a lease or of a lock-delay. It may be early (a
    /// lease was extended meanwhile), never late, and a tick at that moment makes it later or `None`.
    pub fn next_expiry(&self) -> Option<Moment> {
        let delay = self.delays.first().map(|&(end, _)| end);
        self.alarms.next().into_iter().chain(delay).min()
    }

    /// No token above this one was ever issued here: the latest one or the floor.
    pub fn last_token(&self) -> Option<Token> {
        self.tokens.last
    }

    /// How much the engine holds, as of the last command.
    pub fn stats(&self) -> Stats {
        Stats {
            locks: self.table.locks.len(),
            holders: self.table.holders,
            waiters: self.table.places.len() - self.table.holders,
            parties: self.parties.len(),
            alarms: self.alarms.len() + self.delays.len(),
        }
    }

    fn acquire(&mut self, claim: Claim<D>, wait: bool, events: &mut Vec<Event>) -> Answer {
        let mut known = self.table.find_lock(&claim.name);
        if let Some(key) = known.and_then(|lock| self.table.find_place(lock, claim.owner)) {
            return self.acquire_again(key, wait);
        }
        if !self.is_granting {
            return Answer::NotGranting;
        }
        if self.tokens.are_exhausted() {
            return Answer::Exhausted;
        }
        let mut admitted = self.admits_claim(known, &claim);
        if let Some(lock) = known.filter(|_| !admitted) {
            if !wait {
                let lock = &self.table.locks[lock];
                let retry_after = self.retry_after(lock, claim.mode);
                return Answer::Busy { ahead: lock.claims as usize, retry_after };
            }
            if let Some(conflict) = self.forbids_to_wait(&self.table.locks[lock], &claim) {
                let age = claim.party.map(|party| self.parties.age_at(party, self.now));
                return Answer::Deadlock { conflict, age };
            }
            // From here on the claim joins: its party is as old as it states before age decides anything.
            if let Some(party) = claim.party {
                self.parties.learn_age(party);
            }
            self.wound(lock, &claim, events);
            known = self.table.find_lock(&claim.name);
            admitted = self.admits_claim(known, &claim);
        }
        let key = self.join(known, claim);
        match admitted.then(|| self.grant(key)).flatten() {
            Some(granted) => Answer::Granted(granted),
            None => self.wait(key, events),
        }
    }

    fn admits_claim(&self, lock: Option<Key<Lock<D>>>, claim: &Claim<D>) -> bool {
        lock.is_none_or(|lock| self.admits_newcomer(&self.table.locks[lock], claim.mode))
    }

    /// The answer to a claim that has just joined a queue: that it waits, unless it closed a circle.
    fn wait(&mut self, key: Key<Place<D>>, events: &mut Vec<Event>) -> Answer {
        let (place, age) = (&self.table.places[key], self.age_of(key));
        // Nobody can wait for a party whose only claim came last.
        let closing = place.party.filter(|&party| !self.parties.standings[party].has_one_claim());
        if closing.is_some() || !self.suspects.is_empty() {
            let (name, owner) = (self.table.locks[place.lock].name.clone(), place.owner);
            let mut broken = Vec::new();
            self.suspects.extend(closing);
            self.look_at_suspects(&mut broken);
            // What became of the claim itself is told in the answer, everything else to those it happened to.
            let own =
                broken.iter().position(|event| event.is_about(&name, owner)).map(|at| broken.remove(at));
            events.append(&mut broken);
            match own {
                Some(Event::Deadlock { conflict, .. }) => return Answer::Deadlock { conflict, age },
                Some(Event::Granted { token, expires, age, .. }) => {
                    return Answer::Granted(Granted { token, expires, age });
                }
                _ => {}
            }
        }
        Answer::Queued { ahead: self.table.ahead(&self.table.places[key]), age }
    }

    /// The answer to an acquire that was answered before, perhaps unheard.
    fn acquire_again(&self, key: Key<Place<D>>, wait: bool) -> Answer {
        let place = &self.table.places[key];
        let (ahead, age) = (self.table.ahead(place), self.age_of(key));
        match place.state {
            State::Holding { token, .. } => Answer::Granted(Granted { token, expires: place.due, age }),
            State::Waiting { .. } if wait => Answer::Queued { ahead, age },
            State::Waiting { .. } => {
                let retry_after = self.retry_after(&self.table.locks[place.lock], place.mode);
                Answer::Busy { ahead, retry_after }
            }
        }
    }

    /// Queues a new claim.
    fn join(&mut self, known: Option<Key<Lock<D>>>, claim: Claim<D>) -> Key<Place<D>> {
        let lock = known.unwrap_or_else(|| self.table.open(claim.name.clone()));
        let party = claim.party.map(|party| self.parties.join(party, self.now));
        let lease = claim.wait_lease;
        let key = self.table.join(lock, claim, party);
        if let Some(party) = party {
            self.parties.waits(party, key);
        }
        if let Some(lease) = lease {
            self.set_due(key, self.now + lease);
        }
        key
    }

    fn extend(&mut self, name: &LockName, owner: OwnerId, ttl: Duration, details: Option<D>) -> Answer {
        let Some(key) = self.find(name, owner) else { return Answer::NotFound };
        let place = &mut self.table.places[key];
        if place.asked_to_leave {
            return Answer::AskedToLeave;
        }
        if let Some(details) = details {
            place.details = details;
        }
        match place.state {
            State::Holding { ttl: ref mut longest, .. } => {
                *longest = ttl.max(*longest);
                Answer::Extended { expires: self.set_due(key, self.now + ttl) }
            }
            State::Waiting { lease, .. } => {
                place.state = State::Waiting { ttl, lease };
                let expires = lease.map(|lease| self.set_due(key, self.now + lease));
                Answer::StillWaiting { ahead: self.table.ahead(&self.table.places[key]), expires }
            }
        }
    }

    fn release(&mut self, name: &LockName, owner: OwnerId, events: &mut Vec<Event>) -> Answer {
        let Some(key) = self.find(name, owner) else { return Answer::NotFound };
        let State::Holding { token, .. } = self.table.places[key].state else { return Answer::NotFound };
        let lock = self.remove(key).lock;
        self.settle(lock, events);
        Answer::Released { token }
    }

    fn withdraw(&mut self, name: &LockName, owner: OwnerId, events: &mut Vec<Event>) -> Answer {
        let Some(key) = self.find(name, owner) else { return Answer::NotFound };
        let lock = self.remove(key).lock;
        self.settle(lock, events);
        Answer::Withdrawn
    }

    fn revoke(&mut self, name: &LockName, wanted: Token, by_force: bool, events: &mut Vec<Event>) -> Answer {
        let Some(lock) = self.table.find_lock(name) else { return Answer::NotFound };
        let holds = |place: &Place<D>| matches!(place.state, State::Holding { token, .. } if token == wanted);
        let mut queue = self.table.queue(&self.table.locks[lock]);
        let Some((key, _)) = queue.find(|(_, place)| holds(place)) else { return Answer::NotFound };
        drop(queue);
        if !by_force {
            let place = &mut self.table.places[key];
            if !std::mem::replace(&mut place.asked_to_leave, true) {
                events.push(Event::AskedToLeave { name: name.clone(), owner: place.owner, token: wanted });
            }
            return Answer::AskedToLeave;
        }
        let place = self.remove(key);
        self.delay(&place, self.now);
        events.push(Event::Revoked { name: name.clone(), owner: place.owner, token: wanted });
        self.settle(lock, events);
        Answer::Revoked
    }

    pub(crate) fn find(&self, name: &LockName, owner: OwnerId) -> Option<Key<Place<D>>> {
        self.table.find_place(self.table.find_lock(name)?, owner)
    }
}
