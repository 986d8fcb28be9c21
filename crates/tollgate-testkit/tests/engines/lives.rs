//! Engines start, answer, are killed and stopped, and come back with their data or without.

use std::net::TcpStream;
use std::time::Instant;

use libtest_mimic::Trial;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::subject::PATIENCE;

use crate::client::{get, put};
use crate::{for_every, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = for_every("a_killed_engine_comes_back_as_it_was_or_empty", killed);
    trials.extend(for_every("a_paused_engine_is_silent_until_it_goes_on", paused));
    trials.extend([
        trial("the_majority_of_an_etcd_goes_on_without_a_node", || majority(&Config::etcd().nodes(3))),
        trial("the_majority_of_a_zookeeper_goes_on_without_a_node", || {
            majority(&Config::zookeeper().nodes(3))
        }),
        trial("a_redis_in_memory_forgets_when_it_ends", a_redis_in_memory_forgets_when_it_ends),
        trial("those_who_want_the_same_engine_share_it", those_who_want_the_same_engine_share_it),
        trial("an_engine_that_does_not_come_up_says_why", an_engine_that_does_not_come_up_says_why),
        trial("a_dropped_engine_is_gone", a_dropped_engine_is_gone),
    ]);
    trials
}

fn killed(config: &Config) {
    let (engine, kind) = (engines::private(config).unwrap(), config.kind());
    let address = engine.address();
    assert_eq!(get(kind, address), None);
    put(kind, address, "kept");
    assert!(engine.nodes()[0].resident_memory() > 1_000_000);
    let first = engine.nodes()[0].pid().expect("it runs");
    engine.kill();
    assert_eq!(engine.pids(), [0_u32; 0], "some of its processes are left");
    assert!(TcpStream::connect(address).is_err(), "somebody still listens");
    assert!(!engine.answers());

    engine.restart(Data::Kept).unwrap();
    assert_eq!(engine.address(), address);
    assert_ne!(engine.nodes()[0].pid(), Some(first));
    assert_eq!(get(kind, address).as_deref(), Some("kept"));
    engine.stop();
    assert_eq!(engine.pids(), [0_u32; 0], "some of its processes are left");
    assert_eq!(engine.nodes()[0].pid(), None);

    engine.restart(Data::Lost).unwrap();
    assert_eq!(get(kind, address), None, "its data survived a new disk");
    put(kind, address, "new");
    assert_eq!(get(kind, address).as_deref(), Some("new"));
}

fn paused(config: &Config) {
    let engine = engines::private(config).unwrap();
    engine.pause();
    assert!(!engine.answers(), "a stopped engine answered");
    TcpStream::connect(engine.address()).expect("to the kernel it is still there");
    engine.resume();
    answers_again(&engine.nodes()[0]);
}

/// Asks until it answers, which it must without a restart.
fn answers_again(node: &engines::Node) {
    let until = Instant::now() + PATIENCE;
    while !node.answers() {
        assert!(Instant::now() < until, "it does not go on; it said\n{}", node.log());
    }
}

fn majority(config: &Config) {
    let (engine, kind) = (engines::private(config).unwrap(), config.kind());
    let [first, second, third] = engine.nodes() else { panic!("three nodes were asked for") };
    put(kind, first.address(), "agreed");
    first.kill();
    assert!(!first.answers());
    for node in [second, third] {
        answers_again(node);
        assert_eq!(get(kind, node.address()).as_deref(), Some("agreed"));
    }
    first.restart(Data::Kept).unwrap();
    assert_eq!(get(kind, first.address()).as_deref(), Some("agreed"));
}

fn a_redis_in_memory_forgets_when_it_ends() {
    let config = Config::redis();
    let engine = engines::private(&config).unwrap();
    put(config.kind(), engine.address(), "volatile");
    engine.stop();
    engine.restart(Data::Kept).unwrap();
    assert_eq!(get(config.kind(), engine.address()), None);
}

fn those_who_want_the_same_engine_share_it() {
    let config = Config::redis();
    let users: Vec<_> =
        (0..8).map(|_| std::thread::spawn(|| engines::shared(&Config::redis()).address())).collect();
    for user in users {
        assert_eq!(user.join().unwrap(), engines::shared(&config).address());
    }
    let other = config.argument("--maxmemory").argument("100mb");
    assert_ne!(engines::shared(&other).address(), engines::shared(&Config::redis()).address());
    assert!(engines::shared(&other).answers());
}

fn an_engine_that_does_not_come_up_says_why() {
    let trouble = engines::private(&Config::redis().argument("--no-such-option").argument("1"));
    let sentence = trouble.err().expect("nobody knows that option").to_string();
    assert!(sentence.contains("Redis ended"), "{sentence}");
    assert!(sentence.contains("no-such-option"), "its log is missing: {sentence}");
}

fn a_dropped_engine_is_gone() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (folder, address) = (engine.folder().to_owned(), engine.address());
    assert!(folder.exists());
    drop(engine);
    assert!(!folder.exists());
    assert!(TcpStream::connect(address).is_err());
}
