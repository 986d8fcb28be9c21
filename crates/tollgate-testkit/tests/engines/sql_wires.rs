//! The chaos proxy in front of real SQL databases, and a PgBouncer in front of one.

use std::net::SocketAddr;
use std::process::Output;

use libtest_mimic::Trial;
use tollgate_testkit::engines::{self, Config, Kind};
use tollgate_testkit::proxy::{Close, Deed, Discard, MySql, Postgres, Proxy, Which};

use crate::client::{ask, sql};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    let both = [("postgres", Config::postgres()), ("mariadb", Config::mariadb())];
    let mut trials: Vec<_> = both
        .into_iter()
        .map(|(name, config)| {
            let name = format!("{name}::a_statement_whose_reply_is_lost_was_executed");
            trial(name, move || a_statement_whose_reply_is_lost_was_executed(&config))
        })
        .collect();
    trials.extend([
        trial("a_notification_is_discarded_and_the_reply_around_it_is_not", notifications),
        trial("a_pgbouncer_lends_connections_for_a_transaction", a_pgbouncer_lends_connections),
    ]);
    trials
}

fn proxy(kind: Kind, address: SocketAddr) -> Proxy {
    match kind {
        Kind::MariaDb => Proxy::start(address, MySql),
        _ => Proxy::start(address, Postgres),
    }
}

fn a_statement_whose_reply_is_lost_was_executed(config: &Config) {
    let kind = config.kind();
    let engine = engines::private(config).unwrap();
    let proxy = proxy(kind, engine.address());
    let direct = |statement: &str| ask(&mut sql(kind, engine.address(), statement));
    let indirect = |statement: &str| sql(kind, proxy.address(), statement);
    ask(&mut indirect("CREATE TABLE grants (name varchar(10)); INSERT INTO grants VALUES ('first')"));
    assert_eq!(ask(&mut indirect("SELECT name FROM grants")).as_deref(), Some("first"));
    let insert = |frame: &[u8]| frame.windows(6).any(|word| word == b"INSERT");
    let caught = proxy.on(Which::matching(insert), Deed::CutInsteadOfReply(Close::Gently));
    let output: Output = indirect("INSERT INTO grants VALUES ('second')").output().unwrap();
    assert!(!output.status.success(), "it was answered: {output:?}");
    assert!(crate::wires::block_on(caught.over()), "the database answered it");
    assert_eq!(direct("SELECT count(*) FROM grants").as_deref(), Some("2"));
    let counts = proxy.counts();
    assert!(counts.requests >= 6 && counts.replies >= 6 && counts.pushes == 0, "{counts:?}");
}

fn notifications() {
    let address = engines::shared(&Config::postgres()).address();
    let proxy = proxy(Kind::Postgres, address);
    let listen = || {
        let mut command = sql(Kind::Postgres, proxy.address(), "LISTEN news");
        ask(command.args(["-c", "NOTIFY news", "-c", "SELECT 'over'"])).unwrap()
    };
    let heard = listen();
    assert!(heard.contains("\"news\"") && heard.ends_with("over"), "{heard}");
    assert_eq!(proxy.counts().pushes, 1);
    proxy.discard_pushes(Discard::All);
    let heard = listen();
    assert!(!heard.contains("\"news\"") && heard.ends_with("over"), "{heard}");
    assert_eq!(proxy.counts().pushes, 2);
}

fn a_pgbouncer_lends_connections() {
    let postgres = engines::private(&Config::postgres()).unwrap();
    let config = Config::pgbouncer(postgres.address().port()).argument("default_pool_size = 1");
    let bouncer = engines::private(&config).unwrap();
    let mut two = sql(Kind::PgBouncer, bouncer.address(), "SELECT pg_backend_pid()");
    let first = ask(&mut two).unwrap();
    assert_eq!(ask(&mut two).unwrap(), first, "clients come one after the other over one connection");
    let mut admin = sql(Kind::PgBouncer, bouncer.address(), "SHOW POOLS");
    let pools = ask(admin.args(["-d", "pgbouncer"])).unwrap();
    assert!(pools.contains("transaction"), "{pools}");
}
