//! What a network does to requests: they come late, come twice, or vanish with their connection.

use super::prelude::*;
use crate::fault::Operation;
use crate::proxy::{Close, Deed, Direction, Fate};

pub(super) const CASES: &[Case] = &[
    case!(an_acquire_that_arrives_after_it_was_given_up_leaves_nothing_behind if networked),
    case!(a_release_that_arrives_twice_touches_nobody_elses_lock if networked),
    case!(an_acquire_that_arrives_twice_is_one_grant if networked),
    case!(an_acquire_that_arrives_again_after_the_release_leaves_nothing_that_lasts if networked),
    case!(a_connection_cut_in_the_middle_of_an_acquire_leaves_nothing_behind if networked),
    case!(a_waiter_whose_connection_is_cut_leaves_nothing_behind if networked),
    case!(a_guard_outlives_its_connection if |c| networked(c) && expires(c)),
    case!(a_guard_that_hangs_on_its_connection_is_lost_with_it if |c| networked(c) && !expires(c)),
    case!(a_guard_in_a_black_hole_is_lost_by_its_deadline if |c| networked(c) && expires(c)),
    case!(an_acquire_into_a_black_hole_can_be_given_up if networked),
    case!(an_engine_that_hangs_is_not_called_busy if networked),
];

/// Long enough that nothing in these cases can end by expiry.
const LONG: Duration = Duration::from_secs(300);
/// How long a caller here waits for a lock.
const PATIENT: Duration = Duration::from_millis(150);

async fn an_acquire_that_arrives_after_it_was_given_up_leaves_nothing_behind(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("late");
    let held = chaos.on(Operation::Acquire, Deed::Hold);
    let unanswered = locks.lock(&name).ttl(LONG).wait(PATIENT).try_acquire().await;
    expect_kind(unanswered, ErrorKind::Indeterminate);
    soon("the acquire is caught", held.caught()).await;
    held.let_go();
    assert!(soon("the late acquire is answered", held.over()).await);
    soon("everything under way is answered", locks.close()).await;
    world.until_idle(&name).await;
}

async fn a_release_that_arrives_twice_touches_nobody_elses_lock(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("twice");
    let first = locks.lock(&name).ttl(LONG).acquire().await.unwrap();
    let next = tokio::spawn(world.locks().await.lock(&name).ttl(LONG).acquire());
    world.until(&name, 1, 1).await;
    let again = chaos.on(Operation::Release, chaos.repeat);
    assert_eq!(first.release().await.unwrap(), Release::Released);
    let next = soon("the next claim is granted", next).await.unwrap().unwrap();
    again.let_go();
    assert!(soon("the second release is answered", again.over()).await);
    next.check().unwrap();
    let holders = world.look(&name).await.expect("the next client holds the lock").holders;
    assert_eq!(holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [Some(next.token())]);
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

async fn an_acquire_that_arrives_twice_is_one_grant(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("twice");
    let again = chaos.on(Operation::Acquire, chaos.repeat);
    let guard = locks.lock(&name).ttl(LONG).acquire().await.unwrap();
    again.let_go();
    assert!(soon("the second acquire is answered", again.over()).await);
    let state = world.look(&name).await.expect("the lock is held");
    assert_eq!((state.holders.len(), state.waiters.len()), (1, 0));
    assert_eq!(state.holders[0].token, Some(guard.token()));
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    world.until_idle(&name).await;
}

async fn an_acquire_that_arrives_again_after_the_release_leaves_nothing_that_lasts(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("again");
    let again = chaos.on(Operation::Acquire, chaos.repeat);
    let guard = locks.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    again.let_go();
    assert!(soon("the second acquire is answered", again.over()).await);
    // The client stays, and with it a session that the orphan may hang on.
    let next = soon("the next claim is granted", world.locks().await.lock(&name).acquire()).await.unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
    world.until_idle(&name).await;
}

async fn a_connection_cut_in_the_middle_of_an_acquire_leaves_nothing_behind(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    for close in [Close::Abruptly, Close::Gently] {
        for deed in [Deed::CutInsteadOfReply(close), Deed::LoseAndCut(close)] {
            let name = world.name(&format!("{deed:?}"));
            let cut = chaos.on(Operation::Acquire, deed);
            let asked = locks.lock(&name).ttl(LONG).acquire().await;
            unknown_or_really_held(&world, &name, asked).await;
            soon("the connection is cut", cut.over()).await;
            world.until_idle(&name).await;
            let cut = chaos.on(Operation::TryAcquire, deed);
            let asked = locks.lock(&name).ttl(LONG).try_acquire().await;
            unknown_or_really_held(
                &world,
                &name,
                asked.map(|taken| taken.expect("the lock has no other claim")),
            )
            .await;
            soon("the connection is cut", cut.over()).await;
            world.until_idle(&name).await;
            let guard = soon("the client recovers", locks.lock(&name).acquire()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }
}

/// Whose engine can tell that a request was executed before may ask again. What it says then is so.
async fn unknown_or_really_held(
    world: &World,
    name: &tollgate_core::LockName,
    asked: tollgate_core::Result<Guard>,
) {
    match asked {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}"),
        Ok(guard) => {
            let state = world.look(name).await.expect("the lock is held");
            assert_eq!((state.holders.len(), state.waiters.len()), (1, 0));
            assert_eq!(state.holders[0].token, Some(guard.token()));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }
}

async fn a_waiter_whose_connection_is_cut_leaves_nothing_behind(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("awaited");
    let holder = world.locks().await.lock(&name).ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(&name).ttl(LONG).acquire());
    world.until(&name, 1, 1).await;
    chaos.proxy.cut(Close::Abruptly);
    holder.check().expect("another client's connection was cut");
    assert_eq!(holder.release().await.unwrap(), Release::Released);
    // It goes on waiting over another connection, or says that it does not know.
    if let Ok(guard) = soon("the wait ends", waiting).await.unwrap() {
        guard.check().unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    world.until_idle(&name).await;
}

async fn a_guard_outlives_its_connection(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("held");
    // Each renewal needs a new connection, and a loaded machine needs its time for that.
    let ttl = world.ttl() * 2;
    let guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    let until = Instant::now() + ttl * 3;
    while Instant::now() < until {
        chaos.proxy.cut(Close::Abruptly);
        tokio::time::sleep(ttl / 3).await;
        guard.check().expect("a lock that is renewed over another connection is held");
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

async fn a_guard_that_hangs_on_its_connection_is_lost_with_it(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let name = world.name("held");
    let guard = locks.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    chaos.proxy.cut(Close::Abruptly);
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::SessionEnded);
    expect_kind(guard.fence(), ErrorKind::Lost);
}

async fn a_guard_in_a_black_hole_is_lost_by_its_deadline(world: World) {
    for direction in [Direction::Requests, Direction::Replies] {
        let (locks, chaos) = world.troubled_locks().await;
        let name = world.name(&format!("{direction:?}"));
        let clock = world.clock();
        let guard = locks.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
        let (sender, mut lost) = tokio::sync::oneshot::channel();
        guard.on_lost({
            let clock = clock.clone();
            move |cause| sender.send((cause, clock.now())).expect("the case listens")
        });
        chaos.proxy.black_hole(direction, Fate::Late);
        // An answer may still be on its way to the guard, so its deadline is read as long as it is held.
        let mut deadline = clock.now();
        let (cause, at) = soon("the loss is signalled", async {
            loop {
                let seen = clock.now();
                if let (Some(left), GuardState::Held | GuardState::Jeopardy) =
                    (guard.remaining(), guard.state())
                {
                    deadline = deadline.max(seen + left);
                }
                tokio::select! {
                    biased;
                    told = &mut lost => break told.expect("the callback is called"),
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
                }
            }
        })
        .await;
        assert!(matches!(cause, LossCause::Expired | LossCause::SessionEnded), "{cause:?}");
        let late = at.since(deadline);
        assert!(late < Duration::from_millis(400), "the loss was signalled {late:?} after the deadline");
        expect_kind(guard.fence(), ErrorKind::Lost);
        // What was sent into the hole comes out of it, and brings nothing back.
        let token = guard.token();
        let next = soon("the next claim is granted", world.locks().await.lock(&name).ttl(LONG).acquire())
            .await
            .unwrap();
        assert!(next.token() > token);
        chaos.proxy.heal();
        drop(guard);
        soon("everything under way is answered", locks.close()).await;
        next.check().unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}

async fn an_acquire_into_a_black_hole_can_be_given_up(world: World) {
    for direction in [Direction::Requests, Direction::Replies] {
        for fate in [Fate::Late, Fate::Lost] {
            let (locks, chaos) = world.troubled_locks().await;
            let name = world.name(&format!("{direction:?} {fate:?}"));
            chaos.proxy.black_hole(direction, fate);
            let given_up = locks.lock(&name).ttl(LONG).wait(PATIENT).try_acquire().await;
            let error = given_up.expect_err("a black hole returns nothing, not even that the lock is busy");
            assert!(is_unanswered(error.kind()), "{error}");
            chaos.proxy.heal();
            soon("everything under way is answered", locks.close()).await;
            world.until_idle(&name).await;
        }
    }
}

/// What an engine that does not answer is reported as: unknown, or away if the request was certainly not sent.
fn is_unanswered(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable)
}

/// Of a client that was connected, whose engine hangs from some moment on while the lock is free; and of one that was told to
/// wait before.
async fn an_engine_that_hangs_is_not_called_busy(world: World) {
    let (locks, chaos) = world.troubled_locks().await;
    let (clock, wait) = (world.clock(), Duration::from_secs(1));
    let (free, held) = (world.name("free"), world.name("held"));
    let used = locks.lock(&free).ttl(LONG).acquire().await.unwrap();
    assert_eq!(used.release().await.unwrap(), Release::Released);
    let others = world.locks().await.lock(&held).ttl(LONG).acquire().await.unwrap();
    let waiting = locks.lock(&held).ttl(LONG).wait(wait * 2);
    let clock_of_waiter = world.clock();
    let was_told = tokio::spawn(async move {
        let started = clock_of_waiter.now();
        (waiting.try_acquire().await, clock_of_waiter.now().since(started))
    });
    world.until(&held, 1, 1).await;
    chaos.proxy.black_hole(Direction::Replies, Fate::Late);
    let started = clock.now();
    let (tried, taken) = tokio::join!(
        locks.lock(&free).ttl(LONG).wait(wait).try_acquire(),
        locks.lock(&free).ttl(LONG).wait(wait).acquire()
    );
    let took = clock.now().since(started);
    for error in [tried.map(drop).unwrap_err(), taken.map(drop).unwrap_err()] {
        assert!(is_unanswered(error.kind()), "{error}");
    }
    // A busy machine may add to it, but what was wrong took a second longer each time.
    assert!(took < wait + Duration::from_millis(900), "it took {took:?} to give up after {wait:?}");
    let (given_up, took) = soon("the wait gives up", was_told).await.unwrap();
    let error = given_up.unwrap_err();
    assert!(is_unanswered(error.kind()), "the client cannot know whether the lock is still busy: {error}");
    // The engine has a second to say that the lock is still busy.
    assert!(took < wait * 3 + Duration::from_millis(900), "it took {took:?} to give up after {:?}", wait * 2);
    chaos.proxy.heal();
    soon("everything under way is answered", locks.close()).await;
    world.until_idle(&free).await;
    assert_eq!(others.release().await.unwrap(), Release::Released);
    world.until_idle(&held).await;
}
