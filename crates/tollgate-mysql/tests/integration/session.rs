//! `?style=session`: excludes with other programs, ends with its connection, and tells names apart that the server does not.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{config, connection};
use mysql_async::prelude::Queryable;
use tollgate_core::{BootClock, ErrorKind, Keeper, Locks, LossCause, OwnerId, Release, Revocation};
use tollgate_mysql::{MySqlConfig, SessionBackend};
use tollgate_testkit::engines::{self, Config};

async fn session_locks(address: std::net::SocketAddr) -> Locks {
    let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
    Locks::new(Arc::new(SessionBackend::connect(config(address), clock).await.unwrap())).unwrap()
}

fn shared() -> std::net::SocketAddr {
    engines::shared(&Config::mariadb()).address()
}

fn name() -> String {
    format!("orders/{}", &OwnerId::random().to_hex()[..16])
}

async fn asked(connection: &mut mysql_async::Conn, question: &str, name: &str) -> Option<i64> {
    connection.exec_first::<Option<i64>, _, _>(question, (name,)).await.unwrap().flatten()
}

#[tokio::test]
async fn a_plain_get_lock_of_another_program_and_ours_exclude_each_other() {
    let (locks, mut other, name) = (session_locks(shared()).await, connection(shared()).await, name());
    let guard = locks.lock(&name).acquire().await.unwrap();
    assert_eq!(asked(&mut other, "select get_lock(?, 0)", &name).await, Some(0));
    guard.release().await.unwrap();
    assert_eq!(asked(&mut other, "select get_lock(?, 0)", &name).await, Some(1));
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    let seen = locks.inspect(&name).await.unwrap().expect("somebody holds it");
    assert_eq!(
        seen.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(),
        [None],
        "a stranger has no token"
    );
    let waiting = tokio::spawn(locks.lock(&name).acquire());
    assert_eq!(asked(&mut other, "select release_lock(?)", &name).await, Some(1));
    let guard = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn names_that_the_server_takes_for_each_other_are_two_locks() {
    let locks = session_locks(shared()).await;
    let (lower, long) = (name(), name().repeat(4));
    let first = locks.lock(&lower).acquire().await.unwrap();
    let second = locks.lock(lower.to_uppercase()).try_acquire().await.unwrap().expect("another name");
    let third = locks.lock(format!("{long}a")).acquire().await.unwrap();
    let fourth = locks.lock(format!("{long}b")).try_acquire().await.unwrap().expect("another name");
    for guard in [first, second, third, fourth] {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_lock_whose_connection_is_killed_is_lost_loudly() {
    let (locks, mut other, name) = (session_locks(shared()).await, connection(shared()).await, name());
    let guard = locks.lock(&name).acquire().await.unwrap();
    let holder = asked(&mut other, "select is_used_lock(?)", &name).await.unwrap();
    other.query_drop(format!("kill connection {holder}")).await.unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await.unwrap();
    assert_eq!(lost, LossCause::SessionEnded);
    assert_eq!(guard.fence().unwrap_err().kind(), ErrorKind::Lost);
    let next = locks.lock(&name).acquire().await.unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_held_for_a_moment_is_written_down_nowhere() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (locks, mut other) = (session_locks(engine.address()).await, connection(engine.address()).await);
    for _ in 0..50 {
        locks.lock("quick").acquire().await.unwrap().release().await.unwrap();
    }
    let rows: Option<i64> = other.query_first("select count(*) from tollgate_sessions").await.unwrap();
    assert_eq!(rows, Some(0));
    let guard = locks.lock("slow").meta("who", "me").acquire().await.unwrap();
    let seen = locks.inspect("slow").await.unwrap().expect("it is held");
    assert_eq!(seen.holders[0].token, Some(guard.token()));
    assert_eq!(seen.holders[0].details.meta["who"], "me");
    guard.release().await.unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while other.query_first::<i64, _>("select count(*) from tollgate_sessions").await.unwrap() != Some(0) {
        assert!(std::time::Instant::now() < until, "what is over is still written down");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn after_a_restart_tokens_rise_and_holders_have_heard_of_it() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = session_locks(engine.address()).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    engine.restart(engines::Data::Kept).unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.unwrap();
    assert_eq!(lost, LossCause::SessionEnded);
    let next = locks.lock("a").acquire().await.unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn an_operators_marks_go_with_their_grants_and_by_force_too_the_holder_says_revoked() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (locks, operator) = (session_locks(engine.address()).await, session_locks(engine.address()).await);
    let mut other = connection(engine.address()).await;
    let heard = async |guard: &tollgate_core::Guard| {
        tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.unwrap()
    };
    // What a holder left that died a day ago.
    other.query_drop("insert into tollgate_revocations values ('dead', 1)").await.unwrap();
    let asked = locks.lock("asked").acquire().await.unwrap();
    assert_eq!(operator.revoke("asked", asked.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(heard(&asked).await, LossCause::Revoked);
    assert!(operator.lock("asked").try_acquire().await.unwrap().is_none(), "it has not left");
    let forced = locks.lock("forced").acquire().await.unwrap();
    assert_eq!(operator.revoke_by_force("forced", forced.token()).await.unwrap(), Revocation::Revoked);
    operator.lock("forced").try_acquire().await.unwrap().expect("it is out").release().await.unwrap();
    assert_eq!(heard(&forced).await, LossCause::Revoked);
    asked.release().await.unwrap();
    assert_eq!(forced.release().await.unwrap(), Release::AlreadyLost);
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while other.query_first::<i64, _>("select count(*) from tollgate_revocations").await.unwrap() != Some(0) {
        assert!(std::time::Instant::now() < until, "a mark outlives its grant");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn marks_that_cannot_be_read_cost_no_lock() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (locks, mut other) = (session_locks(engine.address()).await, connection(engine.address()).await);
    let guard = locks.lock("kept").acquire().await.unwrap();
    other.query_drop("rename table tollgate_revocations to taken_away").await.unwrap();
    // Longer than the server may be silent.
    tokio::time::sleep(Duration::from_secs(8)).await;
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// With and without the right to see the connections of others.
#[tokio::test]
async fn a_user_that_may_not_end_a_connection_can_ask_its_holder_to_leave() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (locks, mut root) = (session_locks(engine.address()).await, connection(engine.address()).await);
    root.query_drop("create user app@localhost").await.unwrap();
    root.query_drop("grant select, insert, update, delete, execute on test.* to app@localhost")
        .await
        .unwrap();
    for sees_others in [false, true] {
        if sees_others {
            root.query_drop("grant process on *.* to app@localhost").await.unwrap();
        }
        let config = MySqlConfig::from_url(&format!("mariadb://app@{}/test", engine.address())).unwrap();
        let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
        let app = Locks::new(Arc::new(SessionBackend::connect(config, clock).await.unwrap())).unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        let refused = app.revoke_by_force("a", guard.token()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(refused.to_string().contains("asked to leave"), "{refused}");
        assert_eq!(app.revoke("a", guard.token()).await.unwrap(), Revocation::Pending);
        let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.unwrap();
        assert_eq!(lost, LossCause::Revoked);
        assert!(app.lock("a").try_acquire().await.unwrap().is_none(), "it has not left");
        guard.release().await.unwrap();
    }
}
