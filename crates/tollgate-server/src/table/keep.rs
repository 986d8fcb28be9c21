//! Keep: one request that renews what is held and keeps the place of what waits.

use std::time::Duration;

use tollgate_core::Moment;
use tollgate_engine as engine;

use super::answer::Answer;
use super::claims::Attachment;
use super::request::{Key, Source};
use super::state::{Table, extend};

impl Table {
    /// Renews a grant, or attaches a claim that waits to this request for `round`. The answer
    /// `Granted` says with `again` whether the grant had been answered before.
    pub(super) fn keep(
        &mut self,
        source: Source,
        key: Key,
        ttl: Option<Duration>,
        round: Duration,
        now: Moment,
    ) {
        let Some(claim) = self.claims.get(&key) else {
            return match self.held(&key) {
                Some(held) => self.extend(source, key, ttl.unwrap_or(held.ttl), None, true, now),
                None => self.answer(source, Answer::Lost, None),
            };
        };
        let (is_granted, is_attached) = (claim.is_granted, claim.attachment.is_some());
        if !is_granted && round.is_zero() {
            let ahead = self.ahead(&key, now);
            if !is_attached {
                // The client has shown that it is there: its place starts anew.
                self.leave_place(&key, now);
            }
            return self.answer(source, Answer::Waiting { ahead }, None);
        }
        let attachment = Attachment::kept(source, round, now);
        if let Some(displaced) = self.claims.attach(&key, attachment) {
            self.answer(displaced.source, Answer::Moved, None);
        }
        if let Some(claim) = self.claims.get_mut(&key) {
            claim.can_return = true;
        }
        if is_granted {
            self.fetch(&key, ttl, now);
        }
    }

    /// Gives a grant that its client has not heard of to the request it is attached to now.
    fn fetch(&mut self, key: &Key, ttl: Option<Duration>, now: Moment) {
        self.claims.set_due(key, Moment::MAX);
        let ttl = ttl.or_else(|| self.claims.get(key).map(|claim| claim.ttl)).unwrap_or_default();
        let applied = self.apply(extend(key, ttl), now);
        let token = self.engine.token_of(&key.name, key.owner);
        match (applied.answer, token) {
            (engine::Answer::Extended { expires }, Some(token)) => {
                // The grant itself may wait for the disk still, and its extension then with it.
                self.forget_held_back(key);
                match applied.after {
                    Some(after) => self.hold_back(after, key.clone(), token, expires),
                    None => self.deliver(key, token, expires, false, now),
                }
            }
            (answer, _) => {
                let attachment = self.claims.remove(key).and_then(|claim| claim.attachment);
                let answer = match answer {
                    engine::Answer::AskedToLeave => Answer::Revoked,
                    _ => Answer::Lost,
                };
                if let Some(attachment) = attachment {
                    self.answer(attachment.source, answer, None);
                }
            }
        }
    }

    /// A set is complete: from now on the client knows of this lock of it.
    pub(super) fn hear(&mut self, source: Source, key: &Key) {
        if self.claims.get(key).is_some_and(|claim| claim.is_granted) {
            self.claims.remove(key);
        }
        self.answer(source, Answer::Heard, None);
    }
}
