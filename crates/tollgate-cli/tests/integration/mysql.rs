//! Locks in MariaDB as scripts and operators use them, and what can be wrong on the way there.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::misled::{Signed, check, give_up};
use crate::support::{Sandbox, eventually, text};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Deed, MySql, Proxy, Which};

fn url(address: SocketAddr) -> String {
    format!("mysql://root@{address}/test")
}

fn client(address: SocketAddr) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["-h", "127.0.0.1", "-P", &address.port().to_string(), "-u", "root", "-N"]);
    command
}

/// What the command-line client prints.
fn ask(address: SocketAddr, sql: &str) -> String {
    let output = client(address).args(["test", "-e", sql]).output().unwrap();
    assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

#[test]
fn what_is_wrong_on_the_way_is_told_with_what_to_do() {
    let (engine, sandbox) = (engines::private(&Config::mariadb()).unwrap(), Sandbox::new());
    let (address, nobody) = (engine.address(), engines::spare_port());
    let redis = engines::shared(&Config::redis()).address();
    let postgres = engines::shared(&Config::postgres()).address();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    ask(address, "create user ann@localhost identified by 'hush'; grant usage on *.* to ann@localhost");
    ask(address, "create database shop");
    ask(address, "create user bob@localhost identified by 'hush'; grant select on shop.* to bob@localhost");
    ask(
        address,
        "create user eve@localhost identified by 'hush' require ssl; grant all on shop.* to eve@localhost",
    );
    let at = |login: &str, rest: &str| format!("mysql://{login}{address}/{rest}");
    check(
        &sandbox,
        &[
            ("nobody is there", url(nobody.address()), 69, &["no database answers"]),
            (
                "no such host",
                "mysql://root@no.such.host.invalid/test".to_owned(),
                69,
                &["no.such.host.invalid"],
            ),
            ("a Redis is there", url(redis), 69, &["database"]),
            ("a PostgreSQL is there", url(postgres), 69, &["database"]),
            ("nobody answers", url(silent.local_addr().unwrap()), 69, &["did not answer within"]),
            ("no such database", at("root@", "nowhere"), 78, &["no database \"nowhere\"", "create it"]),
            ("no such user", at("zoe:wrong-one@", "test"), 77, &["refused the user or the password"]),
            ("another password", at("ann:wrong-one@", "test"), 77, &["refused the user or the password"]),
            ("no password", at("ann@", "test"), 77, &["refused the user or the password"]),
            ("a database of others", at("ann:hush@", "shop"), 77, &["\"shop\"", "grant"]),
            ("no rights", at("bob:hush@", "shop"), 77, &["tollgate sql-schema"]),
            ("only encrypted", at("eve:hush@", "shop"), 77, &["refused", "ssl-mode=required"]),
            ("TLS where there is none", at("root@", "test?ssl-mode=required"), 78, &["TLS"]),
            ("files without TLS", at("root@", "test?ca=x"), 2, &["ssl-mode=required"]),
            (
                "a file that is not there",
                at("root@", "test?ssl-mode=required&ca=/no/such"),
                78,
                &["/no/such"],
            ),
            ("an unknown mode of TLS", at("root@", "test?ssl-mode=sometimes"), 2, &["required"]),
            (
                "an unknown parameter",
                at("root@", "test?tabel_prefix=x"),
                2,
                &["no parameter", "table_prefix"],
            ),
            ("an odd prefix", at("root@", "test?table_prefix=a%2Db"), 2, &["letters, digits"]),
            ("no connections", at("root@", "test?connections=0"), 2, &["1 to 1000"]),
            ("an unknown dialect", at("root@", "test?dialect=oracle"), 2, &["must be mysql", "or mariadb"]),
            ("a style of somebody else's", at("root@", "test?style=advisory"), 2, &["session"]),
            ("no database", at("root@", ""), 2, &["DATABASE"]),
            ("no URL", "mysql:here".to_owned(), 2, &["mysql://USER"]),
        ],
    );
    ask(address, "create user app@localhost; grant all on test.* to app@localhost; set global read_only = 1");
    check(&sandbox, &[("a replica", at("app@", "test"), 69, &["accepts no writes", "primary"])]);
}

#[test]
fn connections_can_be_encrypted() {
    let (signed, sandbox) = (Signed::new(), Sandbox::new());
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let file = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        path.display().to_string()
    };
    let ca = file("ca", &signed.ca);
    let config = Config::mariadb()
        .argument(format!("--ssl-cert={}", file("cert", &signed.cert)))
        .argument(format!("--ssl-key={}", file("key", &signed.key)))
        .argument("--require-secure-transport=ON");
    let engine = engines::private(&config).unwrap();
    let encrypted = format!("{}?ssl-mode=required", url(engine.address()));
    for style in ["lease", "session"] {
        let trusted = format!("{encrypted}&ca={ca}&style={style}");
        let ran = sandbox.output(&["run", "--url", &trusted, "--try", "a", "--", "true"]);
        assert!(ran.status.success(), "{style}: {}", text(&ran.stderr));
        let doctor = sandbox.output(&["doctor", &trusted]);
        assert!(doctor.status.success(), "{style}: {}{}", text(&doctor.stdout), text(&doctor.stderr));
    }
    let other = file("other", &Signed::new().ca);
    check(
        &sandbox,
        &[
            ("no TLS where it is wanted", url(engine.address()), 77, &["ssl-mode=required"]),
            ("nobody who is trusted", encrypted.clone(), 78, &["?ca=FILE"]),
            ("somebody else who is trusted", format!("{encrypted}&ca={other}"), 78, &["?ca=FILE"]),
            (
                "another name",
                encrypted.replace("127.0.0.1", "localhost") + "&ca=" + &ca,
                78,
                &["certificate"],
            ),
            ("a certificate without a key", format!("{encrypted}&ca={ca}&cert={ca}"), 2, &["key"]),
            ("no certificate at all", format!("{encrypted}&ca=/etc/hosts"), 2, &["/etc/hosts"]),
        ],
    );
}

/// Somebody who sits on the row of a lock until they are killed.
fn sit(address: SocketAddr, name: &str) -> Child {
    let sql = format!(
        "start transaction; select 1 from tollgate_locks where name = '{name}' for update; select sleep(100)"
    );
    let child = client(address)
        .args(["test", "-e", &sql])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let sits = "select count(*) from information_schema.processlist where state = 'User sleep'";
    eventually("somebody sits on the row", || (ask(address, sits) == "1").then_some(()));
    child
}

#[test]
fn who_does_not_wait_for_ever_is_told_in_time_though_somebody_sits_on_the_row() {
    let (engine, sandbox) = (engines::private(&Config::mariadb()).unwrap(), Sandbox::new());
    let rise = || {
        let sitter = "select id from information_schema.processlist where state = 'User sleep'";
        let id = ask(engine.address(), sitter);
        ask(engine.address(), &format!("kill {id}"));
    };
    give_up(&sandbox, &url(engine.address()), || sit(engine.address(), "a"), rise);
}

#[test]
fn the_schema_that_is_printed_is_the_one_that_is_used() {
    let (engine, sandbox) = (engines::private(&Config::mariadb()).unwrap(), Sandbox::new());
    let address = engine.address();
    ask(address, "create database shop; create user plain@localhost");
    ask(address, "grant select, insert, update, delete, execute on shop.* to plain@localhost");
    for style in ["lease", "session"] {
        let url = format!("mysql://plain@{address}/shop?table_prefix={style}_&style={style}");
        let printed = sandbox.output(&["sql-schema", &url]);
        assert!(printed.status.success());
        std::fs::write(sandbox.path("locks.sql"), printed.stdout).unwrap();
        let file = std::fs::File::open(sandbox.path("locks.sql")).unwrap();
        let applied = client(address).arg("shop").stdin(file).output().unwrap();
        assert!(applied.status.success(), "{}", text(&applied.stderr));
        let ran = sandbox.output(&["run", "--url", &url, "a", "--", "true"]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
    }
}

/// Its replies are lost after the first requests, while the client looks for the tables.
#[test]
fn a_server_that_falls_silent_while_connecting_is_given_up_in_time() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let proxy = Proxy::start(engine.address(), MySql);
    proxy.on(Which::nth(5), Deed::Lose);
    let sandbox = Sandbox::new();
    let since = Instant::now();
    let output = sandbox.output(&["run", "--url", &url(proxy.address()), "--try", "a", "--", "true"]);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
    assert!(since.elapsed() < Duration::from_secs(25), "it took {:?}", since.elapsed());
}
