//! A lock that goes from one process's hands into another's without being free in between.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use tollgate_core::{
    Backend, ErrorKind, Grant, GuardState, Locks, LossCause, Mode, Release, Revocation, Token,
};

/// A second copy of a descriptor, as a parent keeps one.
fn copy(lock: &OwnedFd) -> OwnedFd {
    lock.try_clone().unwrap()
}

#[test]
fn a_bequeathed_lock_is_held_by_its_descriptor_alone_until_it_is_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (open(dir.path()), open(dir.path()));
    run(async {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(1).unwrap()] {
            let grant = take(&from, "a", mode).await;
            let lock = from.bequeath(&grant).unwrap();
            assert_eq!(from.release(&grant).await.unwrap(), Release::AlreadyLost, "it is forgotten here");
            assert!(!is_free(&to, "a", Mode::Exclusive).await, "it is held all the same");
            to.inherit(&grant, lock).await.unwrap();
            assert!(!is_free(&from, "a", Mode::Exclusive).await);
            assert_eq!(to.release(&grant).await.unwrap(), Release::Released);
            assert!(is_free(&from, "a", Mode::Exclusive).await);
        }
        let grant = take(&from, "a", Mode::Exclusive).await;
        drop(from.bequeath(&grant).unwrap());
        // The thread that took the lock may have it open for a moment longer.
        until("nobody has it open any more", async || is_free(&from, "a", Mode::Exclusive).await).await;
    });
}

#[test]
fn only_a_descriptor_that_holds_this_very_grant_is_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let lost = async |grant: &Grant, lock| {
            assert_eq!(backend.inherit(grant, lock).await.unwrap_err().kind(), ErrorKind::Lost);
        };
        let other = take(&backend, "b", Mode::Exclusive).await;
        let grant = take(&backend, "a", Mode::Exclusive).await;
        assert!(backend.inherit(&grant, backend.descriptor(&grant).unwrap()).await.is_err(), "held here");
        let lock = backend.bequeath(&grant).unwrap();
        lost(&grant, backend.descriptor(&other).unwrap()).await;
        lost(&other_token(&grant), copy(&lock)).await;
        let path = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lock)));
        let opened = std::fs::File::options().read(true).write(true).open(path.unwrap()).unwrap();
        lost(&grant, opened.into()).await;
        assert!(!is_free(&backend, "a", Mode::Exclusive).await, "a refusal leaves the lock alone");
        backend.inherit(&grant, copy(&lock)).await.unwrap();
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        lost(&grant, lock).await;
        assert_eq!(backend.release(&other).await.unwrap(), Release::Released);
    });
}

fn other_token(grant: &Grant) -> Grant {
    let token = Token::new(grant.token.get() + 1).unwrap();
    Grant { token, ..grant.clone() }
}

#[test]
fn a_file_that_was_removed_is_not_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let grant = take(&backend, "a", Mode::Exclusive).await;
        let lock = backend.bequeath(&grant).unwrap();
        for file in std::fs::read_dir(dir.path().join("locks")).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        assert_eq!(backend.inherit(&grant, lock).await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn those_who_look_see_the_heir_and_what_the_first_holder_said() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let mut claim = claim("a", Mode::Exclusive);
        claim.details.pid = 1;
        claim.details.meta.insert("job".into(), "x".repeat(1000));
        let grant = backend.acquire(&claim).await.unwrap();
        let lock = backend.bequeath(&grant).unwrap();
        backend.inherit(&grant, lock).await.unwrap();
        let seen = look(&backend, "a").await.unwrap().holders.remove(0);
        assert_eq!((seen.details.pid, seen.token), (std::process::id(), Some(grant.token)));
        assert_eq!(seen.details.since_ms, claim.details.since_ms);
        assert_eq!(seen.details.meta, claim.details.meta);
    });
}

#[test]
fn an_heir_that_is_asked_to_leave_hears_of_it_and_waiters_are_served_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let from = Locks::new(Arc::new(open(dir.path()))).unwrap();
    let to = Locks::new(Arc::new(open(dir.path()))).unwrap();
    run(async {
        let guard = from.lock("a").acquire().await.unwrap();
        let lease = guard.lease();
        let (grant, lock) = guard.bequeath().unwrap();
        assert_eq!(lease.state(), GuardState::Lost { cause: LossCause::Released });
        let heir = to.inherit(grant.clone(), lock).await.unwrap();
        assert_eq!((heir.token(), heir.state()), (grant.token, GuardState::Held));
        let waits = from.lock("a").acquire();
        let breaks = async {
            let lost = heir.lost();
            let (revoked, ()) = tokio::join!(from.revoke("a", grant.token), async {
                assert_eq!(lost.await, LossCause::Revoked);
                assert_eq!(heir.release().await.unwrap(), Release::AlreadyLost);
            });
            assert_eq!(revoked.unwrap(), Revocation::Revoked);
        };
        let (next, ()) = tokio::join!(waits, breaks);
        assert!(next.unwrap().token() > grant.token);
    });
}

#[test]
fn an_inheritance_that_is_dropped_at_any_await_leaves_nothing_held() {
    let dir = tempfile::tempdir().unwrap();
    let locks = Locks::new(Arc::new(open(dir.path()))).unwrap();
    let watcher = open(dir.path());
    run(async {
        for polls in 0..3 {
            let (grant, lock) = locks.lock("a").acquire().await.unwrap().bequeath().unwrap();
            let mut inherits = Box::pin(locks.inherit(grant, lock));
            for _poll in 0..polls {
                tokio::select! {
                    biased;
                    guard = &mut inherits => { drop(guard); break }
                    () = tokio::time::sleep(Duration::from_micros(50)) => {}
                }
            }
            drop(inherits);
            until("it is free", async || is_free(&watcher, "a", Mode::Exclusive).await).await;
        }
    });
}
