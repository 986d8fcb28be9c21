//! Claims that wait, or whose grant has not been answered yet, with the request that each is attached to.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tollgate_core::{Age, Mode, Moment, PartyId};

use super::request::{Acquire, Key, Source};

/// For how long a claim keeps its place without a client, at most.
const PLACE: Duration = Duration::from_secs(10);

/// A claim that is not over, and whose grant no client has heard of.
pub(super) struct Claim {
    /// The request that waits for the outcome; `None` while the client is gone.
    pub(super) attachment: Option<Attachment>,
    pub(super) mode: Mode,
    pub(super) party: Option<PartyId>,
    /// The age that the engine gave the party.
    pub(super) age: Option<Age>,
    pub(super) ttl: Duration,
    pub(super) can_return: bool,
    /// Whether it is one of a set; see [`Acquire::is_part`].
    pub(super) is_part: bool,
    pub(super) is_granted: bool,
    /// The grant was answered before this request, which only repeats the acquire: the holder may be at work, whatever becomes
    /// of the request.
    pub(super) is_answered: bool,
    /// When it has to be looked at next.
    due: Moment,
}

/// An open request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attachment {
    pub(super) source: Source,
    pub(super) arrived: Moment,
    /// When the client stops waiting.
    pub(super) gives_up: Moment,
    /// When the request has to be answered.
    pub(super) round_ends: Moment,
}

impl Attachment {
    pub(super) fn new(source: Source, acquire: &Acquire, now: Moment) -> Self {
        Self {
            source,
            arrived: now,
            gives_up: now + acquire.wait,
            round_ends: now + acquire.round.min(acquire.wait),
        }
    }

    /// The request of a client that keeps its claim.
    pub(super) fn kept(source: Source, round: Duration, now: Moment) -> Self {
        Self { source, arrived: now, gives_up: Moment::MAX, round_ends: now + round }
    }
}

impl Claim {
    pub(super) fn new(acquire: &Acquire, attachment: Attachment) -> Self {
        Self {
            attachment: Some(attachment),
            mode: acquire.mode,
            party: acquire.party.map(|party| party.id),
            age: None,
            ttl: acquire.ttl,
            can_return: acquire.can_return,
            is_part: acquire.is_part,
            is_granted: false,
            is_answered: false,
            due: Moment::MAX,
        }
    }

    /// When it has to be looked at next: while its client is gone, the end of its place.
    pub(super) fn due(&self) -> Moment {
        self.due
    }

    /// For how long it keeps its place without a client.
    pub(super) fn place(&self) -> Duration {
        self.ttl.min(PLACE)
    }
}

/// All of them, by claim, by connection and by when each is due.
#[derive(Default)]
pub(super) struct Claims {
    claims: HashMap<Key, Claim>,
    dues: BTreeSet<(Moment, Key)>,
    by_connection: HashMap<u64, BTreeSet<Key>>,
}

impl Claims {
    pub(super) fn get(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Claim> {
        self.claims.get_mut(key)
    }

    /// The claims that are not granted, or are part of a set that is not complete, in an order that does not change.
    pub(super) fn waiting(&self) -> Vec<Key> {
        let waiting = self.claims.iter().filter(|(_, claim)| claim.is_part || !claim.is_granted);
        let mut keys: Vec<Key> = waiting.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Adds a claim that is attached.
    pub(super) fn insert(&mut self, key: Key, claim: Claim) {
        let due = claim.attachment.map_or(Moment::MAX, |attachment| attachment.round_ends);
        if let Some(attachment) = claim.attachment {
            self.by_connection.entry(attachment.source.connection).or_default().insert(key.clone());
        }
        self.claims.insert(key.clone(), claim);
        self.set_due(&key, due);
    }

    /// Attaches a claim to another request; the request that it was attached to.
    pub(super) fn attach(&mut self, key: &Key, attachment: Attachment) -> Option<Attachment> {
        let before = self.detach(key, attachment.round_ends);
        if let Some(claim) = self.claims.get_mut(key) {
            claim.attachment = Some(attachment);
            self.by_connection.entry(attachment.source.connection).or_default().insert(key.clone());
        }
        before
    }

    /// Takes the request from a claim, which is to be looked at again at `due`.
    pub(super) fn detach(&mut self, key: &Key, due: Moment) -> Option<Attachment> {
        let attachment = self.claims.get_mut(key)?.attachment.take();
        self.forget_connection(key, attachment);
        self.set_due(key, due);
        attachment
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Claim> {
        let claim = self.claims.remove(key)?;
        self.forget_connection(key, claim.attachment);
        self.dues.remove(&(claim.due, key.clone()));
        Some(claim)
    }

    /// The claims that are attached to a connection.
    pub(super) fn of_connection(&mut self, connection: u64) -> BTreeSet<Key> {
        self.by_connection.remove(&connection).unwrap_or_default()
    }

    pub(super) fn set_due(&mut self, key: &Key, due: Moment) {
        if let Some(claim) = self.claims.get_mut(key) {
            self.dues.remove(&(claim.due, key.clone()));
            claim.due = due;
            if due < Moment::MAX {
                self.dues.insert((due, key.clone()));
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// A claim that is due.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<Key> {
        let (due, _) = self.dues.first()?;
        if *due > now {
            return None;
        }
        let (_, key) = self.dues.pop_first()?;
        self.claims.get_mut(&key)?.due = Moment::MAX;
        Some(key)
    }

    fn forget_connection(&mut self, key: &Key, attachment: Option<Attachment>) {
        let Some(connection) = attachment.map(|attachment| attachment.source.connection) else { return };
        if let Some(keys) = self.by_connection.get_mut(&connection) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
    }
}
