//! Applies requests to the durable engine and gives each answer when it may leave.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Details, Happening, LockName, Moment, Token};
use tollgate_embedded::durable::{Applied, Batch, Commit, Durable};
use tollgate_engine::{self as engine, Command, Event};

use super::answer::{Answer, Granted};
use super::claims::{Claim, Claims};
use super::ended::{End, Ended};
use super::happenings::Happenings;
use super::request::{Key, Request, Source};
use super::told::Told;

/// What the engine keeps about a holder.
pub(super) type Kept = Arc<Details>;

/// The lock table with its clients.
pub struct Table {
    pub(super) engine: Durable<Kept>,
    pub(super) claims: Claims,
    pub(super) ended: Ended,
    pub(super) happenings: Happenings,
    /// Locks whose holders or waiters changed, noted while `is_watched`.
    pub(super) changed: Vec<LockName>,
    pub(super) is_watched: bool,
    /// Whether the disk has no room.
    is_full: bool,
    /// Answers that may leave.
    ready: Vec<(Source, Answer)>,
    /// Answers that wait for a commit.
    pub(super) held_back: Vec<HeldBack>,
    /// What owners of grants are to be told.
    pub(super) told: Vec<Told>,
}

/// An answer that depends on a commit.
pub(super) struct HeldBack {
    after: Commit,
    what: Pending,
}

enum Pending {
    Answer(Source, Answer),
    /// A grant that goes to the request that its claim is attached to by then.
    Grant {
        key: Key,
        token: Token,
        expires: Moment,
    },
}

impl Table {
    /// A table on an engine that was started.
    pub fn new(engine: Durable<Kept>) -> Self {
        Self {
            engine,
            claims: Claims::default(),
            ended: Ended::default(),
            happenings: Happenings::default(),
            changed: Vec::new(),
            is_watched: false,
            is_full: false,
            ready: Vec::new(),
            held_back: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Takes a request that arrived at `now`. Its answer is among those of [`take_answers`](Self::take_answers), now or later.
    pub fn request(&mut self, source: Source, request: Request, now: Moment) {
        match request {
            Request::Acquire(acquire) => self.acquire(source, acquire, now),
            Request::Extend { key, ttl, details } => self.extend(source, key, ttl, details, false, now),
            Request::Keep { key, ttl, round } => self.keep(source, key, ttl, round, now),
            Request::Hear(key) => self.hear(source, &key),
            Request::Abandon(key) => {
                if self.claims.get(&key).is_some() {
                    self.end_claim(&key, now);
                }
                self.answer(source, Answer::Withdrawn, None);
            }
            Request::Release(key) => self.release(source, key, now),
            Request::Withdraw(key) => self.withdraw(source, key, now),
            Request::Break { name, token, by_force } => {
                let applied = self.apply(Command::Revoke { name, token, by_force }, now);
                let answer = match applied.answer {
                    engine::Answer::Revoked => Answer::Broken,
                    engine::Answer::AskedToLeave => Answer::Asked,
                    _ => Answer::Lost,
                };
                self.answer(source, answer, applied.after);
            }
            Request::Admit { resource, token, raises } => match self.engine.admit(&resource, token, raises) {
                Ok((_, Some(_))) if self.is_full => self.answer(source, Answer::NotGranting, None),
                Ok((mark, after)) => self.answer(source, Answer::Admitted { mark }, after),
                Err(mark) => self.answer(source, Answer::Stale { mark }, None),
            },
            Request::RaiseFloor { token } => {
                let applied = self.apply(Command::RaiseFloor { token }, now);
                self.answer(source, Answer::FloorRaised, applied.after);
            }
        }
    }

    /// A connection is gone. Claims whose clients can return keep their places for a while, the others are withdrawn.
    pub fn close(&mut self, connection: u64, now: Moment) {
        for key in self.claims.of_connection(connection) {
            let Some(claim) = self.claims.get(&key) else { continue };
            if claim.is_answered {
                self.claims.remove(&key);
            } else if claim.can_return {
                self.leave_place(&key, now);
            } else {
                self.end_claim(&key, now);
            }
        }
        self.held_back.retain(
            |held| !matches!(&held.what, Pending::Answer(source, _) if source.connection == connection),
        );
        self.ready.retain(|(source, _)| source.connection != connection);
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: Moment) {
        self.apply(Command::Tick, now);
        while let Some(key) = self.claims.pop_due(now) {
            self.claim_is_due(&key, now);
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_due(&self) -> Option<Moment> {
        self.engine.next_expiry().into_iter().chain(self.claims.next_due()).min()
    }

    /// Changes for the disk, unless others are being written.
    pub fn take_batch(&mut self) -> Option<Arc<Batch<Kept>>> {
        self.engine.take_batch()
    }

    /// The changes that were taken are durable.
    pub fn committed(&mut self, commit: Commit, now: Moment) {
        self.engine.committed(commit);
        self.happenings.committed(commit);
        let (due, rest) =
            std::mem::take(&mut self.held_back).into_iter().partition(|held: &HeldBack| held.after <= commit);
        self.held_back = rest;
        let due: Vec<HeldBack> = due;
        for held in due {
            match held.what {
                Pending::Answer(source, answer) => self.ready.push((source, answer)),
                Pending::Grant { key, token, expires } => self.deliver(&key, token, expires, false, now),
            }
        }
    }

    /// Whether the disk has everything.
    pub fn is_stored(&self) -> bool {
        self.engine.is_stored()
    }

    /// Answers that may leave now, in the order in which they came to be.
    pub fn take_answers(&mut self) -> Vec<(Source, Answer)> {
        std::mem::take(&mut self.ready)
    }

    /// The wait after an unclean start is over.
    pub fn end_wait(&mut self, now: Moment) {
        let events = self.engine.end_wait(now);
        self.pass_on(events, now);
    }

    /// Stops granting, or starts again.
    pub fn set_granting(&mut self, may_grant: bool, now: Moment) {
        self.is_full &= !may_grant;
        let events = self.engine.set_granting(may_grant, now);
        self.pass_on(events, now);
    }

    /// The disk has no room: nothing is granted, and no client waits for what cannot be stored. A
    /// grant that is not stored was not answered, and ends; a release may be answered, because a
    /// crash that loses it leaves a lock that ends with its ttl.
    pub fn disk_is_full(&mut self, now: Moment) {
        self.is_full = true;
        self.set_granting(false, now);
        let held_back = std::mem::take(&mut self.held_back);
        for held in held_back {
            match held.what {
                Pending::Grant { key, .. } => {
                    let claim = self.claims.get(&key);
                    let attachment = claim.and_then(|claim| claim.attachment);
                    match claim.map(|claim| (claim.is_answered, claim.can_return)) {
                        Some((true, _)) => drop(self.claims.remove(&key)),
                        Some((_, true)) => self.leave_place(&key, now),
                        Some(_) => self.end_claim(&key, now),
                        None => {}
                    }
                    if let Some(attachment) = attachment {
                        self.answer(attachment.source, Answer::NotGranting, None);
                    }
                }
                Pending::Answer(source, answer @ Answer::Released { .. }) => {
                    self.ready.push((source, answer));
                }
                // A longer lease, or a higher mark, that is not stored was not promised.
                Pending::Answer(source, Answer::Granted(_) | Answer::Admitted { .. }) => {
                    self.answer(source, Answer::NotGranting, None);
                }
                what => self.held_back.push(HeldBack { after: held.after, what }),
            }
        }
    }

    /// Gathers the last batch of a clean stop. Waiting clients are answered that nothing is granted any more.
    pub fn stop(&mut self, now: Moment) {
        // First, or a claim could be granted because the one before it was withdrawn.
        self.set_granting(false, now);
        for key in self.claims.waiting() {
            let attachment = self.claims.remove(&key).and_then(|claim| claim.attachment);
            self.apply(withdrawal(&key), now);
            if let Some(attachment) = attachment {
                self.answer(attachment.source, Answer::NotGranting, None);
            }
        }
        self.engine.stop(now);
    }

    pub(super) fn extend(
        &mut self,
        source: Source,
        key: Key,
        ttl: Duration,
        details: Option<Kept>,
        again: bool,
        now: Moment,
    ) {
        // An extend may arrive after a later one for longer: it must not take away what that has promised.
        let left =
            self.engine.expires(&key.name, key.owner).map_or(Duration::ZERO, |expires| expires.since(now));
        let ttl = ttl.max(left);
        // The same for details: those of a smaller revision are older.
        let is_newer = |new: &Kept| {
            let known = self.engine.details(&key.name, key.owner);
            known.is_none_or(|known| new.revision >= known.revision)
        };
        let details = details.filter(is_newer);
        let longest = self.held(&key).map_or(ttl, |held| held.ttl);
        if self.is_full && (ttl > longest || details.is_some()) {
            // It would have to be stored first.
            return self.answer(source, Answer::NotGranting, None);
        }
        let command = Command::Extend { name: key.name.clone(), owner: key.owner, ttl, details };
        let applied = self.apply(command, now);
        let answer = match applied.answer {
            engine::Answer::Extended { expires } => {
                let token = self.engine.token_of(&key.name, key.owner);
                let valid = Granted::until(expires, now);
                match token.zip(valid) {
                    Some((token, valid)) => {
                        Answer::Granted(Granted { token, valid, expires, age: None, again })
                    }
                    None => Answer::Lost,
                }
            }
            engine::Answer::AskedToLeave => Answer::Revoked,
            engine::Answer::StillWaiting { ahead, .. } => Answer::Waiting { ahead },
            _ => Answer::Lost,
        };
        match (answer, applied.after) {
            (Answer::Granted(_), Some(_)) if self.is_full => {
                self.answer(source, Answer::NotGranting, None);
            }
            (answer, after) => self.answer(source, answer, after),
        }
    }

    fn release(&mut self, source: Source, key: Key, now: Moment) {
        let command = Command::Release { name: key.name.clone(), owner: key.owner };
        let applied = self.apply(command, now);
        let answer = match applied.answer {
            engine::Answer::Released { .. } => {
                self.told.push(Told::Over(key.owner));
                self.detach_for_good(&key);
                self.ended.note(&key, End::Released, now);
                Answer::Released { again: false }
            }
            _ if self.ended.of(&key, now) == Some(End::Released) => Answer::Released { again: true },
            _ => Answer::Lost,
        };
        self.answer(source, answer, applied.after);
    }

    fn withdraw(&mut self, source: Source, key: Key, now: Moment) {
        let applied = self.apply(withdrawal(&key), now);
        self.told.push(Told::Over(key.owner));
        self.detach_for_good(&key);
        self.ended.note(&key, End::Withdrawn, now);
        self.answer(source, Answer::Withdrawn, applied.after);
    }

    /// Forgets a claim whose request, if one is open, hears that another ended it.
    fn detach_for_good(&mut self, key: &Key) {
        self.forget_held_back(key);
        if let Some(attachment) = self.claims.remove(key).and_then(|claim| claim.attachment) {
            self.answer(attachment.source, Answer::Lost, None);
        }
    }

    /// Has the engine do something, and tells the clients that it concerns.
    pub(super) fn apply(&mut self, command: Command<Kept>, now: Moment) -> Done {
        let (name, held) = match &command {
            Command::Acquire { claim, .. } => {
                (claim.name.clone(), self.engine.token_of(&claim.name, claim.owner))
            }
            Command::Withdraw { name, owner } => (name.clone(), self.engine.token_of(name, *owner)),
            Command::Extend { name, .. } | Command::Release { name, .. } | Command::Revoke { name, .. } => {
                (name.clone(), None)
            }
            Command::Tick | Command::RaiseFloor { .. } => {
                let Applied { answer, after, events } = self.engine.apply(command, now);
                self.pass_on(events, now);
                return Done { answer, after, is_new: false };
            }
        };
        let holder = match &command {
            Command::Acquire { claim, .. } => Some((claim.mode, claim.details.clone())),
            _ => None,
        };
        let changes = !matches!(&command, Command::Extend { details: None, .. });
        let Applied { answer, after, events } = self.engine.apply(command, now);
        if changes {
            self.note_change(&name);
        }
        // The end of a grant comes before the hand-over that it causes.
        match &answer {
            engine::Answer::Released { token } => {
                self.happenings.ended(name.clone(), *token, Happening::Released, after);
            }
            engine::Answer::Withdrawn => {
                if let Some(token) = held {
                    self.happenings.ended(name.clone(), token, Happening::Released, after);
                }
            }
            _ => {}
        }
        self.pass_on(events, now);
        let is_new = !matches!(&answer, engine::Answer::Granted(granted) if Some(granted.token) == held);
        if let (engine::Answer::Granted(granted), Some(holder), true) = (&answer, holder, is_new) {
            self.happenings.granted(name, granted.token, holder, after);
        }
        Done { answer, after, is_new }
    }

    pub(super) fn note_change(&mut self, name: &LockName) {
        if self.is_watched {
            self.changed.push(name.clone());
        }
    }

    fn pass_on(&mut self, events: Vec<(Event, Option<Commit>)>, now: Moment) {
        for (event, after) in events {
            match event {
                Event::Granted { name, owner, token, mode, expires, .. } => {
                    self.note_change(&name);
                    if let Some(grant) = self.engine.grant(&name, owner) {
                        self.happenings.granted(name.clone(), token, (mode, grant.details), after);
                    }
                    let key = Key { name, owner };
                    self.claim_is_granted(key, token, expires, after, now);
                }
                Event::Expired { name, owner, token } => {
                    self.note_change(&name);
                    self.happenings.ended(name.clone(), token, Happening::Expired, after);
                    self.told.push(Told::Over(owner));
                    let key = Key { name, owner };
                    // A client that is away and comes back may wait again: it never held the lock.
                    let is_unheard = self
                        .claims
                        .get(&key)
                        .is_some_and(|claim| claim.attachment.is_none() && !claim.is_answered);
                    self.detach_for_good(&key);
                    if !is_unheard {
                        self.ended.note(&key, End::Lost, now);
                    }
                }
                Event::Revoked { name, owner, token } => {
                    self.note_change(&name);
                    self.happenings.ended(name.clone(), token, Happening::Revoked, after);
                    self.told.extend([Told::Revoked(owner), Told::Over(owner)]);
                    let key = Key { name, owner };
                    self.detach_for_good(&key);
                    self.ended.note(&key, End::Lost, now);
                }
                Event::Deadlock { name, owner, conflict } => {
                    self.note_change(&name);
                    let claim = self.claims.remove(&Key { name, owner });
                    if let Some(attachment) = claim.and_then(|claim| claim.attachment) {
                        self.answer(attachment.source, Answer::Deadlock(conflict), after);
                    }
                }
                Event::AskedToLeave { name, owner, token } => {
                    self.note_change(&name);
                    self.happenings.asked_to_leave(token);
                    self.told.push(Told::Revoked(owner));
                }
                Event::Abandoned { name, .. } => self.note_change(&name),
            }
        }
    }

    fn claim_is_granted(
        &mut self,
        key: Key,
        token: Token,
        expires: Moment,
        after: Option<Commit>,
        now: Moment,
    ) {
        let Some(claim) = self.claims.get_mut(&key) else { return };
        claim.is_granted = true;
        if claim.attachment.is_none() {
            // Its client is gone: the grant lasts as long as the place would.
            let rest = claim.due().since(now);
            self.apply(extend(&key, rest), now);
            return;
        }
        self.claims.set_due(&key, Moment::MAX);
        match after {
            Some(after) => self.hold_back(after, key, token, expires),
            None => self.deliver(&key, token, expires, false, now),
        }
    }

    /// Gives a durable grant to the request that its claim is attached to. A grant with nothing left is given back instead.
    pub(super) fn deliver(&mut self, key: &Key, token: Token, expires: Moment, again: bool, now: Moment) {
        let Some(claim) = self.claims.get(key) else { return };
        let Some(attachment) = claim.attachment else { return };
        let age = claim.age;
        if !claim.is_part || claim.is_answered {
            self.claims.remove(key);
        }
        match Granted::until(expires, attachment.arrived).filter(|_| now < expires) {
            Some(valid) => {
                let granted = Granted { token, valid, expires, age, again };
                self.ready.push((attachment.source, Answer::Granted(granted)));
            }
            None => {
                self.claims.remove(key);
                self.apply(withdrawal(key), now);
                self.ready.push((attachment.source, Answer::Lost));
            }
        }
    }

    /// The client of a claim is gone, and may return.
    pub(super) fn leave_place(&mut self, key: &Key, now: Moment) {
        let Some(place) = self.claims.get(key).map(Claim::place) else { return };
        self.claims.detach(key, now + place);
        if self.claims.get(key).is_some_and(|claim| claim.is_granted) {
            self.apply(extend(key, place), now);
        }
    }

    /// Removes a claim whose client cannot return.
    fn end_claim(&mut self, key: &Key, now: Moment) {
        self.claims.remove(key);
        self.forget_held_back(key);
        self.apply(withdrawal(key), now);
    }

    fn claim_is_due(&mut self, key: &Key, now: Moment) {
        let Some(claim) = self.claims.get(key) else { return };
        match claim.attachment {
            // The answer waits for the disk.
            Some(_) if claim.is_granted => {}
            Some(attachment) if now >= attachment.gives_up => self.give_up(key, now),
            Some(attachment) => {
                let ahead = self.ahead(key, now);
                self.leave_place(key, now);
                self.answer(attachment.source, Answer::Waiting { ahead }, None);
            }
            None => self.end_claim(key, now),
        }
    }

    /// The client does not wait any longer: the answer that gives up leaves nothing behind.
    pub(super) fn give_up(&mut self, key: &Key, now: Moment) {
        let ahead = self.ahead(key, now);
        let Some(attachment) = self.claims.remove(key).and_then(|claim| claim.attachment) else { return };
        self.apply(withdrawal(key), now);
        self.answer(attachment.source, Answer::Busy { ahead, retry_after: None }, None);
    }

    /// How many claims are ahead of one that waits.
    pub(super) fn ahead(&mut self, key: &Key, now: Moment) -> usize {
        let ttl = self.claims.get(key).map_or(Duration::ZERO, |claim| claim.ttl);
        match self.apply(extend(key, ttl), now).answer {
            engine::Answer::StillWaiting { ahead, .. } => ahead,
            _ => 0,
        }
    }

    pub(super) fn answer(&mut self, source: Source, answer: Answer, after: Option<Commit>) {
        match after {
            Some(after) => self.held_back.push(HeldBack { after, what: Pending::Answer(source, answer) }),
            None => self.ready.push((source, answer)),
        }
    }

    /// A grant that waits for the disk is answered in another way, or not at all.
    pub(super) fn forget_held_back(&mut self, key: &Key) {
        self.held_back
            .retain(|held| !matches!(&held.what, Pending::Grant { key: other, .. } if other == key));
    }

    pub(super) fn hold_back(&mut self, after: Commit, key: Key, token: Token, expires: Moment) {
        self.held_back.push(HeldBack { after, what: Pending::Grant { key, token, expires } });
    }
}

/// What the engine answered, and whether a grant is new.
pub(super) struct Done {
    pub(super) answer: engine::Answer,
    pub(super) after: Option<Commit>,
    pub(super) is_new: bool,
}

pub(super) fn extend(key: &Key, ttl: Duration) -> Command<Kept> {
    Command::Extend { name: key.name.clone(), owner: key.owner, ttl, details: None }
}

fn withdrawal(key: &Key) -> Command<Kept> {
    Command::Withdraw { name: key.name.clone(), owner: key.owner }
}
