//! The engine as nobody would build it: one list of claims in the order in which they came, everything
//! decided anew each time by the rule itself. Slow, and obviously right.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_engine::{Answer, Claim, Command, Effects, Event, Granted};
use tollgate_types::{Age, Conflict, LockName, Mode, Moment, OnDeadlock, OwnerId, Party, PartyId, Token};

/// What the engine has to agree with.
#[derive(Debug, Clone)]
pub(crate) struct Naive {
    pub(crate) now: Moment,
    pub(crate) last_token: Option<Token>,
    pub(crate) claims: Vec<Entry>,
    /// Lock-delays that are running.
    pub(crate) delays: BTreeMap<LockName, Moment>,
    pub(crate) ages: BTreeMap<PartyId, Age>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) claim: Claim<u32>,
    pub(crate) grant: Option<Grant>,
    pub(crate) due: Option<Moment>,
    pub(crate) asked_to_leave: bool,
    /// Claims ahead on arrival, without the holders that left since.
    pub(crate) ahead: usize,
}

/// A party, or a claim that belongs to none.
#[derive(PartialEq)]
enum Who {
    Party(PartyId),
    Lone(LockName, OwnerId),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    pub(crate) since: Moment,
}

impl Naive {
    pub(crate) fn new(floor: Option<Token>) -> Self {
        let (claims, delays, ages) = Default::default();
        Self { now: Moment::ZERO, last_token: floor, claims, delays, ages }
    }

    pub(crate) fn apply(&mut self, command: Command<u32>, now: Moment) -> Effects {
        self.now = self.now.max(now);
        let mut events = Vec::new();
        self.expire(&mut events);
        self.break_circles(&mut events);
        let answer = match command {
            Command::Acquire { claim, wait } => self.acquire(claim, wait, &mut events),
            Command::Extend { name, owner, ttl, details } => self.extend(&name, owner, ttl, details),
            Command::Release { name, owner } => {
                let held = self.find(&name, owner).filter(|&at| self.claims[at].grant.is_some());
                held.and_then(|at| self.remove(at).grant)
                    .map_or(Answer::NotFound, |grant| Answer::Released { token: grant.token })
            }
            Command::Withdraw { name, owner } => match self.find(&name, owner) {
                Some(at) => {
                    self.remove(at);
                    Answer::Withdrawn
                }
                None => Answer::NotFound,
            },
            Command::Revoke { name, token, by_force } => self.revoke(&name, token, by_force, &mut events),
            Command::Tick => Answer::Ticked,
            Command::RaiseFloor { token } => {
                self.last_token = self.last_token.max(Some(token));
                Answer::FloorRaised
            }
        };
        self.grant_all(&mut events);
        self.break_circles(&mut events);
        Effects { answer, events }
    }

    /// When something is really due next.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        let leases = self.claims.iter().filter_map(|entry| entry.due);
        leases.chain(self.delays.values().copied()).min()
    }

    pub(crate) fn queue<'a>(&'a self, name: &'a LockName) -> impl Iterator<Item = &'a Entry> {
        self.claims.iter().filter(move |entry| entry.claim.name == *name)
    }

    fn expire(&mut self, events: &mut Vec<Event>) {
        while self.next_due().is_some_and(|due| due <= self.now) {
            let now = self.now;
            let is_due = |entry: &Entry| entry.due.is_some_and(|due| due <= now);
            self.delays.retain(|_, end| *end > now);
            let mut due: Vec<_> = self.claims.iter().filter(|entry| is_due(entry)).cloned().collect();
            due.sort_by_key(|entry| entry.due);
            for Entry { claim, grant, due, .. } in &due {
                let at = self.find(&claim.name, claim.owner).unwrap();
                self.remove(at);
                let (name, owner) = (claim.name.clone(), claim.owner);
                events.push(match grant {
                    Some(Grant { token, .. }) => {
                        self.delay(claim, due.unwrap());
                        Event::Expired { name, owner, token: *token }
                    }
                    None => Event::Abandoned { name, owner },
                });
            }
            self.grant_all(events);
        }
    }

    fn delay(&mut self, claim: &Claim<u32>, lost: Moment) {
        let end = lost + claim.lock_delay;
        if end > self.now {
            let running = self.delays.entry(claim.name.clone()).or_default();
            *running = end.max(*running);
        }
    }

    /// Lock after lock, the one whose first waiter came first, grants whom the rule lets in.
    fn grant_all(&mut self, events: &mut Vec<Event>) {
        let mut names: Vec<LockName> = Vec::new();
        for entry in self.claims.iter().filter(|entry| entry.grant.is_none()) {
            if !names.contains(&entry.claim.name) {
                names.push(entry.claim.name.clone());
            }
        }
        for name in names {
            for at in 0..self.claims.len() {
                if self.claims[at].claim.name != name || self.claims[at].grant.is_some() {
                    continue;
                }
                let Some(granted) = self.try_grant(at) else { continue };
                let Granted { token, expires, age } = granted;
                let Claim { owner, mode, .. } = self.claims[at].claim;
                events.push(Event::Granted { name: name.clone(), owner, token, mode, expires, age });
            }
        }
    }

    fn try_grant(&mut self, at: usize) -> Option<Granted> {
        let claim = &self.claims[at].claim;
        let ahead = self.claims[..at].iter().filter(|entry| entry.claim.name == claim.name);
        if self.delays.contains_key(&claim.name) || !claim.mode.joins(ahead.map(|entry| entry.claim.mode)) {
            return None;
        }
        let token = match self.last_token {
            Some(last) => last.next()?,
            None => Token::MIN,
        };
        let (expires, age) = (self.now + claim.ttl, self.age(claim));
        self.last_token = Some(token);
        let entry = &mut self.claims[at];
        (entry.grant, entry.due) = (Some(Grant { token, since: self.now }), Some(expires));
        Some(Granted { token, expires, age })
    }

    fn acquire(&mut self, claim: Claim<u32>, wait: bool, events: &mut Vec<Event>) -> Answer {
        if let Some(at) = self.find(&claim.name, claim.owner) {
            let Entry { claim, grant, due, .. } = &self.claims[at];
            let (ahead, age) = (self.ahead(at), self.age(claim));
            return match grant {
                Some(grant) => Answer::Granted(Granted { token: grant.token, expires: due.unwrap(), age }),
                None if wait => Answer::Queued { ahead, age },
                None => Answer::Busy { ahead, retry_after: self.retry_after(&self.claims[at], at) },
            };
        }
        if self.last_token == Some(Token::MAX) {
            return Answer::Exhausted;
        }
        let ages = self.ages.clone();
        let (name, owner) = (claim.name.clone(), claim.owner);
        let refused = match self.enter(claim) {
            Ok(granted) => return Answer::Granted(granted),
            Err(refused) => refused,
        };
        if !wait {
            // As if it had never come.
            self.ages = ages;
            let ahead = self.queue(&name).count();
            return Answer::Busy { ahead, retry_after: self.retry_after(&refused, self.claims.len()) };
        }
        let age = refused.claim.party.map(|party| self.ages[&party.id]);
        if let Some(conflict) = self.conflict(&refused.claim) {
            self.ages = ages;
            return Answer::Deadlock { conflict, age };
        }
        self.wound(&refused.claim, events);
        let refused = match self.enter(refused.claim) {
            Ok(granted) => return Answer::Granted(granted),
            Err(refused) => refused,
        };
        self.claims.push(*refused);
        let mut broken = Vec::new();
        self.break_circles(&mut broken);
        let mut answer = None;
        broken.retain(|event| {
            answer = answer.take().or(match event {
                Event::Deadlock { name: lock, owner: whose, conflict }
                    if (lock, *whose) == (&name, owner) =>
                {
                    Some(Answer::Deadlock { conflict: conflict.clone(), age })
                }
                Event::Granted { name: lock, owner: whose, token, expires, age, .. }
                    if (lock, *whose) == (&name, owner) =>
                {
                    Some(Answer::Granted(Granted { token: *token, expires: *expires, age: *age }))
                }
                _ => {
                    events.push(event.clone());
                    return true;
                }
            });
            true
        });
        answer.unwrap_or_else(|| {
            let at = self.find(&name, owner).unwrap();
            Answer::Queued { ahead: self.ahead(at), age }
        })
    }

    /// Takes the lock for a new claim, or gives it back with its party's age noted.
    fn enter(&mut self, claim: Claim<u32>) -> Result<Granted, Box<Entry>> {
        let ahead = self.queue(&claim.name).count();
        let due = claim.wait_lease.map(|lease| self.now + lease);
        let at = self.claims.len();
        self.claims.push(Entry { claim, grant: None, due, asked_to_leave: false, ahead });
        self.stamp(at);
        self.try_grant(at).ok_or_else(|| Box::new(self.claims.remove(at)))
    }

    fn conflict(&self, claim: &Claim<u32>) -> Option<Conflict> {
        let Party { id, .. } = claim.party?;
        let is_own_permit = |held: &&Entry| {
            held.grant.is_some()
                && held.claim.mode == claim.mode
                && held.claim.party.is_some_and(|party| party.id == id)
        };
        let all_its_own =
            self.queue(&claim.name).filter(is_own_permit).count() >= claim.mode.capacity() as usize;
        self.queue(&claim.name).find_map(|rival| {
            let other = rival.claim.party?.id;
            if (rival.claim.mode, claim.mode) == (Mode::Shared, Mode::Shared) {
                return None;
            }
            let one_of_many = rival.claim.mode == claim.mode && claim.mode.capacity() > 1 && !all_its_own;
            match claim.on_deadlock {
                OnDeadlock::WaitDie if other == id => Some(Conflict::Itself),
                OnDeadlock::WaitDie if (self.ages[&other], other) < (self.ages[&id], id) => {
                    Some(Conflict::Elder(other))
                }
                OnDeadlock::WoundWait if other == id && !one_of_many => Some(Conflict::Itself),
                _ => None,
            }
        })
    }

    fn wound(&mut self, claim: &Claim<u32>, events: &mut Vec<Event>) {
        let Some(Party { id, .. }) = claim.party.filter(|_| claim.on_deadlock == OnDeadlock::WoundWait)
        else {
            return;
        };
        let own = (self.ages[&id], id);
        let is_younger = |rival: &&Entry| {
            rival.claim.on_deadlock == OnDeadlock::WoundWait
                && rival.claim.party.is_some_and(|party| (self.ages[&party.id], party.id) > own)
        };
        let in_the_way = |rival: &&Entry| (rival.claim.mode, claim.mode) != (Mode::Shared, Mode::Shared);
        let (mut wounded, stay): (Vec<&Entry>, Vec<&Entry>) =
            self.queue(&claim.name).filter(in_the_way).partition(is_younger);
        // As many of those with the same permits may stay as leave room for one more.
        let is_beside = |rival: &Entry| rival.claim.mode == claim.mode && rival.grant.is_some();
        let mut spared: Vec<_> = wounded.iter().filter(|rival| is_beside(rival)).copied().collect();
        spared.sort_by_key(|rival| {
            let id = rival.claim.party.unwrap().id;
            (self.ages[&id], id)
        });
        let staying = stay.iter().filter(|rival| rival.claim.mode == claim.mode).count();
        spared.truncate((claim.mode.capacity() as usize - 1).saturating_sub(staying));
        wounded.retain(|rival| !spared.iter().any(|other| std::ptr::eq(*rival, *other)));
        let wounded: Vec<_> = wounded.iter().map(|rival| rival.claim.owner).collect();
        for owner in wounded {
            let at = self.find(&claim.name, owner).unwrap();
            let Entry { claim, grant, .. } = self.remove(at);
            let name = claim.name.clone();
            events.push(match grant {
                Some(Grant { token, .. }) => {
                    self.delay(&claim, self.now);
                    Event::Revoked { name, owner, token }
                }
                None => Event::Deadlock { name, owner, conflict: Conflict::Wounded(id) },
            });
        }
        self.ages.insert(id, own.0);
        self.grant_all(events);
    }

    /// Removes claims that want to know of circles until nobody with such a claim is in one.
    fn break_circles(&mut self, events: &mut Vec<Event>) {
        while let Some(at) = self.victim() {
            let Entry { claim, .. } = self.remove(at);
            let (name, owner) = (claim.name, claim.owner);
            events.push(Event::Deadlock { name, owner, conflict: Conflict::Cycle(Vec::new()) });
            self.grant_all(events);
        }
    }

    /// The youngest claim of those in circles.
    fn victim(&self) -> Option<usize> {
        let stuck = self.stuck();
        let edges = |at: usize| self.blockers(at, &stuck);
        let reaches = |from: usize, to: Who| {
            let (mut seen, mut found) = (Vec::new(), vec![from]);
            while let Some(at) = found.pop() {
                for who in edges(at) {
                    if who == to {
                        return true;
                    }
                    if !seen.contains(&who) {
                        let claims = (0..self.claims.len()).filter(|&at| self.waits(at));
                        found.extend(claims.filter(|&at| self.who(at) == who));
                        seen.push(who);
                    }
                }
            }
            false
        };
        let candidates = (0..self.claims.len()).filter(|&at| {
            let detects = self.claims[at].claim.on_deadlock == OnDeadlock::Detect;
            detects
                && self.claims[at].claim.party.is_some()
                && self.waits(at)
                && stuck.contains(&self.who(at))
        });
        candidates.filter(|&at| reaches(at, self.who(at))).max_by_key(|&at| {
            let id = self.claims[at].claim.party.unwrap().id;
            (self.ages[&id], id, at)
        })
    }

    /// Those of whom no claim could be granted though everybody else left.
    fn stuck(&self) -> Vec<Who> {
        let mut stuck: Vec<Who> =
            (0..self.claims.len()).filter(|&at| self.waits(at)).map(|at| self.who(at)).collect();
        loop {
            let free = (0..self.claims.len()).find(|&at| {
                let claim = &self.claims[at].claim;
                let ahead = (0..at).filter(|&other| self.claims[other].claim.name == claim.name);
                let ahead = ahead.filter(|&other| stuck.contains(&self.who(other)));
                self.waits(at)
                    && stuck.contains(&self.who(at))
                    && claim.mode.joins(ahead.map(|other| self.claims[other].claim.mode))
            });
            match free {
                Some(at) => stuck.retain(|who| *who != self.who(at)),
                None => return stuck,
            }
        }
    }

    fn blockers(&self, at: usize, stuck: &[Who]) -> Vec<Who> {
        let claim = &self.claims[at].claim;
        (0..at)
            .filter(|&other| self.claims[other].claim.name == claim.name)
            .filter(|&other| (self.claims[other].claim.mode, claim.mode) != (Mode::Shared, Mode::Shared))
            .map(|other| self.who(other))
            .filter(|who| stuck.contains(who))
            .collect()
    }

    fn waits(&self, at: usize) -> bool {
        self.claims[at].grant.is_none()
    }

    fn who(&self, at: usize) -> Who {
        let claim = &self.claims[at].claim;
        claim.party.map_or(Who::Lone(claim.name.clone(), claim.owner), |party| Who::Party(party.id))
    }

    fn stamp(&mut self, at: usize) {
        let Some(party) = self.claims[at].claim.party else { return };
        let known = self.ages.get(&party.id).copied();
        let age = known.into_iter().chain(party.age).min();
        self.ages.insert(party.id, age.unwrap_or(Age(self.now.as_nanos() / 1000)));
    }

    fn retry_after(&self, entry: &Entry, at: usize) -> Option<Duration> {
        let claim = &entry.claim;
        let queue: Vec<_> = self.queue(&claim.name).collect();
        let delay = self.delays.get(&claim.name).copied();
        // A claim that waits is itself in the queue: then there is somebody waiting, itself at least.
        let nobody_waits = at == self.claims.len() && queue.iter().all(|entry| entry.grant.is_some());
        let only_delayed = nobody_waits && claim.mode.joins(queue.iter().map(|entry| entry.claim.mode));
        let leases =
            queue.iter().filter(|entry| entry.grant.is_some()).take(16).filter_map(|entry| entry.due);
        let lease = leases.min().filter(|_| !only_delayed);
        lease.max(delay).map(|at| at.since(self.now))
    }

    fn extend(&mut self, name: &LockName, owner: OwnerId, ttl: Duration, details: Option<u32>) -> Answer {
        let Some(at) = self.find(name, owner) else { return Answer::NotFound };
        let (now, ahead) = (self.now, self.ahead(at));
        let entry = &mut self.claims[at];
        if entry.asked_to_leave {
            return Answer::AskedToLeave;
        }
        entry.claim.details = details.unwrap_or(entry.claim.details);
        entry.claim.ttl = ttl;
        if entry.grant.is_some() {
            entry.due = Some(now + ttl);
            return Answer::Extended { expires: now + ttl };
        }
        entry.due = entry.claim.wait_lease.map(|lease| now + lease);
        Answer::StillWaiting { ahead, expires: entry.due }
    }

    fn revoke(&mut self, name: &LockName, token: Token, by_force: bool, events: &mut Vec<Event>) -> Answer {
        let holds = |entry: &Entry| entry.grant.is_some_and(|grant| grant.token == token);
        let found = self.claims.iter().position(|entry| entry.claim.name == *name && holds(entry));
        let Some(at) = found else { return Answer::NotFound };
        if !by_force {
            let entry = &mut self.claims[at];
            if !entry.asked_to_leave {
                events.push(Event::AskedToLeave { name: name.clone(), owner: entry.claim.owner, token });
            }
            entry.asked_to_leave = true;
            return Answer::AskedToLeave;
        }
        let Entry { claim, .. } = self.remove(at);
        self.delay(&claim, self.now);
        events.push(Event::Revoked { name: name.clone(), owner: claim.owner, token });
        Answer::Revoked
    }

    fn remove(&mut self, at: usize) -> Entry {
        let gone = self.claims.remove(at);
        for other in self.claims.iter_mut().filter(|other| other.claim.name == gone.claim.name) {
            other.ahead -= usize::from(gone.grant.is_some() && other.grant.is_none());
        }
        let parties: Vec<_> = self.claims.iter().filter_map(|entry| entry.claim.party).collect();
        self.ages.retain(|id, _| parties.iter().any(|party| party.id == *id));
        gone
    }

    fn find(&self, name: &LockName, owner: OwnerId) -> Option<usize> {
        self.claims.iter().position(|entry| entry.claim.name == *name && entry.claim.owner == owner)
    }

    fn ahead(&self, at: usize) -> usize {
        let entry = &self.claims[at];
        entry.ahead.min(self.queue(&entry.claim.name).count() - 1)
    }

    fn age(&self, claim: &Claim<u32>) -> Option<Age> {
        claim.party.map(|party| self.ages[&party.id])
    }
}
