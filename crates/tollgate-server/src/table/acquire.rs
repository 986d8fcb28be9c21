//! Acquire: a new claim, or a request that takes over one that is there.

use tollgate_core::Moment;
use tollgate_engine::{self as engine, Command};

use super::answer::Answer;
use super::claims::{Attachment, Claim};
use super::request::{Acquire, Source};
use super::state::{Kept, Table, extend};

impl Table {
    pub(super) fn acquire(&mut self, source: Source, acquire: Acquire, now: Moment) {
        if self.ended.of(&acquire.key, now).is_some() {
            return self.answer(source, Answer::Lost, None);
        }
        let attachment = Attachment::new(source, &acquire, now);
        let party = acquire.party.map(|party| party.id);
        if let Some(claim) = self.claims.get(&acquire.key) {
            if (claim.mode, claim.party) != (acquire.mode, party) {
                return self.answer(source, Answer::Mismatch, None);
            }
            return self.attach(attachment, &acquire, now);
        }
        // A grant that was answered has no claim here any more.
        if self.engine.token_of(&acquire.key.name, acquire.key.owner).is_some()
            && let Some(held) = self.held(&acquire.key)
            && (held.mode, held.party) != (acquire.mode, party)
        {
            return self.answer(source, Answer::Mismatch, None);
        }
        let key = acquire.key.clone();
        let hears_of_queue = acquire.hears_of_queue;
        let is_first = hears_of_queue && acquire.party.is_some_and(|party| party.age.is_none());
        let mut claim = Claim::new(&acquire, attachment);
        let applied = self.apply(command(acquire), now);
        match applied.answer {
            engine::Answer::Granted(granted) => {
                // A grant that was answered before has no claim here.
                let again = !applied.is_new;
                claim.is_granted = true;
                claim.is_answered = again;
                claim.age = granted.age;
                self.claims.insert(key.clone(), claim);
                self.claims.set_due(&key, Moment::MAX);
                match applied.after {
                    Some(after) => self.hold_back(after, key, granted.token, granted.expires),
                    None => self.deliver(&key, granted.token, granted.expires, again, now),
                }
            }
            engine::Answer::Queued { ahead, age } => {
                claim.age = age;
                self.claims.insert(key, claim);
                if hears_of_queue {
                    self.answer(source, Answer::Queued { ahead, age }, applied.after);
                }
            }
            engine::Answer::Busy { ahead, retry_after } => {
                // Its party has begun to claim, and is told its age.
                let after = is_first.then(|| self.engine.age(now).1).flatten();
                self.answer(source, Answer::Busy { ahead, retry_after }, after);
            }
            engine::Answer::Deadlock { conflict, .. } => {
                self.answer(source, Answer::Deadlock(conflict), applied.after)
            }
            engine::Answer::Exhausted => self.answer(source, Answer::Exhausted, None),
            _ => self.answer(source, Answer::NotGranting, None),
        }
    }

    /// A request for a claim that is here: it takes over from the request before.
    fn attach(&mut self, attachment: Attachment, acquire: &Acquire, now: Moment) {
        let key = &acquire.key;
        let was_detached = self.claims.get(key).is_some_and(|claim| claim.attachment.is_none());
        if let Some(displaced) = self.claims.attach(key, attachment) {
            self.answer(displaced.source, Answer::Moved, None);
        }
        let Some(claim) = self.claims.get_mut(key) else { return };
        claim.can_return |= acquire.can_return;
        claim.is_part = acquire.is_part;
        if !claim.is_granted {
            if acquire.wait.is_zero() {
                self.give_up(key, now);
            } else if acquire.hears_of_queue {
                let age = claim.age;
                let ahead = self.ahead(key, now);
                self.answer(attachment.source, Answer::Queued { ahead, age }, None);
            }
            return;
        }
        self.claims.set_due(key, Moment::MAX);
        if was_detached {
            // While its client was gone the grant had only the rest of its place.
            let ttl = self.claims.get(key).map_or(acquire.ttl, |claim| claim.ttl);
            self.apply(extend(key, ttl), now);
        }
        let applied = self.apply(command(acquire.clone()), now);
        if let engine::Answer::Granted(granted) = applied.answer {
            self.forget_held_back(key);
            match applied.after {
                Some(after) => self.hold_back(after, key.clone(), granted.token, granted.expires),
                None => self.deliver(key, granted.token, granted.expires, true, now),
            }
        }
    }
}

fn command(acquire: Acquire) -> Command<Kept> {
    let wait = !acquire.wait.is_zero();
    let claim = engine::Claim {
        name: acquire.key.name,
        mode: acquire.mode,
        owner: acquire.key.owner,
        ttl: acquire.ttl,
        // The table knows whose client is gone; the engine does not.
        wait_lease: None,
        lock_delay: acquire.lock_delay,
        party: acquire.party,
        on_deadlock: acquire.on_deadlock,
        details: acquire.details,
    };
    Command::Acquire { claim, wait }
}
