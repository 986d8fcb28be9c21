//! Real processes, killed and stopped.

use rustix::process::Signal;

use super::prelude::*;
use crate::helper::{Helper, Reply};

pub(super) const CASES: &[Case] = &[
    case!(a_killed_holder_lets_the_next_in if reaches_processes),
    case!(a_killed_waiter_does_not_wedge_the_queue if reaches_processes),
    case!(a_holder_stopped_past_its_ttl_finds_its_guard_lost if expires),
    case!(the_lock_of_a_holder_stopped_past_its_ttl_goes_to_the_next if |c| expires(c) && reaches_processes(c)),
    case!(a_waiter_stopped_past_its_ttl_is_not_in if |c| expires(c) && reaches_processes(c) && queues(c)),
    case!(a_stopped_holder_keeps_what_never_expires if |c| !expires(c) && reaches_processes(c)),
    case!(processes_lose_no_update if reaches_processes),
];

async fn a_killed_holder_lets_the_next_in(world: World) {
    let name = world.name("killed");
    let mut holder = Helper::start(&world).await;
    let token = holder.acquire(&name, world.ttl()).await;
    let next = tokio::spawn(world.locks().await.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    let killed = Instant::now();
    holder.kill();
    let next = soon("the next claim is granted", next).await.unwrap().unwrap();
    let took = killed.elapsed();
    let allowed =
        if expires(world.capabilities()) { world.ttl() } else { Duration::ZERO } + Duration::from_secs(4);
    assert!(took < allowed, "it took {took:?} to get the lock of a dead process");
    assert!(next.token().get() > token);
    next.release().await.unwrap();
}

async fn a_killed_waiter_does_not_wedge_the_queue(world: World) {
    let name = world.name("queue");
    let holder = world.locks().await.lock(&name).acquire().await.unwrap();
    let mut waiter = Helper::start(&world).await;
    waiter.ask_for(&name, world.ttl());
    world.until(&name, 1, 1).await;
    let behind = tokio::spawn(world.locks().await.lock(&name).acquire());
    world.until(&name, 1, 2).await;
    waiter.kill();
    holder.release().await.unwrap();
    soon("the next waiter is granted the lock", behind).await.unwrap().unwrap().release().await.unwrap();
    world.until_idle(&name).await;
}

async fn a_holder_stopped_past_its_ttl_finds_its_guard_lost(world: World) {
    let name = world.name("stopped");
    let mut holder = Helper::start(&world).await;
    let token = holder.acquire(&name, world.ttl()).await;
    assert_eq!(holder.fence().await, Reply::Valid(token));
    holder.signal(Signal::STOP);
    tokio::time::sleep(world.ttl() * 3).await;
    holder.signal(Signal::CONT);
    // Whatever its timers have noticed by now: the first use must not believe in it.
    assert_eq!(holder.fence().await, Reply::Lost);
    assert_eq!(holder.release().await, Reply::Lost);
}

async fn the_lock_of_a_holder_stopped_past_its_ttl_goes_to_the_next(world: World) {
    let name = world.name("stopped");
    let mut holder = Helper::start(&world).await;
    let token = holder.acquire(&name, world.ttl()).await;
    holder.signal(Signal::STOP);
    let next = soon("the next claim is granted", world.locks().await.lock(&name).acquire()).await.unwrap();
    assert!(next.token().get() > token);
    holder.signal(Signal::CONT);
    assert_eq!(holder.fence().await, Reply::Lost);
    assert_eq!(holder.release().await, Reply::Lost);
    next.check().expect("the stale holder's release touched no other lock");
    assert_eq!(next.release().await.unwrap(), Release::Released);
    let again = holder.acquire(&name, world.ttl()).await;
    assert_eq!(holder.fence().await, Reply::Valid(again), "the client starts anew after a loss");
    assert_eq!(holder.release().await, Reply::Done);
}

async fn a_waiter_stopped_past_its_ttl_is_not_in(world: World) {
    let name = world.name("stopped");
    let holder = world.locks().await.lock(&name).acquire().await.unwrap();
    let mut waiter = Helper::start(&world).await;
    waiter.ask_for(&name, world.ttl());
    world.until(&name, 1, 1).await;
    waiter.signal(Signal::STOP);
    holder.release().await.unwrap();
    let next =
        soon("the next waiter is granted the lock", world.locks().await.lock(&name).acquire()).await.unwrap();
    waiter.signal(Signal::CONT);
    next.check().unwrap();
    let token = next.token();
    assert_eq!(next.release().await.unwrap(), Release::Released);
    // It hears of a grant that is over by now, or of none, or it has lined up again.
    if let Reply::Granted(granted) = waiter.reply().await {
        let fenced = if granted > token.get() { Reply::Valid(granted) } else { Reply::Lost };
        assert_eq!(waiter.fence().await, fenced);
    }
}

async fn a_stopped_holder_keeps_what_never_expires(world: World) {
    let name = world.name("stopped");
    let mut holder = Helper::start(&world).await;
    let token = holder.acquire(&name, world.ttl()).await;
    holder.signal(Signal::STOP);
    tokio::time::sleep(world.ttl() * 3).await;
    assert!(
        world.locks().await.lock(&name).try_acquire().await.unwrap().is_none(),
        "a stopped holder lost its lock"
    );
    holder.signal(Signal::CONT);
    assert_eq!(holder.fence().await, Reply::Valid(token));
    assert_eq!(holder.release().await, Reply::Done);
}

async fn processes_lose_no_update(world: World) {
    const PROCESSES: usize = 5;
    const TIMES: usize = 12;
    let name = world.name("file");
    let folder = tempfile::tempdir().unwrap();
    let (file, tokens) = (folder.path().join("count"), folder.path().join("tokens"));
    std::fs::write(&file, "0\n").unwrap();
    std::fs::write(&tokens, "").unwrap();
    let mut helpers = Vec::new();
    for _ in 0..PROCESSES {
        helpers.push(Helper::start(&world).await);
    }
    for helper in &mut helpers {
        helper.count(&name, &file, &tokens, TIMES);
    }
    for helper in &mut helpers {
        assert_eq!(helper.reply().await, Reply::Done);
    }
    let count = std::fs::read_to_string(&file).unwrap();
    assert_eq!(count.trim(), (PROCESSES * TIMES).to_string(), "an update was lost");
    let tokens: Vec<u64> =
        std::fs::read_to_string(&tokens).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        tokens.is_sorted_by(|a, b| a < b),
        "tokens do not increase in the order of the writes: {tokens:?}"
    );
}
