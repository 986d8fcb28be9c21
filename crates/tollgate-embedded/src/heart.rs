//! The engine with a clock, a timer and the waiters who want to hear from it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Notify, broadcast, oneshot};
use tollgate_core::{
    Age, Clock, Conflict, Details, Event, Happening, Keeper, LockName, Moment, OwnerId, Token,
};
use tollgate_engine::{Answer, Command, Engine, Event as EngineEvent, Granted};

use crate::events::Events;

/// What the engine keeps about a holder.
pub(crate) type Kept = Arc<Details>;

/// One engine and everything around it.
pub(crate) struct Heart {
    pub(crate) clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    /// The engine's next expiry is now earlier than the timer thinks.
    sooner: Arc<Notify>,
    /// Whose grants are revoked.
    revoked: broadcast::Sender<OwnerId>,
}

struct Table {
    engine: Engine<Kept>,
    waiting: HashMap<OwnerId, oneshot::Sender<Result<Granted, Conflict>>>,
    events: Events,
    /// When the timer will look next.
    alarm: Moment,
}

/// What an acquire came to.
pub(crate) enum Taken {
    Now(Granted),
    Later(oneshot::Receiver<Result<Granted, Conflict>>),
    Never(Conflict),
    Not(Answer),
}

/// What an acquire came to, and how old the claim's party is, if it has one.
pub(crate) struct Asked {
    pub(crate) taken: Taken,
    pub(crate) age: Option<Age>,
}

impl Heart {
    pub(crate) fn start(clock: Arc<dyn Clock>, keeper: &Keeper) -> Arc<Self> {
        let (waiting, events) = (HashMap::new(), Events::new());
        let table = Table { engine: Engine::new(), waiting, events, alarm: Moment::MAX };
        let (revoked, _) = broadcast::channel(64);
        let sooner = Arc::new(Notify::new());
        let heart = Arc::new(Self { clock, table: Mutex::new(table), sooner: sooner.clone(), revoked });
        keeper.spawn(tick(Arc::downgrade(&heart), heart.clock.clone(), sooner));
        heart
    }

    /// Takes the lock, or joins the queue and gets a receiver for the day it is granted.
    pub(crate) fn acquire(&self, claim: tollgate_engine::Claim<Kept>, wait: bool) -> Asked {
        let (name, owner, party) = (claim.name.clone(), claim.owner, claim.party);
        self.with(|heart, table| match heart.apply(table, Command::Acquire { claim, wait }) {
            Answer::Granted(granted) => {
                table.report_grant(&name, owner);
                Asked { taken: Taken::Now(granted), age: granted.age }
            }
            Answer::Queued { age, .. } => {
                let (sender, receiver) = oneshot::channel();
                table.waiting.insert(owner, sender);
                Asked { taken: Taken::Later(receiver), age }
            }
            Answer::Deadlock { conflict, age } => Asked { taken: Taken::Never(conflict), age },
            // A claim that was refused left no trace, but its party has begun to claim: it has an age.
            other => Asked {
                taken: Taken::Not(other),
                age: party.map(|party| party.age.unwrap_or(Age(heart.clock.now().as_nanos() / 1000))),
            },
        })
    }

    /// Does everything else.
    pub(crate) fn command(&self, command: Command<Kept>) -> Answer {
        self.with(|heart, table| {
            if let Command::Withdraw { owner, .. } = &command {
                table.waiting.remove(owner);
            }
            heart.apply(table, command)
        })
    }

    /// Looks at the engine as it is now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Engine<Kept>, Moment) -> T) -> T {
        self.with(|heart, table| {
            heart.apply(table, Command::Tick);
            look(&table.engine, heart.clock.now())
        })
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.with(|_, table| table.events.subscribe(&table.engine))
    }

    pub(crate) fn revoked(&self) -> broadcast::Receiver<OwnerId> {
        self.revoked.subscribe()
    }

    fn with<T>(&self, work: impl FnOnce(&Self, &mut Table) -> T) -> T {
        work(self, &mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One command: whoever it concerns hears of it before anybody else can give the next.
    fn apply(&self, table: &mut Table, command: Command<Kept>) -> Answer {
        // A release is an end that the answer tells alone, and comes before the grants that it makes room for.
        let leaving = match &command {
            Command::Release { name, owner } | Command::Withdraw { name, owner }
                if table.events.are_followed() =>
            {
                table.engine.grant_of(name, *owner).map(|(token, _)| (name.clone(), token))
            }
            _ => None,
        };
        let effects = table.engine.apply(command, self.clock.now());
        if let (Some((name, token)), Answer::Released { .. } | Answer::Withdrawn) = (leaving, &effects.answer)
        {
            table.events.ended(name, token, Happening::Released);
        }
        for event in effects.events {
            self.pass_on(table, event);
        }
        if let Some(next) = table.engine.next_expiry()
            && next < table.alarm
        {
            table.alarm = next;
            self.sooner.notify_one();
        }
        effects.answer
    }

    fn pass_on(&self, table: &mut Table, event: EngineEvent) {
        match event {
            EngineEvent::Granted { name, owner, token, expires, age, .. } => {
                if let Some(waiter) = table.waiting.remove(&owner) {
                    // A waiter who no longer listens was dropped; its withdrawal is on the way.
                    let _ = waiter.send(Ok(Granted { token, expires, age }));
                }
                table.report_grant(&name, owner);
            }
            EngineEvent::Expired { name, token, .. } => table.report_end(name, token, Happening::Expired),
            EngineEvent::AskedToLeave { name, owner, token } => {
                let _ = self.revoked.send(owner);
                if table.events.are_followed() {
                    table.events.asked_to_leave(name, token);
                }
            }
            EngineEvent::Revoked { name, owner, token } => {
                let _ = self.revoked.send(owner);
                table.report_end(name, token, Happening::Revoked);
            }
            EngineEvent::Deadlock { owner, conflict, .. } => {
                if let Some(waiter) = table.waiting.remove(&owner) {
                    let _ = waiter.send(Err(conflict));
                }
            }
            EngineEvent::Abandoned { owner, .. } => drop(table.waiting.remove(&owner)),
        }
    }
}

impl Table {
    fn report_grant(&mut self, name: &LockName, owner: OwnerId) {
        if self.events.are_followed()
            && let Some((token, details)) = self.engine.grant_of(name, owner)
        {
            self.events.granted(name.clone(), token, details.clone());
        }
    }

    fn report_end(&mut self, name: LockName, token: Token, what: Happening) {
        if self.events.are_followed() {
            self.events.ended(name, token, what);
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

/// Tells the engine when something is due, as long as anybody uses it.
async fn tick(heart: Weak<Heart>, clock: Arc<dyn Clock>, sooner: Arc<Notify>) {
    loop {
        // Only a weak reference is kept over the sleep, so that the engine ends with its last user.
        let alarm = {
            let Some(heart) = heart.upgrade() else { return };
            heart.with(|heart, table| {
                heart.apply(table, Command::Tick);
                table.alarm = table.engine.next_expiry().unwrap_or(Moment::MAX);
                table.alarm
            })
        };
        tokio::select! {
            () = clock.sleep_until(alarm) => {}
            () = sooner.notified() => {}
        }
    }
}
