//! Servers set up well and badly: what is wrong is found, and what is not is not.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{cli, until};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Checkup, ErrorKind, Fault, Severity};
use tollgate_redis::{RedisConfig, RedlockConfig, examine, examine_redlock};
use tollgate_testkit::engines::{self, Config, Engine};

fn config(address: SocketAddr) -> RedisConfig {
    RedisConfig::from_url(&format!("redis://{address}/")).unwrap()
}

async fn examined(engine: &Engine) -> Checkup {
    examine(config(engine.address())).await.unwrap()
}

/// What was found, apart from what is fine and from the version, which is Debian's choice.
fn said(checkup: &Checkup) -> Vec<(Severity, String)> {
    let findings = checkup.findings.iter().filter(|finding| finding.severity > Severity::Fine);
    let told = findings.filter(|finding| !finding.what.contains("known vulnerabilities"));
    told.map(|finding| (finding.severity, finding.what.clone())).collect()
}

/// That exactly these were found, in any order.
fn assert_said(checkup: &Checkup, wanted: &[(Severity, &str)]) {
    let said = said(checkup);
    let told = |(severity, words): &(Severity, &str)| {
        said.iter().any(|(is, what)| is == severity && what.contains(words))
    };
    assert!(said.len() == wanted.len() && wanted.iter().all(told), "not {wanted:?}: {said:#?}");
}

fn with(config: Config, arguments: &[&str]) -> Engine {
    let config = arguments.iter().fold(config, |config, argument| config.argument(*argument));
    engines::private(&config).unwrap()
}

use Severity::{Note, Problem};

#[tokio::test]
async fn a_healthy_redis_is_called_so_and_nothing_of_it_is_changed() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    cli(engine.address(), &["SET", "lock:a", "x", "PX", "600000"]);
    let before = cli(engine.address(), &["INFO", "persistence"]);
    let checkup = examined(&engine).await;
    assert_said(&checkup, &[]);
    assert!(!checkup.has_problems());
    assert!(
        checkup.findings.iter().all(|finding| finding.severity == Severity::Fine || finding.advice.is_some())
    );
    let restarted = checkup.guarantees.under(Fault::EngineRestarted);
    assert_eq!((restarted.exclusion, restarted.tokens), (Basis::Kept, Basis::Kept));
    assert_eq!(cli(engine.address(), &["DBSIZE"]), "1");
    let changes = |info: &str| info.lines().find(|line| line.starts_with("rdb_changes")).map(str::to_owned);
    assert_eq!(changes(&before), changes(&cli(engine.address(), &["INFO", "persistence"])));
}

#[tokio::test]
async fn what_a_disk_would_lack_is_said() {
    let memory = engines::private(&Config::redis()).unwrap();
    let checkup = examined(&memory).await;
    assert_said(&checkup, &[(Note, "keeps nothing on disk")]);
    assert_eq!(checkup.guarantees.under(Fault::EngineRestarted).exclusion, Basis::Broken);
    let set =
        |name: &str, value: &str| assert_eq!(cli(memory.address(), &["CONFIG", "SET", name, value]), "OK");
    set("save", "3600 1");
    assert_said(&examined(&memory).await, &[(Note, "snapshots, minutes apart")]);
    let durable = engines::private(&Config::durable_redis()).unwrap();
    for (value, says) in [("everysec", "last second"), ("no", "last half minute")] {
        cli(durable.address(), &["CONFIG", "SET", "appendfsync", value]);
        assert_said(&examined(&durable).await, &[(Note, says)]);
    }
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_a_problem() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    // A folder that is gone takes no snapshot.
    std::fs::remove_dir_all(engine.folder().join("node-1").join("data")).unwrap();
    cli(engine.address(), &["BGSAVE"]);
    until("the snapshot has failed", async || {
        cli(engine.address(), &["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    })
    .await;
    assert_said(&examined(&engine).await, &[(Problem, "the last snapshot failed")]);
}

#[tokio::test]
async fn every_policy_that_evicts_locks_is_a_problem() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    let set =
        |name: &str, value: &str| assert_eq!(cli(engine.address(), &["CONFIG", "SET", name, value]), "OK");
    set("maxmemory-policy", "allkeys-lru");
    assert_said(&examined(&engine).await, &[(Note, "would evict locks")]);
    set("maxmemory", "100mb");
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl", "volatile-random", "allkeys-lfu"] {
        set("maxmemory-policy", policy);
        assert_said(&examined(&engine).await, &[(Problem, policy)]);
    }
    set("maxmemory-policy", "noeviction");
    assert_said(&examined(&engine).await, &[]);
    set("maxmemory", "1mb");
    let full = said(&examined(&engine).await);
    assert!(full.len() == 1 && full[0].1.contains("of the server's memory is used"), "{full:?}");
    // One that has evicted something, and does not any more.
    set("maxmemory", "3mb");
    set("maxmemory-policy", "allkeys-lru");
    let mut number = 0;
    until("a key is evicted", async || {
        number += 1;
        cli(engine.address(), &["SET", &format!("big/{number}"), &"x".repeat(100_000)]);
        !cli(engine.address(), &["INFO", "stats"]).contains("evicted_keys:0")
    })
    .await;
    set("maxmemory-policy", "noeviction");
    set("maxmemory", "0");
    assert_said(&examined(&engine).await, &[(Note, "has evicted")]);
}

#[tokio::test]
async fn replicas_and_what_a_fail_over_loses_are_said() {
    let primary = engines::private(&Config::durable_redis()).unwrap();
    let port = primary.address().port();
    let replica = with(Config::durable_redis(), &["--replicaof", &format!("127.0.0.1 {port}")]);
    until("the replica is there", async || {
        cli(primary.address(), &["INFO", "replication"]).contains("connected_slaves:1")
    })
    .await;
    assert_said(&examined(&primary).await, &[(Note, "min-replicas-to-write 0")]);
    cli(primary.address(), &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_said(&examined(&primary).await, &[(Note, "min-replicas-to-write 1")]);
    assert_said(&examined(&replica).await, &[(Problem, &format!("a replica of 127.0.0.1:{port}"))]);

    let sentinel = Config::sentinel().argument(format!("sentinel monitor main 127.0.0.1 {port} 1"));
    let sentinel = engines::private(&sentinel).unwrap();
    let dead = engines::spare_port();
    let url = format!("redis-sentinel://{},{}/main", sentinel.address(), dead.address());
    let checkup = examine(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let wanted = [
        (Note, "number of sentinels is 1,"),
        (Problem, "cannot be queried"),
        (Note, "min-replicas-to-write 1"),
    ];
    assert_said(&checkup, &wanted);
}

#[tokio::test]
async fn a_clock_that_differs_is_noted() {
    let engine = engines::private(&Config::durable_redis().own_clock()).unwrap();
    assert_said(&examined(&engine).await, &[]);
    engine.set_clock_ahead(Duration::from_secs(3600));
    assert_said(&examined(&engine).await, &[(Note, "3600.")]);
    engine.set_clock_back(Duration::from_secs(60));
    assert_said(&examined(&engine).await, &[(Note, "behind this machine's")]);
}

#[tokio::test]
async fn what_cannot_be_seen_or_done_is_said_instead_of_failing() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    let user = |name: &str, rules: &[&str]| {
        let reset = ["ACL", "SETUSER", name, "reset", "on", ">pw"];
        assert_eq!(cli(engine.address(), &[&reset[..], rules].concat()), "OK");
        RedisConfig::from_url(&format!("redis://{name}:pw@{}/", engine.address())).unwrap()
    };
    let page =
        include_str!("../../../../docs/backends/redis.md").split_once("## Settings that matter").unwrap().1;
    let pasted = page.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let found = format!("redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n", engine.address().port());
    let output = std::process::Command::new("bash").arg("-c").arg(found + pasted).output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"OK"), "{output:?}");
    let url = format!("redis://locker:PASSWORD@{}/", engine.address());
    let checkup = examine(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    assert_said(&checkup, &[(Note, "INFO"), (Note, "CONFIG GET")]);
    assert!(crate::support::locks(&url).await.unwrap().lock("a").try_acquire().await.unwrap().is_some());
    let elsewhere = user("elsewhere", &["~other:*", "&*", "+@all"]);
    assert_said(&examine(elsewhere).await.unwrap(), &[(Problem, "may not EVALSHA, SET, ZADD, EXPIRE on")]);
    let reader = user("reader", &["~*", "&*", "+@all", "-@write", "-eval", "-evalsha"]);
    assert_said(&examine(reader).await.unwrap(), &[(Problem, "may not EVALSHA, SET, ZADD, EXPIRE on")]);
    let stranger = RedisConfig::from_url(&format!("redis://nobody:pw@{}/", engine.address())).unwrap();
    assert_eq!(examine(stranger).await.unwrap_err().kind(), ErrorKind::Denied);

    let managed = with(Config::durable_redis(), &["--rename-command", "CONFIG", ""]);
    assert_said(&examined(&managed).await, &[(Note, "its provider has removed it")]);
    managed.kill();
    assert_eq!(examine(config(managed.address())).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn settings_that_hurt_now_and_then_are_noted() {
    let engine = with(Config::durable_redis(), &["--timeout", "30", "--lua-time-limit", "0"]);
    assert_said(&examined(&engine).await, &[(Note, "timeout 30"), (Note, "lua-time-limit 0")]);
}

#[tokio::test]
async fn a_cluster_is_examined_server_by_server() {
    let buses: Vec<_> = (0..3).map(|_| engines::spare_port()).collect();
    let cluster =
        Config::durable_redis().argument("--cluster-enabled").argument("yes").argument("--cluster-port");
    let start =
        |bus: &engines::Port| engines::private(&cluster.clone().argument(bus.number().to_string())).unwrap();
    let engines: Vec<Engine> = buses.iter().map(start).collect();
    let first = engines[0].address();
    let nodes: Vec<String> = engines.iter().map(|engine| engine.address().to_string()).collect();
    for (engine, (from, to)) in engines.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
        let (port, bus) = (first.port().to_string(), buses[0].number().to_string());
        cli(engine.address(), &["CLUSTER", "ADDSLOTSRANGE", from, to]);
        cli(engine.address(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    until("the cluster stands", async || {
        engines.iter().all(|engine| cli(engine.address(), &["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    })
    .await;
    let url = format!("redis-cluster://{first}");
    let examined = async || examine(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let checkup = examined().await;
    assert_said(&checkup, &[]);
    assert!(checkup.findings[0].what.contains("3 servers"), "{checkup:?}");
    assert!(nodes.iter().all(|node| checkup.subject.contains(node)), "{}", checkup.subject);
    cli(engines[2].address(), &["CONFIG", "SET", "appendfsync", "everysec"]);
    assert_said(&examined().await, &[(Note, &format!("{}: the disk may lack the last second", nodes[2]))]);
    engines[2].kill();
    assert_said(&examined().await, &[(Problem, &format!("{} cannot be queried", nodes[2]))]);
}

/// Three servers that know nothing of each other.
fn three() -> Vec<Engine> {
    (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect()
}

fn redlock(nodes: Vec<String>) -> RedlockConfig {
    RedlockConfig::new(nodes.iter().map(|node| format!("redis://{node}/")).collect())
}

/// All tests are on one machine, which is a problem of its own.
const ONE_MACHINE: (Severity, &str) = (Problem, "are on one machine (this machine)");

#[tokio::test]
async fn nodes_of_redlock_are_examined_together() {
    let engines = three();
    let nodes = redlock(engines.iter().map(|engine| engine.address().to_string()).collect());
    let new = examine_redlock(&nodes).await.unwrap();
    assert_said(&new, &[ONE_MACHINE, (Note, "no node has ever voted")]);
    assert!(new.findings.iter().any(|finding| finding.what.contains("1 may fail")), "{new:?}");

    for (engine, longest) in engines.iter().zip(["300000", "300000", "60000"]) {
        let info = cli(engine.address(), &["INFO", "server"]);
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim();
        cli(engine.address(), &["SET", "tollgate:member", &format!("{run} 7 {longest}")]);
        cli(engine.address(), &["SET", &format!("tollgate:member:{run}"), "7"]);
    }
    let differ = examine_redlock(&nodes).await.unwrap();
    assert_said(&differ, &[ONE_MACHINE, (Problem, "the longest ttl is 300s in this URL")]);
    cli(engines[2].address(), &["FLUSHALL"]);
    cli(engines[1].address(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let emptied = examine_redlock(&nodes).await.unwrap();
    let third = engines[2].address().to_string();
    let waits = format!("{third} does not vote");
    assert_said(&emptied, &[ONE_MACHINE, (Note, &waits), (Note, "would evict locks")]);

    engines[2].kill();
    let killed = examine_redlock(&nodes).await.unwrap();
    assert_said(
        &killed,
        &[ONE_MACHINE, (Problem, &format!("{third} cannot be queried")), (Note, "would evict locks")],
    );
}

#[tokio::test]
async fn nodes_that_are_not_independent_are_a_problem() {
    let engines = three();
    let [first, second, third] = [0, 1, 2].map(|index| engines[index].address());
    cli(third, &["REPLICAOF", "127.0.0.1", &first.port().to_string()]);
    until("it has a replica", async || cli(first, &["INFO", "replication"]).contains("connected_slaves:1"))
        .await;
    let checkup =
        examine_redlock(&redlock([first, second, third].map(|node| node.to_string()).into())).await.unwrap();
    let replica = format!("{third} is a replica of {first}");
    let new = (Note, "no node has ever voted");
    assert_said(&checkup, &[ONE_MACHINE, new, (Problem, &replica), (Note, &format!("{first} has replicas"))]);

    cli(third, &["REPLICAOF", "NO", "ONE"]);
    until("it has none", async || cli(first, &["INFO", "replication"]).contains("connected_slaves:0")).await;
    let again = format!("localhost:{}", first.port());
    let four = redlock(vec![first.to_string(), again, second.to_string(), third.to_string()]);
    let checkup = examine_redlock(&four).await.unwrap();
    assert_said(&checkup, &[ONE_MACHINE, new, (Problem, "4 nodes"), (Problem, "are the same server")]);
    let sentinel = RedlockConfig::new(vec!["redis-sentinel://127.0.0.1/main".to_owned()]);
    assert_eq!(examine_redlock(&sentinel).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
}
