//! URLs of databases as people have them in `DATABASE_URL`.

use std::net::SocketAddr;

use tollgate::{ErrorKind, Severity};
use tollgate_testkit::engines::{self, Config};

fn postgres() -> &'static engines::Engine {
    engines::shared(&Config::postgres())
}

/// Takes a lock by a URL and gives it back.
async fn lock(url: &str) {
    let locks = tollgate::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

/// A role whose password has all that has to be encoded, and the beginning of its URL.
async fn ann(address: SocketAddr) -> String {
    let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", address.port());
    let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let made = "do $$ begin create role ann superuser login password 'p@ss:/?#&'; exception when duplicate_object then end $$";
    client.batch_execute(made).await.unwrap();
    format!("ann:p%40ss%3A%2F%3F%23%26@{address}/postgres")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_of_a_postgresql_as_frameworks_have_them_connect() {
    let engine = postgres();
    let place = ann(engine.address()).await;
    let (port, folder) = (engine.address().port(), engine.folder().join("node-1").display().to_string());
    for url in [
        // Prisma.
        format!("postgresql://{place}?schema=public&connection_limit=5&pgbouncer=true&sslmode=prefer"),
        // Rails.
        format!("postgresql://{place}?pool=5&encoding=unicode&prepared_statements=false&connect_timeout=2"),
        // Django.
        format!("postgres://{place}?conn_max_age=600&sslmode=allow&application_name=shop"),
        // libpq, as services of the cloud write it.
        format!(
            "postgres://{place}?sslmode=prefer&channel_binding=prefer&target_session_attrs=read-write\
             &keepalives_idle=30&tcp_user_timeout=9000&options=-c%20geqo%3Doff&client_encoding=UTF8"
        ),
        // A socket in a folder, in both places, which needs no encryption.
        format!("postgres:///postgres?host={folder}&port={port}&user=ann&password=p%40ss&sslmode=require"),
        format!("postgresql://ann@{}:{port}/postgres", folder.replace('/', "%2F")),
        format!("postgres://ann@unknown.invalid/postgres?host=127.0.0.1&port={port}"),
        format!("postgres://ann@unknown.invalid:{port}/postgres?hostaddr=127.0.0.1"),
        format!("postgres://ann@127.0.0.1/postgres?port={port}&style=advisory&application_name=shop"),
    ] {
        lock(&url).await;
    }
}

/// Prisma's `?schema=` is where the application's own tables are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_in_the_schema_public_do_not_meet_those_of_the_application() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", engine.address().port());
    let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("create table public.version (app text); create table public.locks (door text)")
        .await
        .unwrap();
    lock(&format!("postgres://postgres@{}/postgres?schema=public", engine.address())).await;
    assert_eq!(client.query("select from public.tollgate_version", &[]).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_tells_what_of_a_url_is_not_done() {
    let place = ann(postgres().address()).await;
    let url = format!("postgres://{place}?application_name=shop&sslmode=prefer&pool=5");
    let checkup = tollgate::doctor(&url).await.unwrap();
    for word in ["application_name", "sslmode=prefer", "parameter pool"] {
        let found = checkup.findings.iter().find(|found| found.what.contains(word));
        let found = found.unwrap_or_else(|| panic!("{word}: {checkup:#?}"));
        assert_eq!(found.severity, Severity::Note);
    }
}

#[tokio::test]
async fn a_url_that_asks_for_more_safety_than_there_is_is_refused() {
    for (url, word) in [
        ("postgres://h/d?sslcrl=/crl", "sslcrl"),
        ("postgres://h/d?require_auth=scram-sha-256", "channel_binding=require"),
        ("postgres://h/d?sslmode=disable&sslrootcert=/ca", "sslmode=require"),
        ("postgres://h/d?target_session_attrs=standby", "read-write"),
        ("postgres://h/d?sslmdoe=require", "no parameter"),
        ("mysql://h/d?ssl-mode=preferred&ssl-crl=/crl", "ssl-crl"),
        ("mysql://h/d?useSSL=maybe", "useSSL"),
        ("mysql://h/d?ssl-mdoe=required", "no parameter"),
    ] {
        let error = tollgate::connect(url).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}: {error}");
        assert!(error.to_string().contains(word), "{url}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_of_a_mariadb_as_frameworks_have_them_connect() {
    let address = engines::shared(&Config::mariadb()).address();
    for parameters in [
        "charset=utf8mb4&connect_timeout=3&pool=5",
        "useSSL=false&serverTimezone=UTC&allowPublicKeyRetrieval=true&characterEncoding=utf8",
        "parseTime=true&loc=Local&tls=false",
        "sslmode=disabled&connection_limit=5",
        "ssl-mode=preferred&encoding=utf8mb4&reconnect=true",
        "style=session&charset=utf8mb4",
    ] {
        lock(&format!("mysql://root@{address}/test?{parameters}")).await;
    }
    let checkup = tollgate::doctor(&format!("mysql://root@{address}/test?parseTime=true")).await.unwrap();
    assert!(checkup.findings.iter().any(|found| found.what.contains("parseTime")), "{checkup:#?}");
}
