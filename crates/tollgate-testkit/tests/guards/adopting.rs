//! A grant from elsewhere becomes a guard only if it may be believed here.

use tollgate_core::OwnerId;
use tollgate_core::capabilities::Adopt;

use crate::support::*;

const TTL: Duration = ms(600);

/// A grant that was taken elsewhere and that nobody renews.
async fn detached(backend: &Arc<dyn Backend>, ttl: Duration) -> Grant {
    locks(backend).lock("lock").ttl(ttl).no_renew().acquire().await.unwrap().into_grant().unwrap()
}

#[tokio::test]
async fn a_grants_own_deadline_counts_while_the_engine_is_out_of_reach() {
    for trouble in [Trouble::Refused, Trouble::RequestLost] {
        let backend = memory();
        let grant = detached(&backend, ms(5000)).await;
        let Deadline::At(deadline) = grant.deadline else { panic!("a lease has an end") };
        let (locks, faulty) = troubled(&backend);
        faulty.always(Operation::Extend, trouble);
        let guard = locks.adopt(grant).await.unwrap();
        assert_eq!(guard.deadline(), Some(deadline), "{trouble:?}");
        guard.check().unwrap();
        faulty.heal();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_grant_whose_deadline_has_passed_is_not_adopted_unasked() {
    let backend = memory();
    let grant = detached(&backend, TTL).await;
    let (locks, faulty) = troubled(&backend);
    faulty.always(Operation::Extend, Trouble::Refused);
    tokio::time::sleep(TTL).await;
    assert!(locks.adopt(grant).await.is_err());
}

#[tokio::test]
async fn a_grant_of_another_boot_is_not_adopted_unasked() {
    let backend = memory();
    let grant = Grant { deadline: Deadline::Unknown, ..detached(&backend, ms(5000)).await };
    let (locks, faulty) = troubled(&backend);
    faulty.always(Operation::Extend, Trouble::Refused);
    expect_kind(locks.adopt(grant.clone()).await, ErrorKind::Unavailable);
    faulty.heal();
    let guard = locks.adopt(grant).await.expect("asked, the engine knows it");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_of_another_engine_is_not_held() {
    let grant = detached(&memory(), ms(5000)).await;
    let adopted = locks(&session()).adopt(grant).await;
    expect_kind(adopted, ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn a_grant_that_the_engine_does_not_know_is_lost() {
    let grant = detached(&memory(), ms(5000)).await;
    expect_kind(locks(&memory()).adopt(grant).await, ErrorKind::Lost);
}

#[tokio::test]
async fn adopting_ends_though_the_engine_is_silent() {
    let backend = memory();
    let grant = detached(&backend, TTL).await;
    let (locks, faulty) = troubled(&backend);
    faulty.always(Operation::Extend, Trouble::Silence);
    // Whether it ends in a guard that is about to be lost or in an error is all the same.
    let _ = within(ms(3000), "adopt ends", locks.adopt(grant)).await;
}

#[tokio::test]
async fn what_cannot_leave_its_session_or_process_is_not_adopted() {
    /// A memory engine that lets fewer grants go.
    struct Keeps(Arc<dyn Backend>, Capabilities);
    impl Layer for Keeps {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn capabilities(&self) -> &Capabilities {
            &self.1
        }
    }
    let backend = memory();
    for (adopt, standalone, is_adopted) in
        [(Adopt::Never, true, false), (Adopt::Standalone, false, false), (Adopt::Standalone, true, true)]
    {
        let capabilities = Capabilities { adopt, ..backend.capabilities().clone() };
        let keeps = locks(&altered(Keeps(backend.clone(), capabilities)));
        let grant = granted(&*backend, &Claim { standalone, ..claim("lock", ms(5000)) }).await;
        let adopted = keeps.adopt(grant.clone()).await;
        if is_adopted {
            adopted.unwrap().release().await.unwrap();
        } else {
            expect_kind(adopted, ErrorKind::Unsupported);
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released, "it was left alone");
        }
    }
}

#[tokio::test]
async fn nothing_is_adopted_after_close() {
    let backend = memory();
    let grant = detached(&backend, ms(5000)).await;
    let locks = locks(&backend);
    locks.close().await;
    expect_kind(locks.adopt(grant).await, ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn a_grant_that_nobody_keeps_is_extended_and_released_without_adopting_it() {
    let backend = memory();
    let locks = locks(&backend);
    let grant = detached(&backend, TTL).await;
    let Deadline::At(before) = grant.deadline else { panic!("a lease has an end") };
    let longer = locks.extend_grant(&grant, ms(20_000)).await.unwrap();
    let Deadline::At(after) = longer.deadline else { panic!("a lease has an end") };
    assert!(after > before + ms(15_000) && longer.ttl == ms(20_000));
    expect_kind(locks.extend_grant(&longer, ms(0)).await, ErrorKind::InvalidArgument);
    let stranger = Grant { owner: OwnerId::random(), ..longer.clone() };
    assert_eq!(locks.release_grant(&stranger).await.unwrap(), Release::AlreadyLost);
    assert_eq!(locks.release_grant(&longer).await.unwrap(), Release::Released);
    assert_eq!(locks.release_grant(&longer).await.unwrap(), Release::AlreadyLost);
    expect_kind(locks.extend_grant(&longer, TTL).await, ErrorKind::Lost);
}

#[tokio::test]
async fn an_extension_that_nobody_answered_is_an_error() {
    let backend = memory();
    let grant = detached(&backend, ms(5000)).await;
    let (locks, faulty) = troubled(&backend);
    faulty.always(Operation::Extend, Trouble::Refused);
    expect_kind(locks.extend_grant(&grant, ms(5000)).await, ErrorKind::Unavailable);
    faulty.always(Operation::Extend, Trouble::Silence);
    expect_kind(locks.extend_grant(&grant, ms(600)).await, ErrorKind::Timeout);
    faulty.heal();
    assert_eq!(locks.release_grant(&grant).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_lock_that_hangs_on_no_descriptor_is_not_bequeathed_but_released() {
    let backend = memory();
    let locks = locks(&backend);
    expect_kind(locks.lock("lock").acquire().await.unwrap().bequeath(), ErrorKind::Unsupported);
    let guard = locks.lock("lock").wait(ms(5000)).acquire().await.unwrap();
    let grant = guard.into_grant().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    expect_kind(locks.inherit(grant.clone(), socket.into()).await, ErrorKind::Unsupported);
    assert_eq!(locks.release_grant(&grant).await.unwrap(), Release::Released, "it was left alone");
}
