//! The engine with a clock, a timer and the waiters who want to hear from it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Notify, broadcast, oneshot};
use tollgate_core::{Age, Clock, Conflict, Details, Event, Happening, Keeper, Moment, OwnerId};
use tollgate_engine::{Answer, Command, Engine, Event as EngineEvent, Granted};

/// What the engine keeps about a holder.
pub(crate) type Kept = Arc<Details>;

/// One engine and everything around it.
pub(crate) struct Heart {
    pub(crate) clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    /// The engine's next expiry is now earlier than the timer thinks.
    sooner: Arc<Notify>,
    happenings: broadcast::Sender<Event>,
}

struct Table {
    engine: Engine<Kept>,
    waiting: HashMap<OwnerId, oneshot::Sender<Result<Granted, Conflict>>>,
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
        let table = Table { engine: Engine::new(), waiting: HashMap::new(), alarm: Moment::MAX };
        let (happenings, _) = broadcast::channel(1024);
        let sooner = Arc::new(Notify::new());
        let heart = Arc::new(Self { clock, table: Mutex::new(table), sooner: sooner.clone(), happenings });
        keeper.spawn(tick(Arc::downgrade(&heart), heart.clock.clone(), sooner));
        heart
    }

    /// Takes the lock, or joins the queue and gets a receiver for the day it is granted.
    pub(crate) fn acquire(&self, claim: tollgate_engine::Claim<Kept>, wait: bool) -> Asked {
        let (name, owner, party) = (claim.name.clone(), claim.owner, claim.party);
        self.with(|heart, table| match heart.apply(table, Command::Acquire { claim, wait }) {
            Answer::Granted(granted) => {
                heart.tell(Event { name, token: granted.token, what: Happening::Granted });
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
        let released = match &command {
            Command::Release { name, .. } => Some(name.clone()),
            _ => None,
        };
        let withdrawn = match &command {
            Command::Withdraw { owner, .. } => Some(*owner),
            _ => None,
        };
        self.with(|heart, table| {
            if let Some(owner) = withdrawn {
                table.waiting.remove(&owner);
            }
            let answer = heart.apply(table, command);
            if let (Some(name), Answer::Released { token }) = (released, &answer) {
                heart.tell(Event { name, token: *token, what: Happening::Released });
            }
            answer
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
        self.happenings.subscribe()
    }

    fn with<T>(&self, work: impl FnOnce(&Self, &mut Table) -> T) -> T {
        work(self, &mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One command: whoever it concerns hears of it before anybody else can give the next.
    fn apply(&self, table: &mut Table, command: Command<Kept>) -> Answer {
        let effects = table.engine.apply(command, self.clock.now());
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
                self.tell(Event { name, token, what: Happening::Granted });
            }
            EngineEvent::Expired { name, token, .. } => {
                self.tell(Event { name, token, what: Happening::Expired })
            }
            EngineEvent::Revoked { name, token, .. } => {
                self.tell(Event { name, token, what: Happening::Revoked })
            }
            EngineEvent::Deadlock { owner, conflict, .. } => {
                if let Some(waiter) = table.waiting.remove(&owner) {
                    let _ = waiter.send(Err(conflict));
                }
            }
            EngineEvent::Abandoned { owner, .. } => drop(table.waiting.remove(&owner)),
        }
    }

    fn tell(&self, event: Event) {
        // Fails if nobody listens, which is fine.
        let _ = self.happenings.send(event);
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
