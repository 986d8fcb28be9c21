//! A grant can leave the process that got it, where the backend says so.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_grant_can_be_adopted_by_another_client if |c| c.adopt != Adopt::Never),
    case!(a_lost_grant_cannot_be_adopted if |c| c.adopt != Adopt::Never),
    case!(a_shared_session_cannot_be_taken_along if |c| c.adopt == Adopt::Standalone),
    case!(a_grant_that_cannot_leave_says_so if |c| c.adopt == Adopt::Never),
    case!(a_lock_goes_from_hand_to_hand_without_being_free if |c| c.liveness == Liveness::Process && !networked(c)),
];

async fn a_grant_can_be_adopted_by_another_client(world: World) {
    let name = world.name("adopted");
    let (mine, theirs) = (world.locks().await, world.locks().await);
    let guard = mine.lock(&name).ttl(world.ttl()).no_renew().acquire().await.unwrap();
    let (token, view) = (guard.token(), guard.lease());
    let json = serde_json::to_string(&guard.into_grant().unwrap()).unwrap();
    expect_kind(view.fence(), ErrorKind::Lost);
    assert!(!json.contains("://"), "a grant never contains a URL: {json}");
    let adopted = theirs.adopt(serde_json::from_str(&json).unwrap()).await.unwrap();
    assert_eq!(adopted.token(), token);
    tokio::time::sleep(world.ttl() * 2).await;
    adopted.check().expect("an adopted lock is renewed");
    assert!(
        mine.lock(&name).try_acquire().await.unwrap().is_none(),
        "an adopted lock was granted to another client"
    );
    assert_eq!(adopted.release().await.unwrap(), Release::Released);
}

async fn a_lost_grant_cannot_be_adopted(world: World) {
    let name = world.name("orphan");
    let locks = world.locks().await;
    let grant = locks.lock(&name).ttl(world.ttl()).no_renew().acquire().await.unwrap().into_grant().unwrap();
    let next = soon("the abandoned lock becomes free", locks.lock(&name).acquire()).await.unwrap();
    expect_kind(locks.adopt(grant).await, ErrorKind::Lost);
    next.check().unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

async fn a_shared_session_cannot_be_taken_along(world: World) {
    let name = world.name("shared-session");
    let guard = world.locks().await.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    expect_kind(guard.into_grant(), ErrorKind::Unsupported);
    world.until_idle(&name).await;
}

async fn a_grant_that_cannot_leave_says_so(world: World) {
    let name = world.name("stays");
    let locks = world.locks().await;
    expect_kind(locks.lock(&name).acquire().await.unwrap().into_grant(), ErrorKind::Unsupported);
    world.until_idle(&name).await;
    let backend = world.backend().await;
    let claim = world.claim(&name, Mode::Exclusive);
    let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    expect_kind(locks.adopt(grant.clone()).await, ErrorKind::Unsupported);
    backend.release(&grant).await.unwrap();
}

async fn a_lock_goes_from_hand_to_hand_without_being_free(world: World) {
    let name = world.name("bequeathed");
    let (mine, theirs) = (world.locks().await, world.locks().await);
    let guard = mine.lock(&name).acquire().await.unwrap();
    let (token, view) = (guard.token(), guard.lease());
    let is_taken = async || mine.lock(&name).try_acquire().await.unwrap().is_none();
    let (grant, lock) = guard.bequeath().unwrap();
    expect_kind(view.fence(), ErrorKind::Lost);
    assert!(is_taken().await, "a bequeathed lock was granted to another client");
    let heir = theirs.inherit(grant.clone(), lock).await.unwrap();
    assert_eq!((heir.token(), heir.name()), (token, &grant.name));
    assert!(is_taken().await, "an inherited lock was granted to another client");
    assert_eq!(heir.release().await.unwrap(), Release::Released);
    let next = soon("the lock becomes free", mine.lock(&name).acquire()).await.unwrap();
    let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
    expect_kind(theirs.inherit(grant, other.into()).await, ErrorKind::Lost);
    next.check().unwrap();
}
