//! Holders that lose their locks at random between reading and writing, and write all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::capabilities::{Adopt, Revoke};
use tollgate_core::{ErrorKind, Guard, Locks, OwnerId, Stale};

use super::ledger::{Judgement, Ledger};
use super::{Cast, Engine, Proof, Register, Resource, long, short};
use crate::scale::scale;
use crate::subject::PATIENCE;

const HOLDERS: usize = 8;
/// One in so many loses its lock.
const ONE_IN: u64 = 4;

/// How a holder loses its lock.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Somebody takes it away.
    Revoked,
    /// It gives it back, and has not written yet.
    Left,
    /// Its ttl is over, and nobody renewed.
    Overrun,
}

/// Chance, from a seed.
struct Chance(u64);

impl Chance {
    /// A number below `end`: SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What everybody knows.
struct Run {
    ledger: Ledger,
    lock: String,
    /// Takes locks away.
    operator: Locks,
    /// How many may still wait for the end of their ttl: nobody else is in meanwhile.
    overruns: AtomicUsize,
}

impl Run {
    fn draw(&self, chance: &mut Chance) -> Option<Loss> {
        if chance.below(ONE_IN) != 0 {
            return None;
        }
        let fewer = |left: usize| left.checked_sub(1);
        match chance.below(5) {
            0 if self.overruns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() => {
                Some(Loss::Overrun)
            }
            1 | 2 if self.operator.capabilities().revoke != Revoke::Cooperative => Some(Loss::Revoked),
            _ => Some(Loss::Left),
        }
    }

    /// Loses the lock, and perhaps waits until somebody else has read, or written. What is left of the guard.
    async fn lose(&self, guard: Guard, loss: Loss, chance: &mut Chance) -> Option<Guard> {
        let token = guard.token();
        let left = match loss {
            Loss::Overrun => Some(guard),
            Loss::Left => {
                guard.release().await.expect("the engine answers");
                None
            }
            Loss::Revoked => {
                self.operator.revoke_by_force(&self.lock, token).await.expect("the engine answers");
                Some(guard)
            }
        };
        let ledger = &self.ledger;
        let ahead = match chance.below(3) {
            0 => &ledger.entered,
            1 => &ledger.wrote,
            // In a race with whoever comes next.
            _ => return left,
        };
        ledger.lagging.fetch_add(1, Ordering::SeqCst);
        // If all wait nobody will ever be ahead of the last.
        while ahead.load(Ordering::SeqCst) <= token.get()
            && ledger.lagging.load(Ordering::SeqCst) < HOLDERS
            && !ledger.is_over()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        ledger.lagging.fetch_sub(1, Ordering::SeqCst);
        left
    }

    async fn holder(&self, locks: Locks, mut register: Box<dyn Register>, mut chance: Chance) {
        let mut failures = 0;
        while !self.ledger.is_over() {
            let loss = self.draw(&mut chance);
            // The same for all: who waits behind a shorter ttl may look for its end too late.
            let request = locks.lock(&self.lock).ttl(short(&locks)).wait(PATIENCE);
            let request = if let Some(Loss::Overrun) = loss { request.no_renew() } else { request };
            let Ok(guard) = request.acquire().await else {
                failures += 1;
                assert!(failures < 100, "no client gets the lock any more");
                continue;
            };
            // A machine that is busy may have taken longer than a short ttl.
            let Ok(proof) = Proof::of(&guard) else { continue };
            self.passage(guard, &proof, loss, &mut *register, &mut chance).await;
        }
    }

    /// Enters, reads, perhaps loses the lock, and writes.
    async fn passage(
        &self,
        guard: Guard,
        proof: &Proof,
        loss: Option<Loss>,
        register: &mut dyn Register,
        chance: &mut Chance,
    ) {
        let (ledger, token) = (&self.ledger, proof.fence.token().get());
        let fenced = match register.enter(proof).await {
            Ok(entry) => entry,
            Err(error) => {
                assert!(Stale::of(&error).is_some(), "{error:?}");
                return;
            }
        };
        let plain = register.peek().await;
        ledger.fenced.note(fenced);
        ledger.entered.fetch_max(token, Ordering::SeqCst);
        let guard = match loss {
            Some(loss) => self.lose(guard, loss, chance).await,
            None => {
                // Time for somebody who is too late to come in between.
                if chance.below(8) == 0 {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                Some(guard)
            }
        };
        let (id, entered) = (ledger.id(), ledger.entered.load(Ordering::SeqCst));
        let entry = fenced.next(proof, id);
        match register.write(proof, entry).await {
            Ok(()) => {
                ledger.fenced.accept(fenced, entry, entered);
                ledger.wrote.fetch_max(token, Ordering::SeqCst);
            }
            Err(error) if error.kind() == ErrorKind::Lost => {
                assert!(Stale::of(&error).is_some(), "the write was refused for another reason: {error:?}");
                ledger.refused.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                assert!(
                    [ErrorKind::Indeterminate, ErrorKind::Unavailable].contains(&error.kind()),
                    "{error:?}"
                );
                ledger.unknown.fetch_add(1, Ordering::SeqCst);
            }
        }
        let entry = plain.next(proof, id);
        register.overwrite(entry).await;
        ledger.plain.accept(plain, entry, entered);
        if let Some(guard) = guard {
            guard.release().await.expect("the engine answers");
        }
    }
}

/// Eight holders write until 2 000 writes were accepted, or 100 000 in a soak. Panics unless the fence kept everything, and the
/// register without one did not.
pub async fn holders_that_lose_their_locks_lose_no_update(
    cast: &Cast,
    engine: Engine,
    resource: &dyn Resource,
) -> Judgement {
    let (url, place) = ((engine.url)(), resource.found().await);
    let operator = cast.locks(&url).await;
    let overruns = match operator.capabilities().adopt {
        // What cannot be left to itself is always renewed.
        Adopt::Never => 0,
        _ => scale(2, 60),
    };
    let seed = u64::from_str_radix(&OwnerId::random().to_hex()[..16], 16).expect("it is made of digits");
    println!("{} behind {} starts from {seed}", resource.name(), engine.name);
    let run = Arc::new(Run {
        ledger: Ledger::new(scale(2_000, 100_000)),
        lock: format!("judged/{}", OwnerId::random().to_hex()),
        operator,
        overruns: AtomicUsize::new(overruns),
    });
    let mut holders = tokio::task::JoinSet::new();
    let began = Instant::now();
    for number in 0..HOLDERS as u64 {
        let (locks, register) = (cast.locks(&url).await, resource.open(&place).await);
        let run = run.clone();
        holders.spawn(async move { run.holder(locks, register, Chance(seed ^ number << 32)).await });
    }
    while let Some(done) = holders.join_next().await {
        done.expect("no holder panics");
    }
    let took = began.elapsed();
    let last = run.operator.lock(&run.lock).ttl(long(&run.operator)).wait(PATIENCE);
    let last = last.acquire().await.expect("all clients have finished");
    let (proof, mut register) = (Proof::of(&last).expect("it is held"), resource.open(&place).await);
    let fenced = register.enter(&proof).await.expect("no newer token was admitted");
    run.ledger.judge(fenced, register.peek().await, took)
}
