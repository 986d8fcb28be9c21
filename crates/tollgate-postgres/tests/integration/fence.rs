//! Tables that refuse those who have lost their lock.

use crate::support::servers::{client, client_at, client_of, shared, state, until_blocked, value};
use tollgate_core::{ErrorKind, Fence};
use tollgate_postgres::{NO_TOKEN, PostgresFence, STALE};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Postgres, Proxy};

/// So many exclusive tokens, each larger than the last.
async fn exclusive<const N: usize>() -> [Fence; N] {
    let locks = tollgate::connect("memory:fence").await.unwrap();
    let mut fences = Vec::new();
    for _ in 0..N {
        let guard = locks.lock(format!("{:p}", &fences)).acquire().await.unwrap();
        fences.push(guard.fence().unwrap());
        guard.release().await.unwrap();
    }
    fences.try_into().unwrap()
}

/// A shared token that is larger than all before.
async fn reader() -> Fence {
    let locks = tollgate::connect("memory:fence").await.unwrap();
    let guard = locks.lock("read").shared().acquire().await.unwrap();
    guard.fence().unwrap()
}

/// A client of a database with the fence and a table of its own.
async fn with_table(table: &str) -> (tokio_postgres::Client, PostgresFence) {
    let client = client(shared()).await;
    let fence = PostgresFence::new();
    fence.install(&client).await.unwrap();
    client
        .batch_execute(&format!("create table {table} (n int); insert into {table} values (0)"))
        .await
        .unwrap();
    (client, fence)
}

#[tokio::test]
async fn to_admit_costs_a_statement_and_no_commit() {
    let (plain, fence) = with_table("costs").await;
    let proxy = Proxy::start(shared().address(), Postgres);
    let mut client = client_at(proxy.address(), "postgres").await;
    let write = client.prepare("update costs set n = n + 1").await.unwrap();
    let mut asked = [0; 2];
    // The first of a connection asks for more.
    for token in exclusive::<3>().await {
        for (fenced, asked) in asked.iter_mut().enumerate() {
            proxy.take_counts();
            let mut transaction = client.transaction().await.unwrap();
            if fenced == 1 {
                fence.admit(&mut transaction, "costs", token).await.unwrap();
            }
            transaction.execute(&write, &[]).await.unwrap();
            transaction.commit().await.unwrap();
            *asked = proxy.take_counts().requests;
        }
    }
    assert_eq!(asked[1] - asked[0], 1, "with the fence {}, without {}", asked[1], asked[0]);
    let mark = value(&plain, "select xmin from tollgate.fences where resource = 'costs'").await;
    assert_eq!(mark, value(&plain, "select xmin from costs").await, "both are one transaction's");
}

#[tokio::test]
async fn a_transaction_with_a_stale_token_writes_nothing() {
    let (mut client, fence) = with_table("stale").await;
    let [old, new] = exclusive().await;
    for (token, n) in [(old, 1), (old, 2), (new, 3), (new, 4)] {
        let mut transaction = client.transaction().await.unwrap();
        fence.admit(&mut transaction, "stale", token).await.unwrap();
        transaction.execute("update stale set n = $1", &[&n]).await.unwrap();
        transaction.commit().await.unwrap();
    }
    let mut transaction = client.transaction().await.unwrap();
    let refused = fence.admit(&mut transaction, "stale", old).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
    let said = refused.to_string();
    assert!(said.contains(&old.to_string()) && said.contains(&new.to_string()), "{said}");
    // Who does not listen cannot write all the same.
    assert_eq!(state(transaction.execute("update stale set n = 99", &[]).await), "25P02");
    // tokio-postgres takes a commit that PostgreSQL answered with a rollback for a commit.
    let _ = transaction.commit().await;
    assert_eq!(value(&client, "select n from stale").await, "4");
    // Another resource has a mark of its own.
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, "stale/7", old).await.unwrap();
}

#[tokio::test]
async fn a_reader_is_let_in_above_the_mark_and_raises_nothing() {
    let (mut client, fence) = with_table("readers").await;
    let early = reader().await;
    let [writer] = exclusive().await;
    let late = reader().await;
    for (token, kind) in [
        (early, None),
        (late, None),
        (writer, None),
        (late, None),
        (early, Some(ErrorKind::Lost)),
        (writer, None),
    ] {
        let mut transaction = client.transaction().await.unwrap();
        let admitted = fence.admit(&mut transaction, "readers", token).await;
        assert_eq!(admitted.err().map(|error| error.kind()), kind, "{token}");
        let _ = transaction.commit().await;
    }
}

#[tokio::test]
async fn readers_go_together_and_a_writer_waits_until_they_are_done() {
    let (mut first, fence) = with_table("together").await;
    let (mut second, mut third, look) =
        (client(shared()).await, client(shared()).await, client(shared()).await);
    let reads = reader().await;
    let [writes] = exclusive().await;
    // The first admission makes the row; until it is there for all, others wait for it.
    let mut transaction = first.transaction().await.unwrap();
    fence.admit(&mut transaction, "together", reads).await.unwrap();
    transaction.commit().await.unwrap();

    let mut one = first.transaction().await.unwrap();
    fence.admit(&mut one, "together", reads).await.unwrap();
    let mut two = second.transaction().await.unwrap();
    fence.admit(&mut two, "together", reads).await.unwrap();
    let pid = value(&third, "pg_backend_pid()").await;
    let writing = tokio::spawn({
        let fence = fence.clone();
        async move {
            let mut transaction = third.transaction().await.unwrap();
            fence.admit(&mut transaction, "together", writes).await.unwrap();
            transaction.commit().await.unwrap();
        }
    });
    until_blocked(&look, &pid).await;
    one.commit().await.unwrap();
    two.rollback().await.unwrap();
    writing.await.unwrap();
    let mut again = first.transaction().await.unwrap();
    assert_eq!(fence.admit(&mut again, "together", reads).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn an_admission_that_is_rolled_back_raises_nothing() {
    let (mut client, fence) = with_table("undone").await;
    let [old, new] = exclusive().await;
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, "undone", new).await.unwrap();
    transaction.rollback().await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, "undone", old).await.unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn whoever_waited_for_a_newer_holder_is_refused_also_with_a_fixed_snapshot() {
    let (mut first, fence) = with_table("waited").await;
    let look = client(shared()).await;
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let [old, new] = exclusive().await;
        let mut newer = first.transaction().await.unwrap();
        fence.admit(&mut newer, "waited", new).await.unwrap();
        let mut stale = client(shared()).await;
        let pid = value(&stale, "pg_backend_pid()").await;
        let waits = tokio::spawn({
            let fence = fence.clone();
            let begin = format!("set session characteristics as transaction isolation level {isolation}");
            async move {
                stale.batch_execute(&begin).await.unwrap();
                let mut transaction = stale.transaction().await.unwrap();
                fence.admit(&mut transaction, "waited", old).await
            }
        });
        until_blocked(&look, &pid).await;
        newer.commit().await.unwrap();
        let refused = waits.await.unwrap().unwrap_err();
        // With a fixed snapshot PostgreSQL itself has the transaction begin again.
        assert!(matches!(refused.kind(), ErrorKind::Lost | ErrorKind::Unavailable), "{isolation}: {refused}");
        assert_eq!(
            refused.kind() == ErrorKind::Lost,
            isolation == "read committed",
            "{isolation}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_guarded_table_refuses_who_shows_no_token() {
    let (mut client, fence) = with_table("guarded").await;
    let [token, later] = exclusive().await;
    client.batch_execute("select tollgate.guard('guarded')").await.unwrap();
    let writes = [
        "insert into guarded values (1)",
        "update guarded set n = 7",
        "delete from guarded",
        "truncate guarded",
        "copy guarded from '/dev/null'",
        "update guarded set n = 7 where false",
    ];
    for write in writes {
        assert_eq!(state(client.batch_execute(write).await), NO_TOKEN, "{write}");
    }
    // Neither somebody else's resource nor an earlier transaction's admission counts, nor one that was undone.
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, "other", token).await.unwrap();
    assert_eq!(state(transaction.batch_execute(writes[0]).await), NO_TOKEN);
    transaction.rollback().await.unwrap();
    for write in writes {
        let mut transaction = client.transaction().await.unwrap();
        fence.admit(&mut transaction, "other", token).await.unwrap();
        fence.admit(&mut transaction, "guarded", token).await.unwrap();
        fence.admit(&mut transaction, "another", token).await.unwrap();
        transaction.batch_execute(write).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(state(client.batch_execute(write).await), NO_TOKEN, "{write}");
    }
    let mut transaction = client.transaction().await.unwrap();
    let mut inner = transaction.savepoint("nested").await.unwrap();
    fence.admit(&mut inner, "guarded", later).await.unwrap();
    inner.rollback().await.unwrap();
    assert_eq!(state(transaction.batch_execute(writes[0]).await), NO_TOKEN);
    transaction.rollback().await.unwrap();
    // What a session sets, by mistake or from an old transaction, is not an admission.
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, "guarded", later).await.unwrap();
    let row = transaction.query_one("select current_setting('tollgate_fence.admitted')", &[]).await.unwrap();
    let noted: String = row.get(0);
    transaction.commit().await.unwrap();
    client.execute("select set_config('tollgate_fence.admitted', $1, false)", &[&noted]).await.unwrap();
    assert_eq!(state(client.batch_execute(writes[0]).await), NO_TOKEN);
    client.batch_execute("select tollgate.unguard('guarded')").await.unwrap();
    client.batch_execute(writes[0]).await.unwrap();
}

#[tokio::test]
async fn a_guarded_table_is_not_written_to_by_those_who_share_the_lock() {
    let (mut first, fence) = with_table("only_read").await;
    let mut second = client(shared()).await;
    let reads = reader().await;
    let [writes] = exclusive().await;
    first.batch_execute("select tollgate.guard('only_read')").await.unwrap();
    let write = "update only_read set n = n + 1";
    // The first admission makes the row; until it is there for all, others wait for it.
    first.batch_execute("select tollgate.admit_shared('only_read', 1)").await.unwrap();
    let mut one = first.transaction().await.unwrap();
    let mut two = second.transaction().await.unwrap();
    for transaction in [&mut one, &mut two] {
        fence.admit(transaction, "only_read", reads).await.unwrap();
    }
    for transaction in [&one, &two] {
        assert_eq!(state(transaction.batch_execute(write).await), NO_TOKEN);
    }
    one.rollback().await.unwrap();
    two.rollback().await.unwrap();
    // Who has the lock alone may read as a reader, too.
    let mut transaction = first.transaction().await.unwrap();
    fence.admit(&mut transaction, "only_read", writes).await.unwrap();
    fence.admit(&mut transaction, "only_read", Fence::shown(writes.token(), false)).await.unwrap();
    transaction.batch_execute(write).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(value(&first, "select n from only_read").await, "1");
}

#[tokio::test]
async fn a_fence_of_an_earlier_version_is_brought_up_to_date() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let client = client(&engine).await;
    let fence = PostgresFence::new();
    fence.install(&client).await.unwrap();
    let earlier = "select tollgate.admit('r', 7); comment on table tollgate.fences is 'tollgate fence 1'; \
                   create or replace function tollgate.admit_shared(resource text, token bigint) returns void \
                   language sql as 'select tollgate.admitted($1)'";
    client.batch_execute(earlier).await.unwrap();
    fence.install(&client).await.unwrap();
    let stale = client.batch_execute("select tollgate.admit_shared('r', 6)").await;
    assert_eq!(state(stale), STALE, "the function is the new one, and the mark is kept");
}

#[tokio::test]
async fn a_guard_for_each_row_writes_what_was_to_be_written() {
    let (mut client, fence) = with_table("each_row").await;
    let trigger = "create trigger guarded before insert or update or delete on each_row for each row \
                   execute function tollgate.guarded()";
    client.batch_execute(trigger).await.unwrap();
    assert_eq!(state(client.batch_execute("insert into each_row values (1)").await), NO_TOKEN);
    let [token] = exclusive().await;
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, "each_row/42", token).await.unwrap();
    transaction
        .batch_execute("insert into each_row values (1), (2); update each_row set n = n + 10")
        .await
        .unwrap();
    transaction.batch_execute("delete from each_row where n = 11").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(value(&client, "select string_agg(n::text, ',' order by n) from each_row").await, "10,12");
}

#[tokio::test]
async fn plain_sql_says_the_same() {
    let (client, _) = with_table("plain").await;
    for (call, expected) in [
        ("tollgate.admit('plain', 7)", None),
        ("tollgate.admit('plain', 7)", None),
        ("tollgate.admit(resource => 'plain', token => 9)", None),
        ("tollgate.admit('plain', 8)", Some(STALE)),
        ("tollgate.admit_shared('plain', 8)", Some(STALE)),
        ("tollgate.admit_shared('plain', 20)", None),
        ("tollgate.admit('plain', 10)", None),
        ("tollgate.admit('plain', null)", Some(NO_TOKEN)),
        ("tollgate.admit_shared('plain', null)", Some(NO_TOKEN)),
        ("tollgate.admit('plain', 0)", Some("22003")),
        ("tollgate.admit('plain', 9007199254740992)", Some("22003")),
    ] {
        let answer = client.batch_execute(&format!("select {call}")).await;
        assert_eq!(
            answer.err().map(|error| error.code().unwrap().code().to_owned()).as_deref(),
            expected,
            "{call}"
        );
    }
}

#[tokio::test]
async fn many_install_at_once_and_who_may_not_is_told_what_to_do() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let admin = client(&engine).await;
    admin.batch_execute("create role app login").await.unwrap();
    let app = client_of(&engine, "app").await;
    let refused = PostgresFence::new().install(&app).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.to_string().contains("tollgate sql-schema"), "{refused}");

    let installs = (0..10).map(|_| async {
        let client = client(&engine).await;
        PostgresFence::new().install(&client).await
    });
    for installed in futures_util::future::join_all(installs).await {
        installed.unwrap();
    }
    let [token] = exclusive().await;
    let mut app = app;
    let mut transaction = app.transaction().await.unwrap();
    let refused = PostgresFence::new().admit(&mut transaction, "a", token).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    transaction.rollback().await.unwrap();
    admin
        .batch_execute(
            "grant usage on schema tollgate to app; grant select, insert, update on tollgate.fences to app",
        )
        .await
        .unwrap();
    // It is there, so nothing has to be created.
    PostgresFence::new().install(&app).await.unwrap();
    let mut transaction = app.transaction().await.unwrap();
    PostgresFence::new().admit(&mut transaction, "a", token).await.unwrap();
    transaction.commit().await.unwrap();

    let mut elsewhere = client(&engine).await;
    let other = PostgresFence::in_schema("team_a").unwrap();
    let mut transaction = elsewhere.transaction().await.unwrap();
    assert_eq!(other.admit(&mut transaction, "a", token).await.unwrap_err().kind(), ErrorKind::Config);
    transaction.rollback().await.unwrap();
    other.install(&elsewhere).await.unwrap();
    let mut transaction = elsewhere.transaction().await.unwrap();
    other.admit(&mut transaction, "a", token).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(value(&elsewhere, "select count(*) from team_a.fences").await, "1");
    assert_eq!(PostgresFence::in_schema("a.b").unwrap_err().kind(), ErrorKind::InvalidArgument);
}
