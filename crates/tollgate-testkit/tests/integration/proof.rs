//! Fences that have a flaw, in memory: many holders that lose their locks find each of them out.
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tollgate_core::{BootClock, BoxFuture, Fence, Keeper, Locks, Mark, OwnerId, Result};
use tollgate_embedded::MemoryBackend;
use tollgate_testkit::proof::{
    Cast, Engine, Entry, Judgement, Proof, Register, Resource, holders_that_lose_their_locks_lose_no_update,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A holder is not compared with anybody.
    ComparesNothing,
    /// A holder shows its token when it writes, and not before it reads.
    AdmitsLate,
    /// Somebody may come in between.
    ChecksAndThenWrites,
}

#[derive(Default)]
struct Cell {
    mark: Mark,
    fenced: Entry,
    plain: Entry,
}

struct Cells {
    flaw: Flaw,
    made: Mutex<HashMap<String, Arc<Mutex<Cell>>>>,
}

impl Resource for Cells {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn found(&self) -> BoxFuture<'_, String> {
        let name = OwnerId::random().to_hex();
        self.made.lock().unwrap().insert(name.clone(), Arc::default());
        Box::pin(std::future::ready(name))
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        let cell = self.made.lock().unwrap()[place].clone();
        let register: Box<dyn Register> = Box::new(User { cell, flaw: self.flaw });
        Box::pin(std::future::ready(register))
    }
}

struct User {
    cell: Arc<Mutex<Cell>>,
    flaw: Flaw,
}

impl User {
    async fn put(&self, fence: Fence, entry: Entry) -> Result<()> {
        if self.flaw == Flaw::ChecksAndThenWrites {
            self.cell.lock().unwrap().mark.admit(fence)?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut cell = self.cell.lock().unwrap();
        if matches!(self.flaw, Flaw::None | Flaw::AdmitsLate) {
            cell.mark.admit(fence)?;
        }
        cell.fenced = entry;
        Ok(())
    }
}

impl Register for User {
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        let mut cell = self.cell.lock().unwrap();
        let admitted = match self.flaw {
            Flaw::None | Flaw::ChecksAndThenWrites => cell.mark.admit(proof.fence),
            Flaw::ComparesNothing | Flaw::AdmitsLate => Ok(()),
        };
        Box::pin(std::future::ready(admitted.map(|()| cell.fenced)))
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.put(proof.fence, entry))
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(std::future::ready(self.cell.lock().unwrap().plain))
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        self.cell.lock().unwrap().plain = entry;
        Box::pin(std::future::ready(()))
    }
}

fn connected() -> Result<Locks> {
    static ENGINE: LazyLock<MemoryBackend> = LazyLock::new(|| {
        let keeper = Keeper::global().unwrap();
        MemoryBackend::new(Arc::new(BootClock::new(keeper.clone())), &keeper)
    });
    Locks::new(Arc::new(ENGINE.clone()))
}

async fn judged(flaw: Flaw) -> Judgement {
    let engine = Engine { name: "memory", url: || "memory:".to_owned() };
    let cast = Cast {
        connect: |_| Box::pin(std::future::ready(connected())),
        expiring: vec![engine],
        lasting: Vec::new(),
        resources: Vec::new(),
        pairs: &[],
        lasting_pairs: &[],
        judged: &[],
    };
    let cells = Cells { flaw, made: Mutex::default() };
    holders_that_lose_their_locks_lose_no_update(&cast, engine, &cells).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rule_keeps_every_update() {
    println!("{}", judged(Flaw::None).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "stale writes were accepted")]
async fn a_fence_that_compares_nothing_is_found_out() {
    judged(Flaw::ComparesNothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "stale writes were accepted")]
async fn a_holder_that_reads_before_it_is_admitted_is_found_out() {
    judged(Flaw::AdmitsLate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "updates were lost")]
async fn a_fence_that_checks_and_then_writes_is_found_out() {
    judged(Flaw::ChecksAndThenWrites).await;
}
