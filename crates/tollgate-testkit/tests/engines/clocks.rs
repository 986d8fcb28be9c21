//! An engine's wall clock is set while it runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libtest_mimic::Trial;
use tollgate_testkit::engines::{self, Config};

use crate::client::{ask, redis, sql};
use crate::trial;

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("redis_goes_by_the_clock_it_is_given", redis_goes_by_the_clock_it_is_given),
        trial("postgres_goes_by_the_clock_it_is_given", || {
            sql_clock(Config::postgres(), "SELECT extract(epoch FROM clock_timestamp())")
        }),
        trial("mariadb_goes_by_the_clock_it_is_given", || {
            sql_clock(Config::mariadb(), "SELECT unix_timestamp(now(6))")
        }),
    ]
}

/// How far `seconds` since the epoch is ahead of the real clock, in seconds.
fn ahead(seconds: &str) -> f64 {
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    seconds.parse::<f64>().unwrap() - real
}

fn is_about(ahead: f64, expected: f64) {
    assert!((ahead - expected).abs() < 60.0, "its clock is {ahead} s ahead instead of {expected}");
}

fn redis_goes_by_the_clock_it_is_given() {
    let engine = engines::private(&Config::redis().own_clock()).unwrap();
    let say = |words: &[&str]| ask(redis(engine.address()).args(words)).expect("Redis answers");
    let time = || ahead(say(&["TIME"]).lines().next().expect("seconds come first"));
    is_about(time(), 0.0);
    say(&["SET", "key", "value", "EX", "30"]);
    assert_eq!(say(&["GET", "key"]), "value");
    engine.set_clock_ahead(HOUR);
    is_about(time(), 3600.0);
    assert_eq!(say(&["EXISTS", "key"]), "0", "30 s were over after an hour");
    say(&["SET", "key", "value", "EX", "30"]);
    engine.set_clock_back(HOUR);
    is_about(time(), -3600.0);
    let left: i64 = say(&["TTL", "key"]).parse().unwrap();
    assert!(left > 7000, "{left} s are left of a key that expires two hours later");
}

fn sql_clock(config: Config, question: &str) {
    let kind = config.kind();
    let engine = engines::private(&config.own_clock()).unwrap();
    let time = || ahead(&ask(&mut sql(kind, engine.address(), question)).expect("it answers"));
    is_about(time(), 0.0);
    engine.set_clock_ahead(HOUR);
    is_about(time(), 3600.0);
}
