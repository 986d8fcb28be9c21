//! How fast the engine is, alone and in a crowd, and how much a held lock takes.
//!
//! The ratios are what counts: `1000 held` beside `1000000 held`, `10 waiting` beside `100000 waiting`.

#![allow(clippy::unwrap_used, missing_docs, reason = "nothing here is for others to call")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate_engine::{Answer, Claim, Command, Engine};
use tollgate_types::{LockName, Mode, Moment, OnDeadlock, OwnerId};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// A small generator (SplitMix64): the runs are alike, and the names are not in any order.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn name(&mut self) -> LockName {
        LockName::new(format!("{:016x}{:016x}", self.next(), self.next())).unwrap()
    }

    fn owner(&mut self) -> OwnerId {
        OwnerId::from_bits(u128::from(self.next()) << 64 | u128::from(self.next()))
    }
}

fn acquire(name: LockName, owner: OwnerId, wait: bool) -> Command<()> {
    let claim = Claim {
        name,
        mode: Mode::Exclusive,
        owner,
        ttl: Duration::from_secs(30),
        wait_lease: Some(Duration::from_secs(30)),
        lock_delay: Duration::ZERO,
        party: None,
        on_deadlock: OnDeadlock::Timeout,
        details: (),
    };
    Command::Acquire { claim, wait }
}

/// An engine with `held` locks under random names of 32 bytes, taken a nanosecond apart.
fn crowd(held: u64, random: &mut Random) -> Engine<()> {
    let mut engine = Engine::new();
    for n in 0..held {
        let taken = acquire(random.name(), random.owner(), false);
        engine.apply(taken, Moment::from_nanos(n));
    }
    engine
}

fn uncontended(c: &mut Criterion) {
    let mut group = c.benchmark_group("acquire and release");
    group.throughput(Throughput::Elements(1));
    for held in [0, 1_000, 1_000_000] {
        let mut random = Random(1);
        let region = Region::new(ALLOCATOR);
        let mut engine = crowd(held, &mut random);
        let change = region.change();
        if held > 0 {
            let bytes = change.bytes_allocated - change.bytes_deallocated;
            println!("{held} held: {} bytes per lock", bytes / held as usize);
        }
        // Many names, so that the parts of the table they fall into are not all in the cache.
        let taken: Vec<_> = (0..65_536).map(|_| (random.name(), random.owner())).collect();
        let (mut now, mut turn) = (held, 0);
        group.bench_function(format!("{held} held"), |b| {
            b.iter(|| {
                let (name, owner) = &taken[turn % taken.len()];
                (turn, now) = (turn + 1, now + 1);
                let (name, owner, now) = (name.clone(), *owner, Moment::from_nanos(now));
                black_box(engine.apply(acquire(name.clone(), owner, false), now));
                black_box(engine.apply(Command::Release { name, owner }, now));
            });
        });
    }
}

fn hand_over(c: &mut Criterion) {
    let mut group = c.benchmark_group("release, hand over, queue again");
    group.throughput(Throughput::Elements(1));
    for waiting in [10, 100_000] {
        let mut random = Random(2);
        let mut engine = Engine::new();
        let name = LockName::new("the one that everybody wants").unwrap();
        let owners: Vec<_> = (0..=waiting).map(|_| random.owner()).collect();
        let mut now = 0;
        for &owner in &owners {
            engine.apply(acquire(name.clone(), owner, true), Moment::ZERO);
        }
        let mut turn = 0;
        group.bench_function(format!("{waiting} waiting"), |b| {
            b.iter(|| {
                let owner = owners[turn % owners.len()];
                (turn, now) = (turn + 1, now + 1);
                let now = Moment::from_nanos(now);
                let given = engine.apply(Command::Release { name: name.clone(), owner }, now);
                assert!(matches!(given.answer, Answer::Released { .. }) && given.events.len() == 1);
                black_box(engine.apply(acquire(name.clone(), owner, true), now));
            });
        });
    }
}

fn withdraw(c: &mut Criterion) {
    let mut group = c.benchmark_group("withdraw from the queue and join again");
    group.throughput(Throughput::Elements(1));
    for waiting in [10, 100_000] {
        let mut random = Random(3);
        let mut engine = Engine::new();
        let name = LockName::new("the one that everybody wants").unwrap();
        let owners: Vec<_> = (0..=waiting).map(|_| random.owner()).collect();
        for &owner in &owners {
            engine.apply(acquire(name.clone(), owner, true), Moment::ZERO);
        }
        group.bench_function(format!("{waiting} waiting"), |b| {
            b.iter(|| {
                let owner = owners[1 + random.next() as usize % waiting];
                black_box(engine.apply(Command::Withdraw { name: name.clone(), owner }, Moment::ZERO));
                black_box(engine.apply(acquire(name.clone(), owner, true), Moment::ZERO));
            });
        });
    }
}

criterion_group!(benches, uncontended, hand_over, withdraw);
criterion_main!(benches);
