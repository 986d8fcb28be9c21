//! Deadlocks: philosophers who each take the fork to their left and then the one to their right. Everybody eats.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Barrier;
use tollgate_core::{Fence, Gate, Guards, Locks, MemoryGate, OnDeadlock, PartyHandle, Stale};

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(philosophers_who_take_sets_all_eat),
    case!(philosophers_who_give_up_after_a_while_all_eat),
    case!(philosophers_by_wait_die_all_eat if queues),
    case!(philosophers_by_wound_wait_all_eat if wounds),
    case!(philosophers_who_are_told_of_circles_all_eat if detects),
    case!(by_wait_die_the_younger_gives_up if queues),
    case!(by_wound_wait_the_younger_makes_way if wounds),
    case!(by_wound_wait_the_younger_loses_its_place if wounds),
    case!(by_wound_wait_nobody_waits_for_its_own_permits if wounds_semaphores),
    case!(a_party_without_a_policy_has_its_age if queues),
    case!(a_party_in_its_own_way_does_not_try_for_ever if queues),
    case!(a_party_that_dropped_a_lock_may_take_it_again if queues),
    case!(a_wait_counts_the_engines_time_too if queues),
    case!(the_youngest_in_a_circle_is_told_of_it if detects),
    case!(who_waits_in_no_circle_is_no_victim if detects),
    case!(a_policy_that_is_not_there_is_refused),
];

fn wounds(capabilities: &Capabilities) -> bool {
    queues(capabilities)
        && capabilities.revoke != Revoke::Cooperative
        && capabilities.liveness != Liveness::Process
}

fn wounds_semaphores(capabilities: &Capabilities) -> bool {
    wounds(capabilities) && capabilities.modes.permit
}

fn detects(capabilities: &Capabilities) -> bool {
    capabilities.detect
}

/// How a philosopher comes by two forks.
#[derive(Clone, Copy)]
enum Manners {
    /// Both at once.
    Set,
    /// One after the other, with a policy.
    By(OnDeadlock),
}

/// How long somebody without another policy waits for a fork.
const GIVE_UP: Duration = Duration::from_millis(100);

/// One who dines.
struct Philosopher<'a> {
    locks: &'a Locks,
    left: &'a LockName,
    right: &'a LockName,
    manners: Manners,
    /// Where everybody who has taken one fork of its first meal waits for the others: so there is a circle.
    circle: &'a Barrier,
}

/// Has philosophers dine until everybody has had enough. Where nobody may starve those who had enough go on eating until
/// then, so that whoever is always pushed aside never gets up.
async fn dine(world: &World, manners: Manners) {
    let is_fair = queues(world.capabilities()) && !matches!(manners, Manners::By(OnDeadlock::Timeout));
    for (philosophers, meals) in [(5, 3), (scale(20, 100), 1)] {
        let forks: Vec<LockName> =
            (0..philosophers).map(|fork| world.name(&format!("fork-{philosophers}-{fork}"))).collect();
        let clients = join_all((0..4).map(|_| world.locks())).await;
        let circle = &Barrier::new(philosophers);
        let (hungry, vain) = (&AtomicUsize::new(philosophers), &AtomicUsize::new(0));
        let tables = (0..philosophers).map(|seat| {
            let (left, right) = (&forks[seat], &forks[(seat + 1) % philosophers]);
            let philosopher = Philosopher { locks: &clients[seat % 4], left, right, manners, circle };
            async move {
                for meal in 1.. {
                    vain.fetch_add(philosopher.eat(meal == 1).await, Ordering::Relaxed);
                    if meal == meals {
                        hungry.fetch_sub(1, Ordering::Relaxed);
                    }
                    if meal >= meals && (!is_fair || hungry.load(Ordering::Relaxed) == 0) {
                        break;
                    }
                }
            }
        });
        join_all(tables).await;
        let met = vain.load(Ordering::Relaxed) > 0;
        assert!(
            met || matches!(manners, Manners::Set),
            "no philosopher had to give way, though all were in one cycle"
        );
        for fork in &forks {
            world.until_idle(fork).await;
        }
    }
}

impl Philosopher<'_> {
    /// Returns when a meal was eaten with both forks in hand from its beginning to its end. Answers how often it was tried in
    /// vain.
    async fn eat(&self, is_first: bool) -> usize {
        let (party, tries) = (PartyHandle::new(), AtomicUsize::new(0));
        party
            .retry(async || {
                let try_number = tries.fetch_add(1, Ordering::Relaxed);
                let both = self.take(&party, is_first && try_number == 0).await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                for fork in both {
                    if fork.release().await? == Release::AlreadyLost {
                        return Err(Error::new(
                            ErrorKind::Lost,
                            "an older philosopher took a fork away during the meal",
                        ));
                    }
                }
                Ok(())
            })
            .await
            .expect("a philosopher eats");
        tries.into_inner() - 1
    }

    async fn take(&self, party: &PartyHandle, in_a_circle: bool) -> Result<Vec<Guard>, Error> {
        let policy = match self.manners {
            Manners::Set => {
                let set: Guards = self.locks.lock_all([self.left, self.right]).party(party).acquire().await?;
                return Ok(set.into_iter().collect());
            }
            Manners::By(policy) => policy,
        };
        let fork = |name: &LockName| {
            let request = self.locks.lock(name).party(party).on_deadlock(policy);
            if policy == OnDeadlock::Timeout { request.wait(GIVE_UP) } else { request }
        };
        let left = if in_a_circle {
            let left = self.locks.lock(self.left).party(party).on_deadlock(policy).acquire().await?;
            self.circle.wait().await;
            left
        } else {
            fork(self.left).acquire().await.map_err(given_up)?
        };
        // Whoever is told to make way does, also while it waits for something else.
        let wounded = left.lost();
        let right = tokio::select! {
            right = fork(self.right).acquire() => right.map_err(given_up)?,
            cause = wounded => return Err(Error::new(ErrorKind::Lost, cause.to_string())),
        };
        Ok(vec![left, right])
    }
}

async fn philosophers_who_take_sets_all_eat(world: World) {
    dine(&world, Manners::Set).await;
}

async fn philosophers_who_give_up_after_a_while_all_eat(world: World) {
    dine(&world, Manners::By(OnDeadlock::Timeout)).await;
}

async fn philosophers_by_wait_die_all_eat(world: World) {
    dine(&world, Manners::By(OnDeadlock::WaitDie)).await;
}

async fn philosophers_by_wound_wait_all_eat(world: World) {
    dine(&world, Manners::By(OnDeadlock::WoundWait)).await;
}

async fn philosophers_who_are_told_of_circles_all_eat(world: World) {
    dine(&world, Manners::By(OnDeadlock::Detect)).await;
}

/// A philosopher who gives up before a slow engine has said that the fork is in use tries again, too.
fn given_up(error: Error) -> Error {
    if error.kind() == ErrorKind::Indeterminate {
        Error::new(ErrorKind::Busy, error.to_string())
    } else {
        error
    }
}

/// Two parties with a lock each that they hold by `policy`, the older first.
async fn two(world: &World, policy: OnDeadlock) -> [(Locks, PartyHandle, LockName, Guard); 2] {
    let mut both = Vec::new();
    for name in ["older", "younger"] {
        let (locks, party, name) = (world.locks().await, PartyHandle::new(), world.name(name));
        // Who is wounded may hear of it only when it renews.
        let request = locks.lock(&name).ttl(4 * world.ttl());
        let guard = request.party(&party).on_deadlock(policy).acquire().await.unwrap();
        both.push((locks, party, name, guard));
        // Their ages differ, however coarse the engine's clock is.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    both.try_into().unwrap_or_else(|_| unreachable!("there are two"))
}

async fn by_wait_die_the_younger_gives_up(world: World) {
    let [(locks, older, a, first), (others, younger, b, second)] = two(&world, OnDeadlock::WaitDie).await;
    let refused = others.lock(&a).party(&younger).on_deadlock(OnDeadlock::WaitDie).acquire();
    let error = expect_kind(soon("the younger party gives up", refused).await, ErrorKind::Deadlock);
    assert!(error.is_retryable() && error.to_string().contains("older"), "{error}");
    // Nothing of the refused claim is left; a slow engine may answer its withdrawal after the error.
    world.until(&a, 1, 0).await;
    let waits = tokio::spawn(locks.lock(&b).party(&older).on_deadlock(OnDeadlock::WaitDie).acquire());
    world.until(&b, 1, 1).await;
    second.release().await.unwrap();
    let third = soon("the older party gets the lock", waits).await.unwrap().unwrap();
    third.release().await.unwrap();
    first.release().await.unwrap();
}

async fn by_wound_wait_the_younger_makes_way(world: World) {
    let [(locks, older, a, first), (others, younger, b, second)] = two(&world, OnDeadlock::WoundWait).await;
    let waits = tokio::spawn(others.lock(&a).party(&younger).on_deadlock(OnDeadlock::WoundWait).acquire());
    world.until(&a, 1, 1).await;
    let taken = locks.lock(&b).party(&older).on_deadlock(OnDeadlock::WoundWait).acquire();
    let taken = soon("the older party gets the lock", taken).await.unwrap();
    let gate = MemoryGate::new();
    gate.admit(b.as_str(), taken.fence().unwrap()).await.unwrap();
    let refused = gate.admit(b.as_str(), Fence::shown(second.token(), true)).await;
    let stale = expect_kind(refused, ErrorKind::Lost);
    let numbers = Stale::of(&stale).map(|stale| (stale.token, stale.highest));
    assert_eq!(numbers, Some((second.token(), Some(taken.token()))), "the younger party is fenced");
    let cause = soon("the younger party learns that it made way", second.lost()).await;
    assert!(matches!(cause, LossCause::Gone | LossCause::Revoked | LossCause::SessionEnded), "{cause:?}");
    expect_kind(second.fence(), ErrorKind::Lost);
    assert_eq!(second.release().await.unwrap(), Release::AlreadyLost);
    first.release().await.unwrap();
    let third = soon("the younger party still waits for the older party", waits).await.unwrap().unwrap();
    let itself = others.lock(&b).party(&older).on_deadlock(OnDeadlock::WoundWait).acquire();
    expect_kind(soon("a party does not wait for itself", itself).await, ErrorKind::Deadlock);
    third.release().await.unwrap();
    taken.release().await.unwrap();
}

async fn by_wound_wait_the_younger_loses_its_place(world: World) {
    let [(locks, older, _, first), (others, younger, _, second)] = two(&world, OnDeadlock::WoundWait).await;
    let wanted = world.name("wanted");
    let held = locks.lock(&wanted).acquire().await.unwrap();
    let waits =
        tokio::spawn(others.lock(&wanted).party(&younger).on_deadlock(OnDeadlock::WoundWait).acquire());
    world.until(&wanted, 1, 1).await;
    let comes = tokio::spawn(locks.lock(&wanted).party(&older).on_deadlock(OnDeadlock::WoundWait).acquire());
    expect_kind(soon("the younger party makes way", waits).await.unwrap(), ErrorKind::Deadlock);
    world.until(&wanted, 1, 1).await;
    assert_eq!(held.release().await.unwrap(), Release::Released, "a party without a policy is not wounded");
    soon("the older party gets the lock", comes).await.unwrap().unwrap().release().await.unwrap();
    first.release().await.unwrap();
    second.release().await.unwrap();
}

async fn by_wound_wait_nobody_waits_for_its_own_permits(world: World) {
    let (locks, party, name) = (world.locks().await, PartyHandle::new(), world.name("permits"));
    let permit = || locks.lock(&name).permit(2).party(&party).on_deadlock(OnDeadlock::WoundWait).acquire();
    let both = [permit().await.unwrap(), permit().await.unwrap()];
    let error = expect_kind(soon("the third party is refused", permit()).await, ErrorKind::Deadlock);
    assert!(!error.is_retryable(), "a retry cannot help: {error}");
    for permit in both {
        assert_eq!(permit.release().await.unwrap(), Release::Released);
    }
}

async fn a_party_without_a_policy_has_its_age(world: World) {
    let [(_, _, a, first), (others, younger, _, second)] = two(&world, OnDeadlock::Timeout).await;
    let refused = others.lock(&a).party(&younger).on_deadlock(OnDeadlock::WaitDie).acquire();
    expect_kind(soon("the younger party gives up", refused).await, ErrorKind::Deadlock);
    first.release().await.unwrap();
    second.release().await.unwrap();
}

async fn a_party_in_its_own_way_does_not_try_for_ever(world: World) {
    let (locks, party, name) = (world.locks().await, PartyHandle::new(), world.name("own-way"));
    let held = locks.lock(&name).party(&party).acquire().await.unwrap();
    let again = party
        .retry(async || locks.lock(&name).party(&party).on_deadlock(OnDeadlock::WaitDie).acquire().await);
    expect_kind(soon("the party is notified", again).await, ErrorKind::Deadlock);
    held.release().await.unwrap();
}

async fn a_party_that_dropped_a_lock_may_take_it_again(world: World) {
    let (locks, party, name) = (world.locks().await, PartyHandle::new(), world.name("dropped"));
    let policy = if detects(locks.capabilities()) { OnDeadlock::Detect } else { OnDeadlock::WaitDie };
    for _ in 0..scale(20, 1000) {
        let again = locks.lock(&name).party(&party).on_deadlock(policy).acquire();
        drop(soon("a party is not in its own way", again).await.unwrap());
    }
}

async fn a_wait_counts_the_engines_time_too(world: World) {
    let (locks, party, name) = (world.locks().await, PartyHandle::new(), world.name("waits"));
    let held = locks.lock(&name).acquire().await.unwrap();
    let policy = if detects(locks.capabilities()) { OnDeadlock::Detect } else { OnDeadlock::WaitDie };
    let waits = locks.lock(&name).party(&party).on_deadlock(policy).wait(GIVE_UP).acquire();
    expect_kind(soon("the party gives up", waits).await, ErrorKind::Busy);
    held.release().await.unwrap();
    world.until_idle(&name).await;
}

async fn the_youngest_in_a_circle_is_told_of_it(world: World) {
    let [(locks, older, a, first), (others, younger, b, second)] = two(&world, OnDeadlock::Detect).await;
    let waits = tokio::spawn(others.lock(&a).party(&younger).on_deadlock(OnDeadlock::Detect).acquire());
    world.until(&a, 1, 1).await;
    let closes = tokio::spawn(locks.lock(&b).party(&older).on_deadlock(OnDeadlock::Detect).acquire());
    let error = expect_kind(soon("the younger party is notified", waits).await.unwrap(), ErrorKind::Deadlock);
    assert!(error.to_string().contains(a.as_str()) && error.to_string().contains(b.as_str()), "{error}");
    second.release().await.unwrap();
    soon("the older party gets the lock", closes).await.unwrap().unwrap().release().await.unwrap();
    first.release().await.unwrap();
}

async fn who_waits_in_no_circle_is_no_victim(world: World) {
    let [(locks, _, a, first), (others, younger, b, second)] = two(&world, OnDeadlock::Detect).await;
    let waits = tokio::spawn(others.lock(&a).party(&younger).on_deadlock(OnDeadlock::Detect).acquire());
    world.until(&a, 1, 1).await;
    let third = PartyHandle::new();
    let chained = tokio::spawn(locks.lock(&b).party(&third).on_deadlock(OnDeadlock::Detect).acquire());
    world.until(&b, 1, 1).await;
    first.release().await.unwrap();
    soon("the second party gets the lock", waits).await.unwrap().unwrap().release().await.unwrap();
    second.release().await.unwrap();
    soon("the third party gets the lock", chained).await.unwrap().unwrap().release().await.unwrap();
}

async fn a_policy_that_is_not_there_is_refused(world: World) {
    let (locks, party, name) = (world.locks().await, PartyHandle::new(), world.name("refused"));
    let can = locks.capabilities().clone();
    let policies = [
        (OnDeadlock::Detect, can.detect),
        (OnDeadlock::WaitDie, queues(&can)),
        (OnDeadlock::WoundWait, wounds(&can)),
    ];
    for (policy, is_there) in policies {
        let asked = locks.lock(&name).party(&party).on_deadlock(policy).try_acquire().await;
        if is_there {
            asked.unwrap().expect("the lock has no other claim").release().await.unwrap();
            let nobodys = locks.lock(&name).on_deadlock(policy).try_acquire().await;
            expect_kind(nobodys, ErrorKind::InvalidArgument);
        } else {
            expect_kind(asked, ErrorKind::Unsupported);
        }
    }
}
