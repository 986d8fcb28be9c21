//! Locks in PostgreSQL as scripts and operators use them, and what can be wrong on the way there.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::support::misled::{Signed, check, give_up};
use crate::support::{Sandbox, eventually, text};
use tollgate_testkit::engines::{self, Config};

fn url(address: SocketAddr) -> String {
    format!("postgres://postgres@{address}/postgres")
}

/// What `psql` prints.
fn psql(address: SocketAddr, sql: &str) -> String {
    let mut command = Command::new("psql");
    command.args([
        "-X",
        "-h",
        "127.0.0.1",
        "-p",
        &address.port().to_string(),
        "-U",
        "postgres",
        "-Atqc",
        sql,
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

#[test]
fn what_is_wrong_on_the_way_is_told_with_what_to_do() {
    let (engine, sandbox) = (engines::private(&Config::postgres()).unwrap(), Sandbox::new());
    let (address, nobody) = (engine.address(), engines::spare_port());
    let redis = engines::shared(&Config::redis()).address();
    let mariadb = engines::shared(&Config::mariadb()).address();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    psql(address, "create role ann login password 'hush'");
    psql(address, "create role eve superuser login password 'hush'");
    psql(address, "alter role eve set default_transaction_read_only = on");
    // Who has a password must say it.
    let rules = psql(address, "show hba_file");
    std::fs::write(&rules, "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        .unwrap();
    psql(address, "select pg_reload_conf()");
    let at = |login: &str, rest: &str| format!("postgres://{login}{address}/{rest}");
    check(
        &sandbox,
        &[
            ("nobody is there", url(nobody.address()), 69, &["no PostgreSQL answers"]),
            ("no such host", "postgres://no.such.host.invalid/x".to_owned(), 69, &["no.such.host.invalid"]),
            ("a Redis is there", url(redis), 69, &["is it a PostgreSQL"]),
            ("a MariaDB is there", url(mariadb), 69, &["PostgreSQL"]),
            ("nobody answers", url(silent.local_addr().unwrap()), 69, &["did not answer within"]),
            ("no such database", at("postgres@", "nowhere"), 78, &["no such database"]),
            ("no such user", at("bob:wrong-one@", "postgres"), 77, &["refused the user or the password"]),
            ("another password", at("ann:wrong-one@", "postgres"), 77, &["refused the user or the password"]),
            ("no password", at("ann@", "postgres"), 77, &["requires a password"]),
            ("no rights", at("ann:hush@", "postgres"), 77, &["tollgate sql-schema"]),
            ("a replica", at("eve:hush@", "postgres"), 69, &["accepts no writes", "primary"]),
            ("TLS where there is none", at("postgres@", "postgres?sslmode=require"), 78, &["TLS"]),
            ("files without TLS", at("postgres@", "postgres?sslmode=disable&ca=x"), 2, &["sslmode"]),
            ("a file that is not there", at("postgres@", "postgres?ca=/no/such"), 78, &["/no/such"]),
            ("an unknown mode of TLS", at("postgres@", "postgres?sslmode=alow"), 2, &["require"]),
            ("an unknown parameter", at("postgres@", "postgres?shema=x"), 2, &["no parameter", "schema"]),
            ("an odd schema", at("postgres@", "postgres?schema=a%2Db"), 2, &["letters, digits"]),
            ("no connections", at("postgres@", "postgres?connections=0"), 2, &["1 to 1000"]),
            ("no URL", "postgres:here".to_owned(), 2, &["postgres://USER"]),
            ("a style of somebody else's", at("postgres@", "postgres?style=session"), 2, &["advisory"]),
        ],
    );
}

#[test]
fn connections_can_be_encrypted() {
    let (engine, sandbox) = (engines::private(&Config::postgres()).unwrap(), Sandbox::new());
    let address = engine.address();
    let signed = Signed::new();
    std::fs::write(sandbox.path("ca"), &signed.ca).unwrap();
    let data = psql(address, "show data_directory");
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap());
    for (name, pem) in [("server.crt", &signed.cert), ("server.key", &signed.key)] {
        let file = format!("{data}/{name}");
        std::fs::write(&file, pem).unwrap();
        chown(&file, Some(owner), None).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    }
    psql(address, "alter system set ssl = on");
    std::fs::write(psql(address, "show hba_file"), "hostssl all all all trust\nlocal all all trust\n")
        .unwrap();
    let mut reload = Command::new("psql");
    reload.args(["-X", "-h", "127.0.0.1", "-p", &address.port().to_string(), "-U", "postgres", "-Atqc"]);
    assert!(reload.arg("select pg_reload_conf()").status().unwrap().success());
    let ca = sandbox.path("ca").display().to_string();
    let trusted = format!("{}?sslmode=require&ca={ca}", url(address));
    let began = Instant::now();
    // The new settings take a moment.
    while !sandbox.output(&["run", "--url", &trusted, "--try", "a", "--", "true"]).status.success() {
        assert!(began.elapsed() < crate::support::PATIENCE, "it never worked");
    }
    check(
        &sandbox,
        &[
            ("no TLS where it is wanted", url(address), 77, &["sslmode=require"]),
            ("nobody who is trusted", format!("{}?sslmode=require", url(address)), 78, &["?ca=FILE"]),
            ("no TLS that is trusted", format!("{}?sslmode=prefer", url(address)), 77, &["sslmode=require"]),
        ],
    );
    let run = |url: &str| sandbox.output(&["run", "--url", url, "--try", "a", "--", "true"]);
    let preferred = format!("{}?sslmode=prefer&sslrootcert={ca}", url(address));
    assert!(run(&preferred).status.success(), "it is to be had: {:?}", run(&preferred));
    // Without insisting on TLS, an untrusted certificate leads to a plain connection.
    let rules = psql(address, "show hba_file");
    std::fs::write(rules, "host all all all trust\nlocal all all trust\n").unwrap();
    psql(address, "select pg_reload_conf()");
    let preferred = format!("{}?sslmode=prefer", url(address));
    eventually("it does without", || run(&preferred).status.success().then_some(()));
}

/// Somebody who sits on the row of a lock until they are killed.
fn sit(address: SocketAddr, name: &str) -> Child {
    let sql =
        format!("begin; select 1 from tollgate.locks where name = '{name}' for update; select pg_sleep(100)");
    let mut command = Command::new("psql");
    command.args(["-X", "-h", "127.0.0.1", "-p", &address.port().to_string(), "-U", "postgres", "-c", &sql]);
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let sits = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    eventually("somebody sits on the row", || (psql(address, sits) == "1").then_some(()));
    child
}

#[test]
fn who_does_not_wait_for_ever_is_told_in_time_though_somebody_sits_on_the_row() {
    let (engine, sandbox) = (engines::private(&Config::postgres()).unwrap(), Sandbox::new());
    let url = url(engine.address());
    let rise = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'";
    give_up(&sandbox, &url, || sit(engine.address(), "a"), || drop(psql(engine.address(), rise)));
}

#[test]
fn scripts_and_operators_find_what_they_need() {
    let (engine, sandbox) = (engines::private(&Config::postgres()).unwrap(), Sandbox::new());
    let url = url(engine.address());
    let tollgate = |words: &[&str]| sandbox.tollgate(words).env("TOLLGATE_URL", &url).output().unwrap();
    let ran = tollgate(&["run", "report", "--", "sh", "-c", "echo $TOLLGATE_TOKEN"]);
    assert_eq!(text(&ran.stdout).trim(), "1", "{}", text(&ran.stderr));
    let acquired = tollgate(&["acquire", "backup", "--ttl", "60s"]);
    assert!(acquired.status.success(), "{}", text(&acquired.stderr));
    let grant = text(&acquired.stdout);
    assert_eq!(tollgate(&["run", "--try", "backup", "--", "true"]).status.code(), Some(75));
    assert!(text(&tollgate(&["ls"]).stdout).contains("backup"));
    assert!(text(&tollgate(&["inspect", "backup"]).stdout).contains('2'), "its token");
    let extended = tollgate(&["extend", grant.trim()]);
    assert!(extended.status.success(), "{}", text(&extended.stderr));
    let released = tollgate(&["release", text(&extended.stdout).trim()]);
    assert!(released.status.success(), "{}", text(&released.stderr));
    assert_eq!(tollgate(&["release", grant.trim()]).status.code(), Some(76));
    let doctor = tollgate(&["doctor", &url]);
    println!("{}{}", text(&doctor.stdout), text(&doctor.stderr));
    assert_eq!(doctor.status.code(), Some(0));
}

#[test]
fn the_schema_that_is_printed_is_the_one_that_is_used() {
    let (engine, sandbox) = (engines::private(&Config::postgres()).unwrap(), Sandbox::new());
    let url = format!("{}?schema=mine&table_prefix=t_", url(engine.address()));
    let printed = sandbox.output(&["sql-schema", &url]);
    assert!(printed.status.success());
    let sql = sandbox.path("locks.sql");
    std::fs::write(&sql, printed.stdout).unwrap();
    let mut run = Command::new("psql");
    run.args(["-X", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres", "-qf"]).arg(&sql);
    let applied = run.args(["-p", &engine.address().port().to_string()]).output().unwrap();
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    assert_eq!(psql(engine.address(), "select mine.t_admit('orders', 42) is not null"), "t");
    // Whoever connects then changes nothing.
    psql(engine.address(), "create role plain login; grant usage on schema mine to plain");
    psql(
        engine.address(),
        "grant all on all tables in schema mine to plain; grant all on all sequences in schema mine to plain",
    );
    let ran = sandbox.output(&["run", "--url", &url.replace("postgres@", "plain@"), "a", "--", "true"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    for wrong in ["redis://h", "file:x"] {
        let refused = sandbox.output(&["sql-schema", wrong]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("postgres://"), "{}", text(&refused.stderr));
    }
}
