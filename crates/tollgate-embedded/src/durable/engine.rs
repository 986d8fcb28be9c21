//! The lock table, and what has to be on the disk before an answer may leave.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Age, LockName, Moment, OwnerId, Token};
use tollgate_engine::{Answer, Command, Engine, Event, Granted, LockView, Stats, StoredGrant};

use super::batch::{Batch, Commit};
use super::header::{Durability, Header, Run};

/// How many tokens are set aside at a time: none of them is given again after a crash.
const TOKENS: u64 = 1 << 16;
/// How far ahead of the engine's time its stored ceiling is kept, so that ages keep their order over a crash.
const TIME_AHEAD: Duration = Duration::from_secs(60);
/// A release whose lock would come free by itself within this time is answered before it is stored.
const SHORT: Duration = Duration::from_secs(60);
/// The bound of what is outstanding is looked at this often, at most.
const BOUND_EVERY: Duration = Duration::from_secs(1);

/// What a command did, and what has to be durable before it is told or shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The answer to the command.
    pub answer: Answer,
    /// The commit that the answer depends on; `None`: it may leave at once.
    pub after: Option<Commit>,
    /// What happened to other claims, each with the commit that it depends on.
    pub events: Vec<(Event, Option<Commit>)>,
}

/// The engine with a memory of what the disk has.
pub struct Durable<D> {
    pub(super) engine: Engine<D>,
    pub(super) durability: Durability,
    /// The header with every change that was gathered.
    pub(super) header: Header,
    /// The header that is on the disk.
    pub(super) stored: Header,
    /// What the next commit writes.
    pub(super) next: Batch<D>,
    /// What is being written, with the header as of it.
    pub(super) writing: Option<(Arc<Batch<D>>, Header)>,
    /// The ends of lock-delays that have a row.
    pub(super) delays: HashMap<LockName, Moment>,
    pub(super) delay_ends: BTreeSet<(Moment, LockName)>,
    pub(super) marks: HashMap<String, Token>,
    pub(super) outstanding: Outstanding,
    /// Grants that no row tells of may still be held.
    pub(super) is_waiting: bool,
    /// Whether the caller lets it grant.
    pub(super) may_grant: bool,
}

/// How long what was granted may last, at most: the longest of this generation and of the one before. A generation lasts at
/// least as long as every grant of the one before it, so what is older has ended or was renewed, and counts again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) this: Duration,
    pub(super) previous: Duration,
    pub(super) until: Moment,
}

impl<D: Clone> Durable<D> {
    /// Does what the command says at `now`, a moment of the engine's time.
    pub fn apply(&mut self, command: Command<D>, now: Moment) -> Applied {
        let before = self.remember(&command);
        let effects = self.engine.apply(command, now);
        let now = self.engine.now();
        self.end_delays(now);
        self.sink_bound(now);
        self.raise_ceilings(now, matches!(before, Before::Nothing));
        let mut events = Vec::with_capacity(effects.events.len());
        for event in effects.events {
            let after = self.record_event(&event, now);
            events.push((event, after));
        }
        let after = self.record_answer(&before, &effects.answer, &events, now);
        Applied { answer: effects.answer, after, events }
    }

    /// Stops granting or starts again; see [`Engine::set_granting`]. Nothing is granted before [`end_wait`](Self::end_wait).
    pub fn set_granting(&mut self, may_grant: bool, now: Moment) -> Vec<(Event, Option<Commit>)> {
        self.may_grant = may_grant;
        self.update_granting(now)
    }

    /// The [wait](super::Started::wait) is over.
    pub fn end_wait(&mut self, now: Moment) -> Vec<(Event, Option<Commit>)> {
        self.is_waiting = false;
        if self.durability == Durability::Sync && self.header.run != Run::Complete {
            self.header.run = Run::Complete;
            self.next.header = Some(self.header.clone());
        }
        self.update_granting(now)
    }

    fn update_granting(&mut self, now: Moment) -> Vec<(Event, Option<Commit>)> {
        let events = self.engine.set_granting(self.may_grant && !self.is_waiting, now);
        let now = self.engine.now();
        self.raise_ceilings(now, false);
        events
            .into_iter()
            .map(|event| {
                let after = self.record_event(&event, now);
                (event, after)
            })
            .collect()
    }

    /// What the command's claim is before it is applied.
    fn remember(&self, command: &Command<D>) -> Before {
        match command {
            Command::Acquire { claim, .. } => Before::Acquire {
                name: claim.name.clone(),
                owner: claim.owner,
                held: self.engine.grant_of(&claim.name, claim.owner).map(|(token, _)| token),
            },
            Command::Extend { name, owner, ttl, details } => Before::Extend {
                name: name.clone(),
                owner: *owner,
                rises: self.engine.terms(name, *owner).is_some_and(|terms| *ttl > terms.ttl),
                has_details: details.is_some(),
            },
            Command::Release { name, owner } | Command::Withdraw { name, owner } => Before::End {
                name: name.clone(),
                owner: *owner,
                ttl: self.engine.terms(name, *owner).map(|terms| terms.ttl),
            },
            Command::Revoke { .. } => Before::Revoke,
            Command::RaiseFloor { .. } => Before::RaiseFloor,
            Command::Tick => Before::Nothing,
        }
    }

    fn record_event(&mut self, event: &Event, now: Moment) -> Option<Commit> {
        match event {
            Event::Granted { name, owner, token, .. } => self.record_grant(name, *owner, *token),
            Event::Expired { name, owner, .. } | Event::Revoked { name, owner, .. } => {
                self.record_end(name, *owner)?;
                self.record_delay(name, now);
                Some(self.next.commit)
            }
            Event::AskedToLeave { name, owner, .. } => self.record_row(name, *owner),
            Event::Abandoned { .. } | Event::Deadlock { .. } => None,
        }
    }

    fn record_answer(
        &mut self,
        before: &Before,
        answer: &Answer,
        events: &[(Event, Option<Commit>)],
        now: Moment,
    ) -> Option<Commit> {
        match (before, answer) {
            (Before::Acquire { name, owner, held }, Answer::Granted(Granted { token, .. })) => {
                if *held == Some(*token) && self.durability == Durability::Sync {
                    return self.commit_of_row(name, *owner);
                }
                self.record_grant(name, *owner, *token)
            }
            // The age of a party is kept by its client: no later party may get a smaller one.
            (
                Before::Acquire { .. },
                Answer::Queued { age: Some(_), .. } | Answer::Deadlock { age: Some(_), .. },
            ) => self.commit_with(|header| header.time() >= now),
            (Before::Extend { name, owner, rises, has_details }, Answer::Extended { .. }) => {
                match self.durability {
                    Durability::Sync if *rises || *has_details => self.record_row(name, *owner),
                    Durability::Sync => self.commit_of_row(name, *owner),
                    Durability::Grace => self.record_outstanding(name, *owner),
                }
            }
            (Before::End { name, owner, ttl: Some(ttl) }, Answer::Released { .. }) => {
                let commit = self.record_end(name, *owner)?;
                let is_handed_over = events
                    .iter()
                    .any(|(event, _)| matches!(event, Event::Granted { name: other, .. } if other == name));
                // If a crash loses the release, the lock is free after its ttl.
                let is_early = *ttl <= SHORT && !is_handed_over && !self.engine.is_waited_for(name);
                // A full disk must not keep a holder from leaving.
                (!is_early && self.may_grant).then_some(commit)
            }
            (Before::End { name, owner, ttl: Some(_) }, Answer::Withdrawn) => self.record_end(name, *owner),
            (Before::Revoke, Answer::Revoked | Answer::AskedToLeave) => self.latest(),
            (Before::RaiseFloor, Answer::FloorRaised) => {
                self.commit_with(|header| Some(header.token_ceiling) >= self.engine.last_token())
            }
            _ => None,
        }
    }

    /// A grant has to survive a crash, or a crash has to be followed by a wait until it is over.
    fn record_grant(&mut self, name: &LockName, owner: OwnerId, token: Token) -> Option<Commit> {
        let outstanding = self.record_outstanding(name, owner);
        match self.durability {
            Durability::Sync => self.record_row(name, owner),
            Durability::Grace => outstanding.max(self.commit_with(|header| header.token_ceiling >= token)),
        }
    }

    /// Writes the row of a grant as it is now, in `Sync`.
    fn record_row(&mut self, name: &LockName, owner: OwnerId) -> Option<Commit> {
        if self.durability == Durability::Grace {
            return None;
        }
        let grant = self.engine.export(name, owner)?;
        self.next.grants.insert((name.clone(), owner), Some(grant));
        Some(self.next.commit)
    }

    /// Removes the row of a grant, in `Sync`.
    fn record_end(&mut self, name: &LockName, owner: OwnerId) -> Option<Commit> {
        if self.durability == Durability::Grace {
            return None;
        }
        self.next.grants.insert((name.clone(), owner), None);
        Some(self.next.commit)
    }

    /// Writes the lock-delay that a loss began.
    fn record_delay(&mut self, name: &LockName, now: Moment) {
        let Some(end) = self.engine.delayed_until(name) else { return };
        if self.delays.insert(name.clone(), end) != Some(end) {
            self.delay_ends.insert((end, name.clone()));
            self.next.delays.insert(name.clone(), Some(end.since(now)));
        }
    }

    /// Removes the rows of lock-delays that are over.
    fn end_delays(&mut self, now: Moment) {
        while let Some((end, _)) = self.delay_ends.first()
            && *end <= now
            && let Some((end, name)) = self.delay_ends.pop_first()
        {
            if self.delays.get(&name) == Some(&end) {
                self.delays.remove(&name);
                self.next.delays.insert(name, None);
            }
        }
    }

    /// The bound of what is outstanding covers this grant; the commit with which it does, if that is not durable yet.
    fn record_outstanding(&mut self, name: &LockName, owner: OwnerId) -> Option<Commit> {
        let terms = self.engine.terms(name, owner)?;
        let longest = terms.ttl + terms.lock_delay;
        self.outstanding.this = self.outstanding.this.max(longest);
        if longest > self.header.longest() {
            self.header.set_longest(longest);
            self.next.header = Some(self.header.clone());
        }
        self.commit_with(|header| header.longest() >= longest)
    }

    /// Lowers the bound when nothing needs it any more.
    fn sink_bound(&mut self, now: Moment) {
        if now < self.outstanding.until {
            return;
        }
        let needed = self.outstanding.this.max(self.outstanding.previous);
        if needed < self.header.longest() {
            self.header.set_longest(needed);
            self.next.header = Some(self.header.clone());
        }
        let (previous, until) = (self.outstanding.this, now + self.header.longest().max(BOUND_EVERY));
        self.outstanding = Outstanding { this: Duration::ZERO, previous, until };
    }

    /// Sets tokens and time aside before they are used up.
    fn raise_ceilings(&mut self, now: Moment, is_idle: bool) {
        let last = self.engine.last_token().map_or(0, Token::get);
        if last + TOKENS / 2 > self.header.token_ceiling.get() && self.header.token_ceiling < Token::MAX {
            self.header.token_ceiling = Token::new(last + TOKENS).unwrap_or(Token::MAX);
            self.next.header = Some(self.header.clone());
        }
        if !is_idle && now + TIME_AHEAD / 2 > self.header.time() {
            self.header.time_ceiling = (now + TIME_AHEAD).as_nanos();
            self.next.header = Some(self.header.clone());
        }
    }

    /// The first commit whose header is as `wanted`; `None` if the disk has such a one.
    fn commit_with(&self, wanted: impl Fn(&Header) -> bool) -> Option<Commit> {
        if wanted(&self.stored) {
            return None;
        }
        match &self.writing {
            Some((batch, header)) if wanted(header) => Some(batch.commit),
            _ => Some(self.next.commit),
        }
    }

    /// The commit that writes the row of this grant; `None` if the disk has it.
    fn commit_of_row(&self, name: &LockName, owner: OwnerId) -> Option<Commit> {
        let key = (name.clone(), owner);
        let writes = |batch: &Batch<D>| batch.grants.contains_key(&key);
        if writes(&self.next) {
            return Some(self.next.commit);
        }
        self.writing.as_ref().filter(|(batch, _)| writes(batch)).map(|(batch, _)| batch.commit)
    }

    /// The last commit that is not durable yet.
    fn latest(&self) -> Option<Commit> {
        if !self.next.is_empty() {
            return Some(self.next.commit);
        }
        self.writing.as_ref().map(|(batch, _)| batch.commit)
    }

    /// Whether the row of a grant is on the disk, or needs not be: only then it may be shown.
    pub fn is_durable(&self, name: &LockName, owner: OwnerId) -> bool {
        self.commit_of_row(name, owner).is_none()
    }

    /// Admits a token to a resource whose mark is kept here: `Ok` with the mark, and the commit that the answer depends on,
    /// or `Err` with the mark if the token is stale. A shared token (`raises` is false) raises nothing.
    pub fn admit(
        &mut self,
        resource: &str,
        token: Token,
        raises: bool,
    ) -> Result<(Token, Option<Commit>), Token> {
        let known = self.marks.get(resource).copied().max(self.header.mark_floor);
        if let Some(mark) = known.filter(|mark| token < *mark) {
            return Err(mark);
        }
        if raises && known.is_none_or(|mark| token > mark) {
            self.marks.insert(resource.to_owned(), token);
            self.next.marks.insert(resource.to_owned(), token);
            return Ok((token, Some(self.next.commit)));
        }
        Ok((known.unwrap_or(token), self.commit_of_mark(resource)))
    }

    /// The mark of a resource, and the commit that writes it, if it is not durable yet.
    pub fn mark(&self, resource: &str) -> (Option<Token>, Option<Commit>) {
        let mark = self.marks.get(resource).copied().max(self.header.mark_floor);
        (mark, self.commit_of_mark(resource))
    }

    fn commit_of_mark(&self, resource: &str) -> Option<Commit> {
        let writes = |batch: &Batch<D>| batch.marks.contains_key(resource);
        if writes(&self.next) {
            return Some(self.next.commit);
        }
        self.writing.as_ref().filter(|(batch, _)| writes(batch)).map(|(batch, _)| batch.commit)
    }

    /// The age of a party whose first claim comes at `now`, and the commit after which no later party gets a smaller one, if
    /// that is not durable yet.
    pub fn age(&mut self, now: Moment) -> (Age, Option<Commit>) {
        self.raise_ceilings(now, false);
        (Age(now.as_nanos() / 1000), self.commit_with(|header| header.time() >= now))
    }

    /// What the caller keeps about a grant.
    pub fn details(&self, name: &LockName, owner: OwnerId) -> Option<&D> {
        self.engine.grant_of(name, owner).map(|(_, details)| details)
    }

    /// The changes that were gathered, to be committed now. `None` while others are being written, or if there are none.
    pub fn take_batch(&mut self) -> Option<Arc<Batch<D>>> {
        if !self.has_batch() {
            return None;
        }
        let following = Batch::new(Commit(self.next.commit.0 + 1));
        let batch = Arc::new(std::mem::replace(&mut self.next, following));
        self.writing = Some((batch.clone(), self.header.clone()));
        Some(batch)
    }

    /// Whether [`take_batch`](Self::take_batch) has something to give.
    pub fn has_batch(&self) -> bool {
        self.writing.is_none() && !self.next.is_empty()
    }

    /// The batch that was taken is on the disk: everything that depends on `commit` may leave.
    pub fn committed(&mut self, commit: Commit) {
        if let Some((batch, header)) = self.writing.take() {
            debug_assert_eq!(batch.commit, commit, "one batch is written at a time");
            self.stored = header;
        }
    }

    /// Whether the disk has every change.
    pub fn is_stored(&self) -> bool {
        self.writing.is_none() && self.next.is_empty()
    }

    /// Whether everything that depends on `commit` may leave.
    pub fn is_committed(&self, commit: Commit) -> bool {
        commit < self.writing.as_ref().map_or(self.next.commit, |(batch, _)| batch.commit)
    }

    /// Gathers the last batch of a clean stop, and stops granting. After its commit a start finds every grant. A stop before
    /// the end of the wait is no clean one: the next start waits again.
    pub fn stop(&mut self, now: Moment) {
        let events = self.engine.set_granting(false, now);
        let now = self.engine.now();
        for event in &events {
            self.record_event(event, now);
        }
        if self.durability == Durability::Grace && !self.is_waiting {
            self.header.run = Run::Complete;
            self.header.time_ceiling = self.header.time_ceiling.max(now.as_nanos());
            self.next.header = Some(self.header.clone());
            for grant in self.engine.export_all() {
                self.next.grants.insert((grant.name.clone(), grant.owner), Some(grant));
            }
            for (name, left) in self.engine.export_delays() {
                self.next.delays.insert(name, Some(left));
            }
        }
    }

    /// What a crash may cost.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// When the next [`Command::Tick`] is due.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.engine.next_expiry()
    }

    /// The engine's time.
    pub fn now(&self) -> Moment {
        self.engine.now()
    }

    /// No token above this one was given.
    pub fn last_token(&self) -> Option<Token> {
        self.engine.last_token()
    }

    /// The token of a claim that is granted.
    pub fn token_of(&self, name: &LockName, owner: OwnerId) -> Option<Token> {
        self.engine.grant_of(name, owner).map(|(token, _)| token)
    }

    /// When the lease of a claim that is granted ends unless it is extended.
    pub fn expires(&self, name: &LockName, owner: OwnerId) -> Option<Moment> {
        self.engine.terms(name, owner).map(|terms| terms.expires)
    }

    /// The grant of a claim.
    pub fn grant(&self, name: &LockName, owner: OwnerId) -> Option<StoredGrant<D>> {
        self.engine.export(name, owner)
    }

    /// Holders and waiters of one lock.
    pub fn inspect(&self, name: &LockName) -> Option<LockView<'_, D>> {
        self.engine.inspect(name)
    }

    /// A page of the locks; see [`Engine::page`].
    pub fn page(&self, prefix: &str, from: usize, most: usize) -> (Vec<LockView<'_, D>>, Option<usize>) {
        self.engine.page(prefix, from, most)
    }

    /// How much the engine holds.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

/// What a command is about, as it was before.
enum Before {
    /// The token, if the claim was granted before.
    Acquire {
        name: LockName,
        owner: OwnerId,
        held: Option<Token>,
    },
    Extend {
        name: LockName,
        owner: OwnerId,
        rises: bool,
        has_details: bool,
    },
    /// A release or a withdrawal; the ttl of a grant.
    End {
        name: LockName,
        owner: OwnerId,
        ttl: Option<Duration>,
    },
    Revoke,
    RaiseFloor,
    Nothing,
}
