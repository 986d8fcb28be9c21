//! Elections: one leads, everybody sees who, and what one leader does is over before the next begins.

use std::pin::pin;

use futures_util::StreamExt;
use tollgate_core::Details;

use super::prelude::*;
use crate::helper::{Helper, Reply};
use crate::scale::is_soak;

fn shares(capabilities: &Capabilities) -> bool {
    capabilities.modes.shared
}

pub(super) const CASES: &[Case] = &[
    case!(of_two_who_campaign_one_leads_and_epochs_rise),
    case!(a_leader_resigns_only_when_its_work_is_done),
    case!(what_a_leader_proclaims_is_seen),
    case!(what_a_leader_proclaims_is_there_when_that_is_said),
    case!(what_a_leader_proclaims_outlasts_renewals),
    case!(what_a_leader_said_before_does_not_come_back if |c| networked(c) && !matches!(c.liveness, Liveness::Process)),
    case!(who_shares_the_lock_leads_nobody if shares),
    case!(leadership_that_is_lost_cancels_the_work),
    case!(a_killed_leader_is_followed if reaches_processes),
];

async fn of_two_who_campaign_one_leads_and_epochs_rise(world: World) {
    let name = world.name("leader");
    let (one, two, watcher) = (world.locks().await, world.locks().await, world.locks().await);
    let first = one.election(&name).campaign("one").await.unwrap();
    let election = watcher.election(&name);
    let mut leaders = pin!(election.observe());
    let seen = soon("the first leader is seen", leaders.next()).await.unwrap().unwrap();
    assert_eq!((seen.epoch, seen.value.as_str()), (first.epoch(), "one"));
    let second = tokio::spawn({
        let election = two.election(&name);
        async move { election.campaign("two").await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished(), "two leaders overlapped");
    let epoch = first.epoch();
    assert_eq!(first.resign().await.unwrap(), Release::Released);
    let second = soon("the second candidate leads", second).await.unwrap().unwrap();
    assert!(second.epoch() > epoch, "epochs rise");
    let seen = soon("the second leader is seen", leaders.next()).await.unwrap().unwrap();
    assert_eq!((seen.epoch, seen.value.as_str()), (second.epoch(), "two"));
    second.resign().await.unwrap();
    world.until_idle(&name).await;
    assert_eq!(election.leader().await.unwrap(), None);
}

async fn a_leader_resigns_only_when_its_work_is_done(world: World) {
    let name = world.name("drained");
    let locks = world.locks().await;
    for dropped in [false, true] {
        let leadership = locks.election(&name).campaign("").await.unwrap();
        let work = leadership.work();
        let resigning = tokio::spawn(async move {
            if dropped {
                drop(leadership);
                Ok(Release::Released)
            } else {
                leadership.resign().await
            }
        });
        soon("the work is notified", work.ended()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let early = world.locks().await.lock(&name).try_acquire().await.unwrap();
        assert!(early.is_none(), "the next candidate leads while the work of the last leader goes on");
        drop(work);
        assert_eq!(soon("the leader resigns", resigning).await.unwrap().unwrap(), Release::Released);
        world.until_idle(&name).await;
    }
}

async fn what_a_leader_proclaims_is_seen(world: World) {
    let name = world.name("proclaims");
    let (locks, watcher) = (world.locks().await, world.locks().await);
    let leadership = locks.election(&name).campaign("starting").await.unwrap();
    let election = watcher.election(&name);
    let mut leaders = pin!(election.observe());
    assert_eq!(soon("the leader is seen", leaders.next()).await.unwrap().unwrap().value, "starting");
    leadership.proclaim("ready").await.unwrap();
    let seen = soon("the leader's proclamation is seen", leaders.next()).await.unwrap().unwrap();
    assert_eq!((seen.epoch, seen.value.as_str()), (leadership.epoch(), "ready"));
    let long = "x".repeat(5000);
    assert_eq!(leadership.proclaim(long).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    leadership.check().unwrap();
    leadership.resign().await.unwrap();
}

async fn what_a_leader_proclaims_is_there_when_that_is_said(world: World) {
    let name = world.name("at-once");
    let (locks, watcher) = (world.locks().await, world.locks().await);
    let leadership = locks.election(&name).campaign("0").await.unwrap();
    for said in ["1", "2", "3", "4"] {
        // Whatever is written some time later would be by now, and the next is not.
        tokio::time::sleep(Duration::from_millis(120)).await;
        leadership.proclaim(said).await.unwrap();
        let seen = watcher.election(&name).leader().await.unwrap().expect("the candidate leads");
        assert_eq!(seen.value, said);
    }
    leadership.resign().await.unwrap();
}

async fn who_shares_the_lock_leads_nobody(world: World) {
    let (name, locks) = (world.name("shared"), world.locks().await);
    let shared = locks.lock(&name).shared().acquire().await.unwrap();
    assert_eq!(locks.election(&name).leader().await.unwrap(), None);
    shared.release().await.unwrap();
}

async fn what_a_leader_proclaims_outlasts_renewals(world: World) {
    let name = world.name("goes-on");
    let (locks, watcher) = (world.locks().await, world.locks().await);
    let leadership = locks.election(&name).ttl(world.ttl()).campaign("starting").await.unwrap();
    leadership.proclaim("ready").await.unwrap();
    // Nobody says anything for longer than the lock would last: what renews it says nothing new.
    let until = Instant::now() + world.ttl() * 2;
    while Instant::now() < until {
        let seen = watcher.election(&name).leader().await.unwrap().expect("the candidate leads");
        assert_eq!((seen.epoch, seen.value.as_str()), (leadership.epoch(), "ready"));
        tokio::time::sleep(world.ttl() / 10).await;
    }
    leadership.resign().await.unwrap();
}

/// A request that comes late, over a connection that was given up, is one that comes after its successor.
async fn what_a_leader_said_before_does_not_come_back(world: World) {
    let backend = world.backend().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        if world.capabilities().check_mode(mode).is_err() {
            continue;
        }
        let mut claim = world.claim(&world.name("order"), mode);
        // Whoever compares must not stumble over what people say.
        claim.details.meta.insert("said".to_owned(), "\0 \\ \"revision\":99".to_owned());
        let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
            panic!("the lock has no other claim");
        };
        for revision in [1, 3, 2, 9, 10, 9] {
            let details = Details { revision, ..claim.details.clone() };
            let extended = backend.extend(&grant, claim.ttl, Some(&details)).await.unwrap();
            assert!(matches!(extended, Extension::Extended { .. }), "the lock is renewed nevertheless");
        }
        let silent = backend.extend(&grant, claim.ttl, None).await.unwrap();
        assert!(matches!(silent, Extension::Extended { .. }));
        let state = backend.inspect(&grant.name).await.unwrap().expect("the lock is held");
        assert_eq!(state.holders[0].details, Details { revision: 10, ..claim.details });
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}

async fn leadership_that_is_lost_cancels_the_work(world: World) {
    let name = world.name("lost");
    let (locks, operator) = (world.locks().await, world.locks().await);
    let (started, epoch) = tokio::sync::oneshot::channel();
    let leading = tokio::spawn({
        let election = locks.election(&name).ttl(world.ttl());
        async move {
            let work = async |work: tollgate_core::Work| {
                started.send(work.token()).unwrap();
                std::future::pending::<()>().await;
            };
            election.lead("", work).await
        }
    });
    let epoch = soon("the candidate leads", epoch).await.unwrap();
    operator.revoke(&name, epoch).await.unwrap();
    let error = soon("the work is cancelled", leading).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

async fn a_killed_leader_is_followed(world: World) {
    let name = world.name("killed");
    let lives = if expires(world.capabilities()) { world.ttl() } else { Duration::ZERO };
    let mut leader = Helper::start(&world).await;
    leader.campaign(&name, world.ttl(), "0");
    let mut epoch = elected(&mut leader).await;
    let mut longest = Duration::ZERO;
    for number in 1..=scale(3, 20) {
        let mut next = Helper::start(&world).await;
        next.campaign(&name, world.ttl(), &number.to_string());
        world.until(&name, 1, 1).await;
        let killed = Instant::now();
        leader.kill();
        let later = elected(&mut next).await;
        longest = longest.max(killed.elapsed());
        assert!(later > epoch, "epochs rise");
        let seen = world.locks().await.election(&name).leader().await.unwrap().expect("there is one");
        assert_eq!((seen.epoch.get(), seen.value), (later, number.to_string()));
        (leader, epoch) = (next, later);
    }
    println!(
        "{}: a killed leader was followed within {longest:?}, its ttl is {lives:?}",
        world.subject_name()
    );
    // What is promised, and room for a machine that does other things beside.
    let slack = Duration::from_secs(if is_soak() { 1 } else { 4 });
    assert!(longest < lives + slack, "it took {longest:?} to follow a dead leader");
}

async fn elected(candidate: &mut Helper) -> u64 {
    match candidate.reply().await {
        Reply::Granted(epoch) => epoch,
        other => panic!("the helper was not elected: {other:?}"),
    }
}
