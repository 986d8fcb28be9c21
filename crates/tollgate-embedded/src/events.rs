//! The event stream: grants and ends with their holders, collected only while a subscriber follows it.

use std::collections::HashMap;

use tokio::sync::broadcast;
use tollgate_core::{Event, Happening, LockName, Token};
use tollgate_engine::Engine;

use crate::heart::Kept;

/// How far a subscriber may fall behind before it misses events.
const BACKLOG: usize = 8192;

/// What subscribers are sent, and what is known of the grants that have not ended.
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
    /// Empty while there is no subscriber.
    grants: HashMap<(LockName, Token), Followed>,
}

/// A grant that has not ended.
struct Followed {
    details: Kept,
    /// An operator has asked the holder to release it.
    is_revoked: bool,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::channel(BACKLOG).0, grants: HashMap::new() }
    }

    /// Follows what happens from now on; ends of the grants that `engine` has now are among it.
    pub(crate) fn subscribe(&mut self, engine: &Engine<Kept>) -> broadcast::Receiver<Event> {
        if !self.are_followed() {
            for lock in engine.list("") {
                for holder in lock.holders {
                    let followed = Followed { details: holder.details.clone(), is_revoked: false };
                    self.grants.insert((lock.name.clone(), holder.token), followed);
                }
            }
        }
        self.sender.subscribe()
    }

    /// Whether there is a subscriber.
    pub(crate) fn are_followed(&mut self) -> bool {
        let are_followed = self.sender.receiver_count() > 0;
        if !are_followed && !self.grants.is_empty() {
            self.grants = HashMap::new();
        }
        are_followed
    }

    pub(crate) fn granted(&mut self, name: LockName, token: Token, details: Kept) {
        let holder = Kept::unwrap_or_clone(details.clone());
        let followed = Followed { details, is_revoked: false };
        if self.grants.insert((name.clone(), token), followed).is_some() {
            // The claim was repeated.
            return;
        }
        self.send(Event::now(name, token, Happening::Granted).of(holder));
    }

    pub(crate) fn asked_to_leave(&mut self, name: LockName, token: Token) {
        if let Some(grant) = self.grants.get_mut(&(name, token)) {
            grant.is_revoked = true;
        }
    }

    /// A grant ended; it was revoked, whatever `what` is, if an operator had asked for it before.
    pub(crate) fn ended(&mut self, name: LockName, token: Token, what: Happening) {
        let grant = self.grants.remove(&(name.clone(), token));
        let is_revoked = grant.as_ref().is_some_and(|grant| grant.is_revoked);
        let event = Event::now(name, token, if is_revoked { Happening::Revoked } else { what });
        self.send(match grant {
            Some(grant) => event.of(Kept::unwrap_or_clone(grant.details)),
            None => event,
        });
    }

    fn send(&self, event: Event) {
        // Fails if the last subscriber has just left.
        let _ = self.sender.send(event);
    }
}
