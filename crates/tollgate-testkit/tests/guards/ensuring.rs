//! `ensure` says yes only if the time is there, and always says something.

use crate::support::*;

const TTL: Duration = ms(2000);
const WANTED: Duration = ms(1900);

#[tokio::test]
async fn ensure_fails_when_the_engine_refuses_and_the_guard_is_in_jeopardy() {
    let (locks, faulty) = troubled(&memory());
    let guard = locks.lock("refused").ttl(TTL).no_renew().acquire().await.unwrap();
    faulty.always(Operation::Extend, Trouble::Refused);
    eventually("too little is left", || async { (guard.remaining()? < WANTED).then_some(()) }).await;
    expect_kind(guard.ensure(WANTED).await, ErrorKind::Unavailable);
    assert_eq!(guard.state(), GuardState::Jeopardy);
    faulty.heal();
    guard.ensure(WANTED).await.expect("a live lock can be renewed");
    assert_eq!(guard.state(), GuardState::Held);
}

#[tokio::test]
async fn ensure_says_lost_by_the_deadline_though_the_engine_is_silent() {
    let (locks, faulty) = troubled(&memory());
    faulty.always(Operation::Extend, Trouble::Silence);
    let guard = locks.lock("silent").ttl(ms(600)).acquire().await.unwrap();
    tokio::time::sleep(ms(100)).await;
    expect_kind(within(ms(3000), "ensure ends", guard.ensure(ms(560))).await, ErrorKind::Lost);
}

#[tokio::test]
async fn ensure_fails_when_max_hold_leaves_too_little() {
    let guard = locks(&memory()).lock("short").ttl(TTL).max_hold(TTL / 2).acquire().await.unwrap();
    expect_kind(guard.ensure(WANTED).await, ErrorKind::Timeout);
    guard.check().expect("it is still held");
}
