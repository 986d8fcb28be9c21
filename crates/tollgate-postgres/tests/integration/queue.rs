//! Crowds on one lock: nobody gets in on an old look, everybody gets a turn, and it costs the same for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{client, locks, number, url};
use tollgate_core::{GuardState, Locks};
use tollgate_testkit::crowd::pass_one_by_one;
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Postgres, Proxy};
use tollgate_testkit::scale::scale;

/// Takes a lock while somebody has locked its row, and lets both go on at once.
async fn both(reader: &Locks, writer: &Locks, name: &str, inside: &Arc<AtomicUsize>) {
    let enter = |locks: &Locks, shared: bool| {
        let request = locks.lock(name);
        let (request, inside) = (if shared { request.shared() } else { request }, inside.clone());
        tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "a reader and a writer were in together");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        })
    };
    let (one, other) = (enter(reader, true), enter(writer, false));
    one.await.unwrap();
    other.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_and_a_writer_who_come_while_the_row_is_locked_are_never_in_together() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let reader = locks(&url(engine.address())).await.unwrap();
    let writer = locks(&url(engine.address())).await.unwrap();
    let mut sitter = client(engine.address()).await;
    let inside = Arc::<AtomicUsize>::default();
    let rounds = 1000;
    for round in 0..rounds {
        let name = format!("pair/{}", round % 3);
        // The row is there, and free.
        if round < 3 {
            reader.lock(&name).acquire().await.unwrap().release().await.unwrap();
        }
        let sits = sitter.transaction().await.unwrap();
        sits.execute("select from tollgate.locks where name = $1 for update", &[&name]).await.unwrap();
        let entering = both(&reader, &writer, &name, &inside);
        let leaving = async {
            // Both stand before the row by then, mostly.
            tokio::time::sleep(Duration::from_millis(2)).await;
            sits.commit().await.unwrap();
        };
        tokio::join!(entering, leaving);
    }
    println!("a reader and a writer before one locked row, {rounds} times: never both");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_who_sits_on_a_locks_row_makes_nobody_lose_it() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_secs(2);
    let held = locks.lock("sat/on").ttl(ttl).acquire().await.unwrap();
    let shared = locks.lock("sat/shared").ttl(ttl).shared().acquire().await.unwrap();
    let other = locks.lock("sat/other").ttl(ttl).acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("sat/on").ttl(ttl).acquire());
    let mut sitter = client(engine.address()).await;
    let sits = sitter.transaction().await.unwrap();
    sits.execute("select from tollgate.locks where name in ('sat/on', 'sat/shared') for update", &[])
        .await
        .unwrap();
    // Five times the ttl.
    let sitting = Duration::from_secs(10);
    let end = tokio::time::Instant::now() + sitting;
    while tokio::time::Instant::now() < end {
        for guard in [&held, &shared, &other] {
            assert!(!matches!(guard.state(), GuardState::Lost { .. }), "{:?} was lost", guard.name());
        }
        assert!(!waits.is_finished(), "nobody else is in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let state = locks.inspect("sat/on").await.unwrap().unwrap();
    assert_eq!(state.holders.len(), 1, "who looks sees the holder");
    sits.commit().await.unwrap();
    tokio::time::sleep(ttl).await;
    held.check().unwrap();
    let token = held.token();
    held.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(5), waits).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(
        number(engine.address(), "select count(*) from tollgate.renewals"),
        0,
        "and it was cleaned up"
    );
}

/// How often the waiter at this place looks at most: each third of its ttl, and the first of them every second.
fn looks_each_second(place: usize) -> f64 {
    1.0 / place.min(10) as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_however_many_wait() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let proxy = Proxy::start(engine.address(), Postgres);
    let locks = locks(&url(proxy.address())).await.unwrap();
    let mut costs = Vec::new();
    // The first crowd makes the connections and prepares the statements.
    for crowd in [20, 20, scale(300, 1000)] {
        proxy.take_counts();
        let began = Instant::now();
        pass_one_by_one(&locks, &format!("crowd/{crowd}"), crowd).await;
        // Whoever waits looks now and then, however slow the machine is: that is a price of time, not of hand-overs.
        let looks = began.elapsed().as_secs_f64() * (1..=crowd).map(looks_each_second).sum::<f64>();
        let asked = proxy.take_counts().requests as f64;
        println!(
            "{crowd} waiters: {:.2} statements for each, of which at most {looks:.0} looked",
            asked / crowd as f64
        );
        // Those of a small crowd look before it is their turn only if the machine stands still.
        costs.push(if crowd > 20 { asked - looks } else { asked } / crowd as f64);
    }
    assert!(costs[2] < costs[1] * 1.2, "{costs:?}");
    let connections = number(
        engine.address(),
        "select count(*) from pg_stat_activity where application_name like 'tollgate%'",
    );
    assert!(connections <= 10, "{connections} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_held_locks_have_no_connection_each() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(locks.lock(format!("many/{number}")).acquire().await.unwrap());
    }
    let connections = number(
        engine.address(),
        "select count(*) from pg_stat_activity where application_name like 'tollgate%'",
    );
    println!("1000 locks held with {connections} connections");
    assert!(connections <= 10, "{connections} connections");
    assert_eq!(number(engine.address(), "select count(*) from tollgate.locks where owner is not null"), 1000);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_somebody_made_wrong_heals() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let reader = locks.lock("healed").shared().acquire().await.unwrap();
    assert_eq!(crate::support::psql(engine.address(), "delete from tollgate.claims"), "");
    let writer = locks.lock("healed").wait(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(writer.token() > reader.token());
    writer.release().await.unwrap();
}

/// Whoever is let in may be told as soon as that is committed: then it has to be on the disk. `synchronous_commit` is what the
/// transaction that let it in will commit with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_lets_another_in_waits_for_the_disk_and_one_that_only_queues_up_does_not() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let _locks = locks(&url(engine.address())).await.unwrap();
    let mut someone = client(engine.address()).await;
    let acquire = "select outcome::text from tollgate.acquire('handed', gen_random_uuid(), \
                   'x', 1, 60000, 1, 'nobody', '{}', true, null)";
    let mut ask = async || {
        let transaction = someone.transaction().await.unwrap();
        transaction.query_one(acquire, &[]).await.unwrap();
        let sync = "select current_setting('synchronous_commit')";
        let said: String = transaction.query_one(sync, &[]).await.unwrap().get(0);
        transaction.commit().await.unwrap();
        said
    };
    assert_eq!(ask().await, "on", "it is in");
    assert_eq!(ask().await, "off", "it queues up, and nobody was let in");
    // The holder's time is over.
    crate::support::psql(engine.address(), "update tollgate.locks set expires = now()");
    assert_eq!(ask().await, "on", "it queues up, and the one before it is in since");
    assert_eq!(number(engine.address(), "select waiters from tollgate.locks where name = 'handed'"), 1);
}
