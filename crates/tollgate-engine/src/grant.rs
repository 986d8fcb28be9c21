//! Who is granted, when, and with which token.

use std::time::Duration;

use tollgate_types::{Age, Mode, Moment, Token};

use crate::arena::Key;
use crate::effect::{Event, Granted};
use crate::engine::Engine;
use crate::party::Standing;
use crate::table::{Lock, Place, State};

/// How many holders a refused claim looks at for its hint, so that a crowd of readers cannot make a
/// refusal slow.
const HINT_HOLDERS: usize = 16;

/// The one counter that every token comes from. It only rises, whatever becomes of the names.
pub(crate) struct Tokens {
    pub(crate) last: Option<Token>,
}

impl Tokens {
    fn draw(&mut self) -> Option<Token> {
        let next = self.last.map_or(Some(Token::MIN), Token::next)?;
        self.last = Some(next);
        Some(next)
    }

    pub(crate) fn are_exhausted(&self) -> bool {
        self.last == Some(Token::MAX)
    }

    pub(crate) fn raise(&mut self, floor: Token) {
        self.last = self.last.max(Some(floor));
    }
}

impl<D> Engine<D> {
    /// The rule: whether a claim of this mode may join the holders of this lock.
    ///
    /// This equals [`Mode::joins`] with everybody ahead, without walking the queue. Only claims of one and
    /// the same mode are ever in together, so the first holder's mode is every holder's, and how many fit
    /// in is the mode's capacity. The callers see to it that nobody waits in between.
    pub(crate) fn admits(&self, lock: &Lock<D>, mode: Mode) -> bool {
        match lock.first {
            Some(first) if lock.holders > 0 => {
                self.table.places[first].mode == mode && lock.holders < mode.capacity()
            }
            _ => true,
        }
    }

    /// Whether a claim that arrives now is granted at once: nobody waits before it, and the rule allows it.
    pub(crate) fn admits_newcomer(&self, lock: &Lock<D>, mode: Mode) -> bool {
        lock.free_from <= self.now && lock.first_waiting.is_none() && self.admits(lock, mode)
    }

    /// Who is to be granted next on this lock, if the rule allows it already.
    fn next_admitted(&self, lock: &Lock<D>) -> Option<Key<Place<D>>> {
        let next = lock.first_waiting.filter(|_| self.is_granting && lock.free_from <= self.now)?;
        self.admits(lock, self.table.places[next].mode).then_some(next)
    }

    /// Brings a lock to rest after something left it or became due: grants from the head of the queue as
    /// far as the rule allows, and forgets a lock that nobody wants.
    pub(crate) fn settle(&mut self, key: Key<Lock<D>>, events: &mut Vec<Event>) {
        while let Some(next) = self.next_admitted(&self.table.locks[key]) {
            let Some(granted) = self.grant(next) else { break };
            let place = &self.table.places[next];
            events.push(Event::Granted {
                name: self.table.locks[key].name.clone(),
                owner: place.owner,
                token: granted.token,
                mode: place.mode,
                expires: granted.expires,
                age: granted.age,
            });
        }
        let lock = &self.table.locks[key];
        if lock.claims == 0 && lock.free_from <= self.now {
            self.table.close(key);
        }
    }

    /// Grants the first waiting claim of a lock, unless the tokens are exhausted.
    pub(crate) fn grant(&mut self, key: Key<Place<D>>) -> Option<Granted> {
        let State::Waiting { ttl, .. } = self.table.places[key].state else { return None };
        let token = self.tokens.draw()?;
        self.table.promote(key, token, self.now);
        self.waits_no_longer(self.table.places[key].party, key);
        let expires = self.set_due(key, self.now + ttl);
        Some(Granted { token, expires, age: self.age_of(key) })
    }

    /// Lets a claim live until `due`.
    pub(crate) fn set_due(&mut self, key: Key<Place<D>>, due: Moment) -> Moment {
        self.table.places[key].due = due;
        self.alarms.ring_by(key, due);
        due
    }

    /// Takes a claim out of its queue and out of everything that knows it. The lock has to be settled.
    pub(crate) fn remove(&mut self, key: Key<Place<D>>) -> Place<D> {
        self.alarms.cancel(key);
        let place = self.table.leave(key);
        self.waits_no_longer(place.party, key);
        if let Some(party) = place.party {
            self.parties.leave(party);
        }
        place
    }

    fn waits_no_longer(&mut self, party: Option<Key<Standing<D>>>, claim: Key<Place<D>>) {
        if let Some(party) = party
            && self.parties.waits_no_longer(party, claim)
        {
            self.suspects.push(party);
        }
    }

    /// Keeps the lock from everybody for the lock-delay of a holder that was lost at `lost`.
    pub(crate) fn delay(&mut self, place: &Place<D>, lost: Moment) {
        self.delay_until(place.lock, lost + place.lock_delay);
    }

    /// Grants nothing on a lock before `free_from`, unless that is over already.
    pub(crate) fn delay_until(&mut self, key: Key<Lock<D>>, free_from: Moment) {
        let lock = &mut self.table.locks[key];
        if free_from > self.now && free_from > lock.free_from {
            self.delays.remove(&(lock.free_from, key));
            self.delays.insert((free_from, key));
            lock.free_from = free_from;
        }
    }

    pub(crate) fn age_of(&self, key: Key<Place<D>>) -> Option<Age> {
        self.table.places[key].party.map(|party| self.parties.age(party))
    }

    /// How long a claim that was refused need not look again: until the lock-delay is over and, unless that
    /// was all, one of the holders' leases.
    pub(crate) fn retry_after(&self, lock: &Lock<D>, mode: Mode) -> Option<Duration> {
        let holders = self.table.queue(lock).take((lock.holders as usize).min(HINT_HOLDERS));
        let only_delayed = lock.first_waiting.is_none() && self.admits(lock, mode);
        let lease = holders.map(|(_, place)| place.due).min().filter(|_| !only_delayed);
        let delay = Some(lock.free_from).filter(|&free_from| free_from > self.now);
        lease.max(delay).map(|at| at.since(self.now))
    }
}
