//! Tables that refuse stale tokens: the rule, in transactions of users' own, and the guard for those who forget.

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tollgate_core::{ErrorKind, Fence, Locks, OwnerId};
use tollgate_mysql::MySqlFence;
use tollgate_testkit::clients;
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{MySql, Proxy};

/// A connection to the shared MariaDB with a table of its own, and locks there.
async fn ground() -> (Conn, Locks, String) {
    let address = engines::shared(&Config::mariadb()).address();
    let (mut connection, locks) = (connection(address).await, locks(config(address)).await);
    let table = format!("total_{}", &OwnerId::random().to_hex()[..12]);
    connection.query_drop(format!("create table {table} (n int) engine=innodb")).await.unwrap();
    connection.query_drop(format!("insert into {table} values (0)")).await.unwrap();
    (connection, locks, table)
}

async fn writer(locks: &Locks, name: &str) -> Fence {
    let guard = locks.lock(name).acquire().await.unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    fence
}

async fn reader(locks: &Locks, name: &str) -> Fence {
    let guard = locks.lock(name).shared().acquire().await.unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    fence
}

/// Admits, writes and commits, or says why not.
async fn write(
    connection: &mut Conn,
    fence: &MySqlFence,
    by: Fence,
    table: &str,
) -> tollgate_core::Result<()> {
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    match fence.admit(&mut tx, by).await {
        Ok(()) => {
            tx.query_drop(format!("update {table} set n = n + 1")).await.unwrap();
            tx.commit().await.unwrap();
            Ok(())
        }
        Err(error) => {
            tx.rollback().await.unwrap();
            Err(error)
        }
    }
}

async fn total(connection: &mut Conn, table: &str) -> i64 {
    connection.query_first(format!("select n from {table}")).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_stale_token_is_refused_and_an_equal_one_is_not() {
    let (mut connection, locks, table) = ground().await;
    let (old, new) = (writer(&locks, &table).await, writer(&locks, &table).await);
    let fence = MySqlFence::around(&table).unwrap();
    write(&mut connection, &fence, old, &table).await.unwrap();
    write(&mut connection, &fence, new, &table).await.unwrap();
    write(&mut connection, &fence, new, &table).await.unwrap();
    let error = write(&mut connection, &fence, old, &table).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let words = error.to_string();
    assert!(words.contains(&old.to_string()) && words.contains(&new.to_string()), "{words}");
    assert_eq!(total(&mut connection, &table).await, 3);
}

#[tokio::test]
async fn an_admission_that_was_rolled_back_never_was() {
    let (mut connection, locks, table) = ground().await;
    let (old, new) = (writer(&locks, &table).await, writer(&locks, &table).await);
    let fence = MySqlFence::around(&table).unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    fence.admit(&mut tx, new).await.unwrap();
    tx.rollback().await.unwrap();
    write(&mut connection, &fence, old, &table).await.unwrap();
}

#[tokio::test]
async fn a_reader_raises_nothing() {
    let (mut connection, locks, table) = ground().await;
    let first = writer(&locks, &table).await;
    let early = reader(&locks, &table).await;
    let second = writer(&locks, &table).await;
    let late = reader(&locks, &table).await;
    let fence = MySqlFence::around(&table).unwrap();
    write(&mut connection, &fence, late, &table).await.unwrap();
    write(&mut connection, &fence, first, &table).await.unwrap();
    write(&mut connection, &fence, early, &table).await.unwrap();
    write(&mut connection, &fence, second, &table).await.unwrap();
    assert_eq!(write(&mut connection, &fence, early, &table).await.unwrap_err().kind(), ErrorKind::Lost);
    write(&mut connection, &fence, late, &table).await.unwrap();
}

#[tokio::test]
async fn an_older_snapshot_does_not_let_a_stale_token_in() {
    let (mut connection, locks, table) = ground().await;
    let (old, new) = (writer(&locks, &table).await, writer(&locks, &table).await);
    let fence = MySqlFence::around(&table).unwrap();
    write(&mut connection, &fence, old, &table).await.unwrap();
    let address = engines::shared(&Config::mariadb()).address();
    let mut late = crate::support::connection(address).await;
    let mut tx = late.start_transaction(TxOpts::default()).await.unwrap();
    let seen: Option<i64> = tx.query_first(format!("select n from {table}")).await.unwrap();
    assert_eq!(seen, Some(1));
    write(&mut connection, &fence, new, &table).await.unwrap();
    let error = fence.admit(&mut tx, old).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "its snapshot is from before: {error}");
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn who_forgets_to_admit_cannot_write_to_a_guarded_table() {
    let (mut connection, locks, table) = ground().await;
    let fence = MySqlFence::around(&table).unwrap();
    fence.guard(&mut connection, &table).await.unwrap();
    fence.guard(&mut connection, &table).await.expect("it can be said again");
    let token = writer(&locks, &table).await;
    write(&mut connection, &fence, token, &table).await.unwrap();
    for statement in ["update TABLE set n = 7", "insert into TABLE values (7)", "delete from TABLE"] {
        let statement = statement.replace("TABLE", &table);
        let plain = connection.query_drop(&statement).await.unwrap_err().to_string();
        assert!(plain.contains("TG428"), "{plain}");
        // On the connection that has admitted before.
        let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
        let forgot = tx.query_drop(&statement).await.unwrap_err().to_string();
        assert!(forgot.contains("TG428"), "{forgot}");
        tx.rollback().await.unwrap();
    }
    let other = MySqlFence::around("another resource").unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    other.admit(&mut tx, token).await.unwrap();
    let elsewhere = tx.query_drop(format!("update {table} set n = 7")).await.unwrap_err().to_string();
    assert!(elsewhere.contains("TG428"), "{elsewhere}");
    fence.admit(&mut tx, token).await.unwrap();
    tx.query_drop(format!("update {table} set n = n + 1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(total(&mut connection, &table).await, 2);
}

#[tokio::test]
async fn a_guarded_table_is_not_written_to_by_those_who_share_the_lock() {
    let (mut connection, locks, table) = ground().await;
    let fence = MySqlFence::around(&table).unwrap();
    fence.guard(&mut connection, &table).await.unwrap();
    let (reads, writes) = (reader(&locks, &table).await, writer(&locks, &table).await);
    let mut other = crate::support::connection(engines::shared(&Config::mariadb()).address()).await;
    // The first admission makes the row; until it is there for all, others wait for it.
    let mut first = connection.start_transaction(TxOpts::default()).await.unwrap();
    fence.admit(&mut first, reads).await.unwrap();
    first.commit().await.unwrap();
    let mut one = connection.start_transaction(TxOpts::default()).await.unwrap();
    let mut two = other.start_transaction(TxOpts::default()).await.unwrap();
    for tx in [&mut one, &mut two] {
        fence.admit(tx, reads).await.unwrap();
        // Not an update: the row that was to be changed stays locked when the trigger refuses.
        let refused = tx.query_drop(format!("insert into {table} values (7)")).await.unwrap_err().to_string();
        assert!(refused.contains("TG428"), "{refused}");
    }
    two.rollback().await.unwrap();
    // Who has the lock alone may read as a reader, too.
    fence.admit(&mut one, writes).await.unwrap();
    fence.admit(&mut one, Fence::shown(writes.token(), false)).await.unwrap();
    one.query_drop(format!("update {table} set n = n + 1")).await.unwrap();
    one.commit().await.unwrap();
    assert_eq!(total(&mut connection, &table).await, 1);
}

#[tokio::test]
async fn a_fence_of_an_earlier_version_is_brought_up_to_date() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let mut connection = connection(engine.address()).await;
    let fence = MySqlFence::around("r").unwrap();
    fence.install(&mut connection).await.unwrap();
    connection.query_drop("alter procedure tollgate_check comment ''").await.unwrap();
    connection.query_drop("drop procedure tollgate_begun").await.unwrap();
    connection.query_drop("insert into tollgate_fences values ('r', 7)").await.unwrap();
    fence.install(&mut connection).await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    let stale = Fence::shown(tollgate_core::Token::new(6).unwrap(), false);
    assert_eq!(fence.admit(&mut tx, stale).await.unwrap_err().kind(), ErrorKind::Lost, "its marks are kept");
}

/// A transaction that ended without anybody saying so: a statement that changes a table commits it.
#[tokio::test]
async fn a_guarded_table_refuses_who_is_stale_by_now_though_it_was_admitted() {
    let (mut connection, locks, table) = ground().await;
    let fence = MySqlFence::around(&table).unwrap();
    fence.guard(&mut connection, &table).await.unwrap();
    let (old, new) = (writer(&locks, &table).await, writer(&locks, &table).await);
    let mut late = crate::support::connection(engines::shared(&Config::mariadb()).address()).await;
    late.query_drop("set autocommit = 0").await.unwrap();
    late.query_drop(format!("select * from {table}")).await.unwrap();
    late.exec_drop("call tollgate_admit(?, ?)", (table.as_bytes(), i64::from(old))).await.unwrap();
    late.query_drop(format!("create table {table}_other (n integer)")).await.unwrap();
    write(&mut connection, &fence, new, &table).await.unwrap();
    late.query_drop("select 1 from tollgate_fences limit 1").await.unwrap();
    let refused = late.query_drop(format!("update {table} set n = 7")).await.unwrap_err().to_string();
    assert!(refused.contains("TG412"), "{refused}");
    late.query_drop("rollback").await.unwrap();
    assert_eq!(total(&mut connection, &table).await, 1);
}

#[tokio::test]
async fn tokens_that_are_none_are_refused_and_nothing_is_remembered() {
    let (mut connection, _locks, table) = ground().await;
    for token in [-5_i64, 0, 1 << 53, i64::MAX] {
        let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
        let refused = tx.exec_drop("call tollgate_admit(?, ?)", (table.as_bytes(), token)).await.unwrap_err();
        assert!(refused.to_string().contains("2^53"), "{refused}");
        tx.commit().await.unwrap();
    }
    let marks: Option<i64> = connection
        .exec_first("select count(*) from tollgate_fences where resource = ?", (table.as_bytes(),))
        .await
        .unwrap();
    assert_eq!(marks, Some(0));
}

#[tokio::test]
async fn to_admit_costs_a_statement() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let proxy = Proxy::start(engine.address(), MySql);
    let mut client = connection(proxy.address()).await;
    let fence = MySqlFence::around("costs").unwrap();
    fence.install(&mut client).await.unwrap();
    client.query_drop("create table costs (n int); insert into costs values (0)").await.unwrap();
    let mut asked = [0; 2];
    // The first ones of a connection prepare what they ask.
    for token in 1..=4 {
        for (fenced, asked) in asked.iter_mut().enumerate() {
            proxy.take_counts();
            let mut tx = client.start_transaction(Default::default()).await.unwrap();
            if fenced == 1 {
                let token = tollgate_core::Token::new(token).unwrap();
                fence.admit(&mut tx, Fence::shown(token, true)).await.unwrap();
            }
            tx.exec_drop("update costs set n = n + ?", (1,)).await.unwrap();
            tx.commit().await.unwrap();
            *asked = proxy.take_counts().requests;
        }
    }
    assert_eq!(asked[1] - asked[0], 1, "with the fence {}, without {}", asked[1], asked[0]);
}

#[tokio::test]
async fn ten_who_install_the_fence_at_once_find_it() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let address = engine.address();
    let all = (0..10).map(|_| async move {
        let mut connection = connection(address).await;
        let fence = MySqlFence::around("r").unwrap();
        fence.install(&mut connection).await?;
        // All of it is there, at once.
        let mut tx = connection.start_transaction(Default::default()).await.unwrap();
        fence.admit(&mut tx, Fence::shown(tollgate_core::Token::new(7).unwrap(), true)).await?;
        tx.commit().await.unwrap();
        Ok::<_, tollgate_core::Error>(())
    });
    for installed in futures_util::future::join_all(all).await {
        installed.unwrap();
    }
    let mut root = connection(address).await;
    // Whoever was killed in the middle of making it has left a part.
    root.query_drop("drop procedure tollgate_check; drop procedure tollgate_admit").await.unwrap();
    MySqlFence::around("r").unwrap().install(&mut root).await.unwrap();
    root.query_drop("start transaction; call tollgate_admit('r', 8); commit").await.unwrap();
    let nameless = root.query_drop("start transaction; call tollgate_admit('', 8)").await.unwrap_err();
    assert!(nameless.to_string().contains("a resource has a name"), "{nameless}");
    root.query_drop("rollback").await.unwrap();
    root.query_drop("create user ann@localhost identified by 'secret'").await.unwrap();
    root.query_drop("grant select, insert, update, delete, execute on test.* to ann@localhost")
        .await
        .unwrap();
    let options =
        mysql_async::OptsBuilder::from_opts(root.opts().clone()).user(Some("ann")).pass(Some("secret"));
    let mut ann = Conn::new(options).await.unwrap();
    let fence = MySqlFence::around("r").unwrap().with_table_prefix("other_").unwrap();
    let error = fence.install(&mut ann).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("sql-schema"), "{error}");
    MySqlFence::around("r").unwrap().install(&mut ann).await.expect("it is there");
}

/// Runs the documentation's example as `tollgate run` does.
fn count_with(database: &str, token: u64) -> std::process::Output {
    let address = engines::shared(&Config::mariadb()).address();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/fencing/mysql_counter.py");
    let mut python = std::process::Command::new(clients::python(env!("CARGO_TARGET_TMPDIR")));
    python.arg(example).args([&address.ip().to_string(), &address.port().to_string(), database]);
    python.env("TOLLGATE_TOKEN", token.to_string()).output().unwrap()
}

#[tokio::test]
async fn a_stale_token_is_refused_by_the_example_in_python() {
    let (mut root, ..) = ground().await;
    let database = format!("shop_{}", &OwnerId::random().to_hex()[..12]);
    for statement in [
        format!("create database {database}"),
        format!("use {database}"),
        "create table total (n int not null) engine=innodb".to_owned(),
        "insert into total values (0)".to_owned(),
    ] {
        root.query_drop(statement).await.unwrap();
    }
    MySqlFence::around("total").unwrap().install(&mut root).await.unwrap();
    let said = |output: &std::process::Output| {
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).trim().to_owned()
    };
    for (token, count) in [(1001, "1"), (1001, "2"), (1002, "3")] {
        let output = count_with(&database, token);
        assert!(output.status.success() && said(&output) == count, "{token}: {}", said(&output));
    }
    let stale = count_with(&database, 1001);
    assert_eq!(stale.status.code(), Some(1));
    assert_eq!(said(&stale), "refused: Tollgate: stale, 1002 was here already");
    assert_eq!(total(&mut root, "total").await, 3, "the stale holder has written");
}
