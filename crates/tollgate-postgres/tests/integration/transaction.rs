//! Locks that live exactly as long as the user's own transaction, beside leases of the same names.

use std::time::{Duration, Instant};

use crate::support::servers::{client, locks, secs, shared, until_blocked, value};
use tokio_postgres::IsolationLevel;
use tollgate_core::{ErrorKind, LockRequest, Release};
use tollgate_postgres::{TransactionLocks, lock_in_transaction, try_lock_in_transaction};
use tollgate_testkit::engines::{self, Config};

#[tokio::test]
async fn a_transaction_and_a_lease_keep_each_other_out() {
    let locks = locks(shared()).await;
    let mut client = client(shared()).await;
    let guard = locks.lock("both").acquire().await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    assert_eq!(try_lock_in_transaction(&mut transaction, "both").await.unwrap(), None);
    let token = guard.token();
    guard.release().await.unwrap();
    // The transaction was not harmed by asking.
    let inside = try_lock_in_transaction(&mut transaction, "both").await.unwrap().expect("it is free");
    assert!(inside > token);
    assert!(locks.lock("both").try_acquire().await.unwrap().is_none());
    assert!(locks.lock("both").shared().try_acquire().await.unwrap().is_none());
    transaction.commit().await.unwrap();
    let after = locks.lock("both").try_acquire().await.unwrap().expect("the transaction is over");
    assert!(after.token() > inside);
    after.release().await.unwrap();
}

#[tokio::test]
async fn readers_permits_and_waiters_keep_a_transaction_out() {
    let locks = locks(shared()).await;
    let mut client = client(shared()).await;
    let mut transaction = client.transaction().await.unwrap();
    for request in [locks.lock("crowd").shared(), locks.lock("crowd").permit(3)] {
        let guard = request.acquire().await.unwrap();
        assert_eq!(try_lock_in_transaction(&mut transaction, "crowd").await.unwrap(), None);
        guard.release().await.unwrap();
        let mut inner = transaction.transaction().await.unwrap();
        try_lock_in_transaction(&mut inner, "crowd").await.unwrap().expect("it is free");
        // A savepoint is enough to give it back.
        inner.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_gets_in_after_a_commit_and_after_a_rollback() {
    let locks = locks(shared()).await;
    for commits in [true, false] {
        let mut client = client(shared()).await;
        let mut transaction = client.transaction().await.unwrap();
        let inside = lock_in_transaction(&mut transaction, "waited-for").await.unwrap();
        let waiting = tokio::spawn(locks.lock("waited-for").ttl(secs(30)).acquire());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiting.is_finished(), "two were in at once");
        if commits { transaction.commit().await } else { transaction.rollback().await }.unwrap();
        let guard = tokio::time::timeout(secs(20), waiting).await.expect("it gets in").unwrap().unwrap();
        assert!(guard.token() > inside);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_transaction_waits_for_a_lease_and_for_another_transaction() {
    let locks = locks(shared()).await;
    let guard = locks.lock("chain").acquire().await.unwrap();
    let (first_in, is_in) = tokio::sync::oneshot::channel();
    let (let_go, go) = tokio::sync::oneshot::channel::<()>();
    let first = tokio::spawn(async move {
        let mut client = client(shared()).await;
        let mut transaction = client.transaction().await.unwrap();
        let token = lock_in_transaction(&mut transaction, "chain").await.unwrap();
        first_in.send(token).unwrap();
        go.await.unwrap();
        transaction.commit().await.unwrap();
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let inside = tokio::time::timeout(secs(20), is_in).await.expect("it gets in").unwrap();
    assert!(inside > token);
    let mut next = client(shared()).await;
    let (look, pid) = (client(shared()).await, value(&next, "pg_backend_pid()").await);
    let second = tokio::spawn(async move {
        let mut transaction = next.transaction().await.unwrap();
        lock_in_transaction(&mut transaction, "chain").await.unwrap()
    });
    until_blocked(&look, &pid).await;
    let_go.send(()).unwrap();
    first.await.unwrap();
    assert!(tokio::time::timeout(secs(20), second).await.expect("it gets in").unwrap() > inside);
}

#[tokio::test]
async fn a_limit_ends_the_wait_and_not_the_transaction() {
    let locks = locks(shared()).await;
    let (mut one, mut other) = (client(shared()).await, client(shared()).await);
    let guard = locks.lock("limited").acquire().await.unwrap();
    let mut first = one.transaction().await.unwrap();
    let within = TransactionLocks::new();
    let limit = Duration::from_millis(150);
    let started = Instant::now();
    assert_eq!(within.lock_within(&mut first, "limited", limit).await.unwrap(), None);
    assert!(started.elapsed() >= limit);
    guard.release().await.unwrap();
    within.lock_within(&mut first, "limited", limit).await.unwrap().expect("it is free");
    let mut second = other.transaction().await.unwrap();
    let started = Instant::now();
    assert_eq!(within.lock_within(&mut second, "limited", limit).await.unwrap(), None);
    assert!(started.elapsed() >= limit && started.elapsed() < secs(10), "{:?}", started.elapsed());
    let row = second.query_one("select current_setting('lock_timeout')", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "0", "the transaction's own settings are as they were");
}

#[tokio::test]
async fn nobody_loses_a_lock_to_a_transaction_that_sits_on_one() {
    let locks = locks(shared()).await;
    let mut client = client(shared()).await;
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(locks.lock(format!("kept/{n}")).ttl(secs(3)).acquire().await.unwrap());
    }
    let mut transaction = client.transaction().await.unwrap();
    lock_in_transaction(&mut transaction, "sat-on").await.unwrap();
    // Those who wait for it keep their connections busy, and no renewal may stand behind them.
    let pass = async |request: LockRequest| request.acquire().await.unwrap().release().await.unwrap();
    let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(pass(locks.lock("sat-on").ttl(secs(1))))).collect();
    // It also asks, again and again, for what others hold.
    let until = Instant::now() + secs(9);
    while Instant::now() < until {
        assert_eq!(try_lock_in_transaction(&mut transaction, "kept/7").await.unwrap(), None);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for guard in &guards {
        guard.check().expect("it was renewed");
    }
    transaction.rollback().await.unwrap();
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    // In any order: nobody has a place in a queue while a transaction is in.
    for waiter in waiting {
        tokio::time::timeout(secs(20), waiter).await.expect("it gets in").unwrap();
    }
}

/// A renewal that was in time and is on its way to the disk while the old end passes.
#[tokio::test]
async fn a_reader_that_is_being_renewed_keeps_transactions_out() {
    let locks = locks(shared()).await;
    let (mut renewal, mut client) = (client(shared()).await, client(shared()).await);
    let guard = locks.lock("renewing").shared().ttl(secs(1)).no_renew().acquire().await.unwrap();
    // Nobody gives it back.
    let _grant = guard.into_grant().unwrap();
    let committing = renewal.transaction().await.unwrap();
    let renew = "update tollgate.claims set expires = clock_timestamp() + interval '1 minute' where name = 'renewing'";
    assert_eq!(committing.execute(renew, &[]).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let mut transaction = client.transaction().await.unwrap();
    assert_eq!(try_lock_in_transaction(&mut transaction, "renewing").await.unwrap(), None);
    committing.commit().await.unwrap();
    assert_eq!(try_lock_in_transaction(&mut transaction, "renewing").await.unwrap(), None);
}

#[tokio::test]
async fn the_lock_of_a_client_that_is_gone_is_free() {
    let locks = locks(shared()).await;
    let (mut gone, operator) = (client(shared()).await, client(shared()).await);
    let pid = value(&gone, "pg_backend_pid()").await;
    let mut transaction = gone.transaction().await.unwrap();
    lock_in_transaction(&mut transaction, "orphan").await.unwrap();
    let waiting = tokio::spawn(locks.lock("orphan").acquire());
    value(&operator, &format!("pg_terminate_backend({pid})")).await;
    let guard = tokio::time::timeout(secs(20), waiting).await.expect("it gets in").unwrap().unwrap();
    guard.release().await.unwrap();
    let error = lock_in_transaction(&mut transaction, "orphan").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn an_expired_lease_does_not_come_back_after_the_transaction() {
    let locks = locks(shared()).await;
    let mut client = client(shared()).await;
    let guard = locks.lock("expired").ttl(secs(1)).no_renew().acquire().await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    let token = lock_in_transaction(&mut transaction, "expired").await.unwrap();
    assert!(token > guard.token());
    transaction.commit().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    let next = locks.lock("expired").try_acquire().await.unwrap().expect("nobody is in");
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_does_not_see_who_is_in_is_refused() {
    let _tables = locks(shared()).await;
    let mut client = client(shared()).await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let mut transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        let refused = lock_in_transaction(&mut transaction, "above").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
        transaction.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn two_that_wait_for_each_other_are_told() {
    let _tables = locks(shared()).await;
    let (mut one, mut other) = (client(shared()).await, client(shared()).await);
    let mut first = one.transaction().await.unwrap();
    let mut second = other.transaction().await.unwrap();
    lock_in_transaction(&mut first, "knot/a").await.unwrap();
    lock_in_transaction(&mut second, "knot/b").await.unwrap();
    // The one that is ended gives way to the other.
    let (a, b) = tokio::join!(
        async {
            let asked = lock_in_transaction(&mut first, "knot/b").await;
            first.rollback().await.unwrap();
            asked
        },
        async {
            let asked = lock_in_transaction(&mut second, "knot/a").await;
            second.rollback().await.unwrap();
            asked
        }
    );
    let kinds = [a, b].map(|asked| asked.err().map(|error| error.kind()));
    assert!(
        kinds == [Some(ErrorKind::Deadlock), None] || kinds == [None, Some(ErrorKind::Deadlock)],
        "{kinds:?}"
    );
}

#[tokio::test]
async fn a_database_without_the_tables_is_told_from_a_lock_that_is_taken() {
    let mut client = client(shared()).await;
    let mut transaction = client.transaction().await.unwrap();
    let elsewhere = TransactionLocks::in_schema("nowhere", "").unwrap();
    let error = elsewhere.try_lock(&mut transaction, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("sql-schema"), "{error}");
}

/// The statement that takes a free lock draws its token before it has the row: it must draw again if somebody was in since.
#[tokio::test]
async fn tokens_do_not_fall_where_leases_and_transactions_stand_before_one_row() {
    let locks = locks(shared()).await;
    locks.lock("mixed").acquire().await.unwrap().release().await.unwrap();
    let (mut one, mut other) = (client(shared()).await, client(shared()).await);
    let (lease, looks) = (client(shared()).await, client(shared()).await);
    let (second_pid, lease_pid) =
        (value(&other, "pg_backend_pid()").await, value(&lease, "pg_backend_pid()").await);
    let mut first = one.transaction().await.unwrap();
    lock_in_transaction(&mut first, "mixed").await.unwrap();
    let mut second = other.transaction().await.unwrap();
    let standing = async {
        let token = lock_in_transaction(&mut second, "mixed").await.unwrap();
        second.commit().await.unwrap();
        i64::try_from(token.get()).unwrap()
    };
    let taking = async {
        until_blocked(&looks, &second_pid).await;
        let sql = "update tollgate.locks set owner = gen_random_uuid(), token = nextval('tollgate.tokens'), \
                   expires = clock_timestamp() + interval '1 s' \
                   where name = 'mixed' and owner is null and waiters = 0 and holders = 0 returning token";
        lease.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
    };
    let leaving = async {
        let watching = client(shared()).await;
        until_blocked(&watching, &lease_pid).await;
        first.commit().await.unwrap();
    };
    let (earlier, later, ()) = tokio::join!(standing, taking, leaving);
    assert!(later > earlier, "{later} was granted after {earlier}");
}

#[tokio::test]
async fn who_asks_again_in_one_transaction_gets_the_same_token() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&engine).await;
    let (mut one, mut other) = (client(&engine).await, client(&engine).await);
    let mut tx = one.transaction().await.unwrap();
    let first = lock_in_transaction(&mut tx, "a").await.unwrap();
    assert_eq!(lock_in_transaction(&mut tx, "a").await.unwrap(), first);
    assert!(lock_in_transaction(&mut tx, "b").await.unwrap() > first, "another lock has another token");
    assert_eq!(try_lock_in_transaction(&mut tx, "a").await.unwrap(), Some(first));
    let mut inner = tx.transaction().await.unwrap();
    assert_eq!(lock_in_transaction(&mut inner, "a").await.unwrap(), first, "also after a savepoint");
    let undone = lock_in_transaction(&mut inner, "c").await.unwrap();
    assert_eq!(lock_in_transaction(&mut inner, "c").await.unwrap(), undone);
    inner.rollback().await.unwrap();
    let guard = locks.lock("c").try_acquire().await.unwrap().expect("that was undone");
    assert_eq!(try_lock_in_transaction(&mut tx, "c").await.unwrap(), None, "it is somebody else's now");
    let mut late = other.transaction().await.unwrap();
    assert_eq!(try_lock_in_transaction(&mut late, "a").await.unwrap(), None, "nobody else gets it");
    tx.commit().await.unwrap();
    let second = lock_in_transaction(&mut late, "a").await.unwrap();
    late.commit().await.unwrap();
    // Of one connection, too: another transaction is another passage.
    let mut next = other.transaction().await.unwrap();
    let third = lock_in_transaction(&mut next, "a").await.unwrap();
    assert!(first < second && second < third);
    next.commit().await.unwrap();
    guard.release().await.unwrap();
}
