//! The proof: whoever has lost its lock writes all the same, and what is fenced refuses it.
//!
//! A [`Register`] counts: who writes adds one to what it read. It is there twice, once behind the fence and once without, and
//! every holder does the same to both: in one run the one keeps every update, and the other one must lose some.
//!
//! `stopped.rs` is about one process that stands still for longer than its ttl, `judged.rs` about many holders that lose their
//! locks again and again.

mod judged;
mod ledger;
mod program;
mod stopped;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{BoxFuture, Fence, Grant, Guard, Locks, Result};

pub use judged::holders_that_lose_their_locks_lose_no_update;
pub use ledger::Judgement;
pub use program::main;

/// What is in a register: how often it was written, and who did it last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// One more than whoever wrote this had read.
    pub count: u64,
    /// The writer's token.
    pub token: u64,
    /// No other write has this number.
    pub id: u64,
}

impl Entry {
    /// What a holder writes that has read this.
    fn next(self, proof: &Proof, id: u64) -> Self {
        Self { count: self.count + 1, token: proof.fence.token().get(), id }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.count, self.token, self.id)
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers: Vec<u64> = text.split(' ').map_while(|number| number.parse().ok()).collect();
        match numbers[..] {
            [count, token, id] => Ok(Self { count, token, id }),
            _ => Err(format!("{text:?} is not an entry that a client wrote")),
        }
    }
}

/// What a holder shows, as fresh as it was when it was taken.
#[derive(Debug, Clone)]
pub struct Proof {
    /// For what compares tokens.
    pub fence: Fence,
    /// For what compares the lock itself.
    pub grant: Grant,
}

impl Proof {
    fn of(guard: &Guard) -> Result<Self> {
        Ok(Self { fence: guard.fence()?, grant: guard.grant().clone() })
    }
}

/// A register as one of its users has it. What does not belong to the fence panics if it fails.
pub trait Register: Send {
    /// Shows the token, and reads. What compares the lock itself when it is written to has nothing to be shown.
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>>;

    /// Writes, if the holder is not too late.
    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>>;

    /// Reads the one without a fence.
    fn peek(&mut self) -> BoxFuture<'_, Entry>;

    /// Writes to the one without a fence.
    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()>;
}

/// Something that can be fenced.
pub trait Resource: Send + Sync + 'static {
    /// Its name, for the lines that are printed.
    fn name(&self) -> &'static str;

    /// The locks that alone can fence it, if it compares the lock itself.
    fn only_by(&self) -> Option<&'static str> {
        None
    }

    /// Makes a register in which nothing was written, and says where. Other processes get this string.
    fn found(&self) -> BoxFuture<'_, String>;

    /// Becomes a user of the register at `place`.
    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>>;

    /// Removes what it left behind, after the last case.
    fn finish(&self) {}
}

/// An engine that locks are taken on.
#[derive(Clone, Copy)]
pub struct Engine {
    /// Its name, for the lines that are printed.
    pub name: &'static str,
    /// Where it is, started now if it is not there yet.
    pub url: fn() -> String,
}

/// How a program becomes a client of an engine.
pub type Connect = fn(&str) -> BoxFuture<'_, Result<Locks>>;

/// Who takes part.
pub struct Cast {
    /// How to become a client.
    pub connect: Connect,
    /// Where a holder that is stopped loses its lock.
    pub expiring: Vec<Engine>,
    /// Where it keeps it.
    pub lasting: Vec<Engine>,
    /// What is written to.
    pub resources: Vec<Box<dyn Resource>>,
    /// Engine and resource: a few in CI, in which every one of both is. A soak has all there are.
    pub pairs: &'static [(&'static str, &'static str)],
    /// The same for engines that nobody loses a lock on.
    pub lasting_pairs: &'static [(&'static str, &'static str)],
    /// The locks that the many holders take to write to each resource.
    pub judged: &'static [(&'static str, &'static str)],
}

impl Cast {
    fn resource(&self, name: &str) -> &dyn Resource {
        let found = self.resources.iter().find(|resource| resource.name() == name);
        &**found.unwrap_or_else(|| panic!("there is no resource {name}"))
    }

    fn engine(&self, name: &str) -> Engine {
        let found = self.expiring.iter().chain(&self.lasting).find(|engine| engine.name == name);
        *found.unwrap_or_else(|| panic!("there is no engine {name}"))
    }

    async fn locks(&self, url: &str) -> Locks {
        (self.connect)(url).await.expect("the engine can be reached")
    }
}

/// The shortest ttl that leaves a loaded machine room.
fn short(locks: &Locks) -> Duration {
    locks.capabilities().ttl.min.max(Duration::from_millis(900))
}

/// One that nobody outlives here.
fn long(locks: &Locks) -> Duration {
    locks.capabilities().ttl.max.min(Duration::from_secs(60))
}
