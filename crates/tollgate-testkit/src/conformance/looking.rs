//! What can be seen from outside, and what cannot.

use futures_util::StreamExt;

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(holders_and_waiters_are_seen_and_owner_ids_are_not),
    case!(listing_finds_what_is_held_under_a_prefix),
];

async fn holders_and_waiters_are_seen_and_owner_ids_are_not(world: World) {
    let name = world.name("seen");
    let backend = world.backend().await;
    let mut claim = world.claim(&name, Mode::Exclusive);
    claim.details.meta.insert("job".into(), "nightly".into());
    let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    let waiter = tokio::spawn(world.locks().await.lock(&name).meta("job", "waits").acquire());
    world.until(&name, 1, 1).await;
    let state = world.look(&name).await.expect("a held lock is seen");
    let holder = &state.holders[0];
    assert_eq!((holder.mode, holder.token), (Mode::Exclusive, Some(grant.token)));
    assert_eq!(holder.details, claim.details);
    assert_eq!(holder.details.pid, std::process::id());
    assert_eq!(holder.expires_in.is_some(), expires(world.capabilities()));
    if queues(world.capabilities()) {
        assert_eq!(state.waiters[0].details.meta["job"], "waits");
    }
    let json = serde_json::to_string(&state).unwrap();
    assert!(!json.contains(&grant.owner.to_hex()), "an owner id was shown: {json}");
    waiter.abort();
    backend.release(&grant).await.unwrap();
    world.until_idle(&name).await;
    assert_eq!(world.look(&name).await, None, "an idle lock is seen");
}

async fn listing_finds_what_is_held_under_a_prefix(world: World) {
    let locks = world.locks().await;
    let mut guards = Vec::new();
    for name in ["list/a", "list/b", "list/b/c", "other"] {
        guards.push(locks.lock(world.name(name)).acquire().await.unwrap());
    }
    let list = |prefix: String| {
        let locks = locks.clone();
        async move {
            let found: Vec<_> =
                locks.list(&prefix).map(|lock| lock.expect("a lock is listed").name).collect().await;
            let mut found: Vec<String> = found.iter().map(ToString::to_string).collect();
            found.sort();
            found
        }
    };
    let names = |names: &[&str]| names.iter().map(|name| world.name(name).to_string()).collect::<Vec<_>>();
    assert_eq!(list(world.name("list/").to_string()).await, names(&["list/a", "list/b", "list/b/c"]));
    assert_eq!(list(world.name("list/b").to_string()).await, names(&["list/b", "list/b/c"]));
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(list(world.prefix().to_owned()).await, names(&[]));
}
