//! What is asked for is checked before, and what is granted is checked before anybody gets it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_core::capabilities::{Liveness, Queue};
use tollgate_core::guarantees::{Basis, Guarantees};
use tollgate_core::{Details, Fault, Guarantee, PartyHandle};
use tollgate_testkit::fakes::polling::{self, PollingBackend};

use crate::support::*;

/// Counts attempts.
struct Counting(Arc<dyn Backend>, Arc<AtomicUsize>);

impl Layer for Counting {
    fn inner(&self) -> &dyn Backend {
        &*self.0
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.try_acquire(claim)
    }
}

#[tokio::test]
async fn nothing_repeats_an_attempt_whose_outcome_is_unknown() {
    for trouble in [Trouble::ReplyLost, Trouble::RequestLost] {
        let (sent, faulty) = (Arc::new(AtomicUsize::new(0)), Faulty::new(memory()));
        let backend = altered(Counting(faulty.clone(), sent.clone()));
        faulty.next(Operation::TryAcquire, trouble);
        let polled = tollgate_core::wait::poll(&*backend, &*clock(), &claim("lock", ms(5000))).await;
        expect_kind(polled, ErrorKind::Indeterminate);
        assert_eq!(sent.load(Ordering::SeqCst), 1, "{trouble:?}");
    }
}

#[tokio::test]
async fn a_busy_lock_is_asked_for_again() {
    let (sent, engine) = (Arc::new(AtomicUsize::new(0)), memory());
    let held = granted(&*engine, &claim("lock", ms(5000))).await;
    let backend = altered(Counting(engine.clone(), sent.clone()));
    let polled = tokio::spawn(async move {
        tollgate_core::wait::poll(&*backend, &*clock(), &claim("lock", ms(5000))).await
    });
    eventually("it tries again", || async { (sent.load(Ordering::SeqCst) > 2).then_some(()) }).await;
    engine.release(&held).await.unwrap();
    soon("it gets in", polled).await.unwrap().unwrap();
}

/// Fails unless `capabilities` give exactly what their rows, queue and liveness say.
fn gives_what_it_declares(capabilities: &Capabilities) {
    let gives = |guarantee| match capabilities.require(guarantee) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            false
        }
    };
    for fault in Fault::ALL {
        let row = capabilities.guarantees.rows().iter().find(|row| row.fault == fault).unwrap();
        let (kept, by_time) = match row.exclusion {
            Basis::Kept | Basis::Absent => (true, true),
            Basis::Time => (false, true),
            Basis::Broken => (false, false),
        };
        assert_eq!(gives(Guarantee::Exclusion(fault)), kept, "{row:?}");
        assert_eq!(gives(Guarantee::ExclusionByTime(fault)), by_time, "{row:?}");
        let tokens = matches!(row.tokens, Basis::Kept | Basis::Absent);
        assert_eq!(gives(Guarantee::Tokens(fault)), tokens, "{row:?}");
    }
    assert_eq!(gives(Guarantee::Fifo), capabilities.queue == Queue::Fifo);
    assert_eq!(gives(Guarantee::Expiry), capabilities.liveness != Liveness::Process);
}

#[tokio::test]
async fn require_gives_what_is_declared_and_nothing_else() {
    let polling: Arc<dyn Backend> = Arc::new(PollingBackend::new(&polling::start(), clock()));
    for backend in [memory(), session(), polling] {
        gives_what_it_declares(backend.capabilities());
    }
    let declared = memory().capabilities().clone();
    let bases = [Basis::Kept, Basis::Time, Basis::Broken, Basis::Absent];
    // Each fault in turn is the odd one out: nobody answers from a neighbour's row.
    for odd in Fault::ALL {
        for (usual, other) in bases.into_iter().flat_map(|one| bases.map(|two| (one, two))) {
            let row = |fault| if fault == odd { (other, usual) } else { (usual, other) };
            gives_what_it_declares(&Capabilities { guarantees: Guarantees::new(row), ..declared.clone() });
        }
    }
    for queue in [Queue::Fifo, Queue::Polling] {
        for liveness in [Liveness::Process, Liveness::Session, Liveness::Lease] {
            gives_what_it_declares(&Capabilities { queue, liveness, ..declared.clone() });
        }
    }
}

#[tokio::test]
async fn a_paused_holder_of_memory_is_not_promised_exclusion() {
    let locks = locks(&memory());
    expect_kind(locks.require(Guarantee::Exclusion(Fault::HolderPaused)), ErrorKind::Unsupported);
    locks.require(Guarantee::Tokens(Fault::HolderPaused)).unwrap();
    locks.require(Guarantee::Fifo).unwrap();
    locks.require(Guarantee::Expiry).unwrap();
}

#[tokio::test]
async fn meta_that_is_too_large_is_refused() {
    let locks = locks(&memory());
    let most = "x".repeat(Details::MAX_META_BYTES - 1);
    let fits = locks.lock("lock").meta("k", most.clone()).acquire().await.unwrap();
    fits.release().await.unwrap();
    let request = locks.lock("lock").meta("k", most + "x");
    expect_kind(request.acquire().await, ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn a_ttl_with_a_part_of_a_millisecond_is_refused() {
    let locks = locks(&memory());
    for micros in [500, 500_500, 1_000_001] {
        let request = locks.lock("lock").ttl(Duration::from_micros(micros));
        expect_kind(request.try_acquire().await, ErrorKind::InvalidArgument);
    }
}

#[tokio::test]
async fn a_grant_that_has_run_out_never_becomes_a_guard() {
    /// Its grants have run out by the time they arrive.
    struct TooLate(Arc<dyn Backend>);
    impl TooLate {
        fn late(grant: Grant) -> Grant {
            Grant { deadline: Deadline::At(clock().now() - ms(1)), ..grant }
        }
    }
    impl Layer for TooLate {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
            Box::pin(async { Ok(Attempt::Granted(Self::late(granted(&*self.0, claim).await))) })
        }
        fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
            Box::pin(async { self.0.acquire(claim).await.map(Self::late) })
        }
    }
    let backend = memory();
    let locks = locks(&altered(TooLate(backend.clone())));
    let request = locks.lock("late").ttl(Duration::from_secs(60));
    expect_kind(request.clone().acquire().await, ErrorKind::Lost);
    until_idle(&*backend, "late").await;
    expect_kind(request.try_acquire().await, ErrorKind::Lost);
    until_idle(&*backend, "late").await;
}

#[tokio::test]
async fn a_party_keeps_its_age_though_its_first_claim_was_busy() {
    let locks = locks(&memory());
    let held = locks.lock("lock").acquire().await.unwrap();
    let party = PartyHandle::new();
    let busy = locks.lock("lock").party(&party).wait(ms(50)).try_acquire().await.unwrap();
    assert!(busy.is_none());
    let age = party.stamp().age.expect("the engine has seen its first claim");
    held.release().await.unwrap();
    locks.lock("lock").party(&party).acquire().await.unwrap().release().await.unwrap();
    assert_eq!(party.stamp().age, Some(age), "a retry does not make it younger");
}
