//! Data in Redis that refuses stale tokens: the rule, scripts of users, and holders that come too late.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use support::{cli, locks};
use tollgate_core::{ErrorKind, Fence, Locks};
use tollgate_redis::{FencedScript, RedisFence};
use tollgate_testkit::engines::{self, Config};

fn shared() -> SocketAddr {
    engines::shared(&Config::redis()).address()
}

/// A user's own connection.
async fn connection(address: SocketAddr) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://{address}/")).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn on_shared() -> (Locks, MultiplexedConnection) {
    (locks(&format!("redis://{}/", shared())).await.unwrap(), connection(shared()).await)
}

/// The proof of a holder that has left meanwhile; a later one's is larger.
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

fn assert_refused<T: std::fmt::Debug>(answer: tollgate_core::Result<T>, stale: Fence, highest: Fence) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let words = error.to_string();
    assert!(words.contains(&stale.to_string()) && words.contains(&highest.to_string()), "{words}");
}

#[tokio::test]
async fn a_stale_token_is_refused_by_every_operation_and_an_equal_one_is_not() {
    let (locks, mut redis) = on_shared().await;
    let (old, new) = (writer(&locks, "ops").await, writer(&locks, "ops").await);
    let fence = RedisFence::around("ops").unwrap();
    fence.admit(&mut redis, old).await.unwrap();
    fence.set(&mut redis, "ops", "old", old).await.unwrap();
    fence.admit(&mut redis, new).await.unwrap();
    let seen: String = redis.get("ops").await.unwrap();
    assert_eq!(seen, "old");
    assert_refused(fence.admit(&mut redis, old).await, old, new);
    assert_refused(fence.set(&mut redis, "ops", "late", old).await, old, new);
    assert_refused(fence.hset(&mut redis, "ops:h", "f", 1, old).await, old, new);
    assert_refused(fence.del(&mut redis, "ops", old).await, old, new);
    let count = FencedScript::new("return redis.call('INCR', KEYS[1])");
    assert_refused(fence.run::<_, i64>(&mut redis, count.key("ops:n"), old).await, old, new);
    let left: (String, bool, bool) = (
        redis.get("ops").await.unwrap(),
        redis.exists("ops:h").await.unwrap(),
        redis.exists("ops:n").await.unwrap(),
    );
    assert_eq!(left, ("old".to_owned(), false, false), "nothing of a refused call is done");

    fence.set(&mut redis, "ops", b"\xff\x00".as_slice(), new).await.unwrap();
    fence.hset(&mut redis, "ops:h", "f", 7, new).await.unwrap();
    let stored: (Vec<u8>, i64) = (redis.get("ops").await.unwrap(), redis.hget("ops:h", "f").await.unwrap());
    assert_eq!(stored, (b"\xff\x00".to_vec(), 7));
    assert!(fence.del(&mut redis, "ops", new).await.unwrap());
    assert!(!fence.del(&mut redis, "ops", new).await.unwrap(), "it is gone already");
    assert_eq!(fence.run::<_, i64>(&mut redis, count.key("ops:n"), new).await.unwrap(), 1);
    let mark: (u64, i64) = (redis.get("{ops}:mark").await.unwrap(), redis.ttl("{ops}:mark").await.unwrap());
    assert_eq!(mark, (u64::from(new), -1), "the mark stays when the data is deleted, and has no ttl");
}

#[tokio::test]
async fn a_reader_raises_nothing_and_a_permit_has_no_fence() {
    let (locks, mut redis) = on_shared().await;
    let first = writer(&locks, "modes").await;
    let early = reader(&locks, "modes").await;
    let second = writer(&locks, "modes").await;
    let late = reader(&locks, "modes").await;
    let fence = RedisFence::around("modes").unwrap();
    fence.admit(&mut redis, late).await.unwrap();
    assert!(!redis.exists::<_, bool>(fence.mark()).await.unwrap(), "a reader leaves no mark");
    fence.admit(&mut redis, first).await.unwrap();
    fence.admit(&mut redis, early).await.unwrap();
    fence.admit(&mut redis, second).await.unwrap();
    assert_refused(fence.admit(&mut redis, early).await, early, second);
    fence.admit(&mut redis, late).await.unwrap();
    fence.admit(&mut redis, second).await.unwrap();

    let permit = locks.lock("permits").permit(2).acquire().await.unwrap();
    assert_eq!(permit.fence().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_users_script_sees_its_own_keys_and_arguments_and_its_answers_come_back_unchanged() {
    let (locks, mut redis) = on_shared().await;
    let token = writer(&locks, "script").await;
    let fence = RedisFence::around("script").unwrap();
    let echo = FencedScript::new(
        "local leaks = pcall(function() return mark end)
        return { #KEYS, #ARGV, KEYS[1] or '', KEYS[2] or '', ARGV[1], ARGV[2], leaks and 'leaks' or 'none' }",
    );
    let call = echo.key("a").key("b").arg("x").arg(2);
    let seen: Vec<String> = fence.run(&mut redis, call, token).await.unwrap();
    assert_eq!(seen, ["2", "2", "a", "b", "x", "2", "none"]);
    let several = echo.call().arg(&[1, 2, 3][..]);
    let seen: Vec<String> = fence.run(&mut redis, several, token).await.unwrap();
    assert_eq!(seen, ["0", "3", "", "", "1", "2", "none"]);

    let nothing = FencedScript::new("return nil");
    assert_eq!(fence.run::<_, Option<i64>>(&mut redis, nothing.call(), token).await.unwrap(), None);
    let flagged = FencedScript::new("#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])");
    let read =
        fence.run::<_, Option<String>>(&mut redis, flagged.key("script"), reader(&locks, "script").await);
    assert_eq!(read.await.unwrap(), None, "the first line still is the first");

    for (text, kind, says) in [
        ("\n\nerror('own trouble')", ErrorKind::Unexpected, "user_script:3: own trouble"),
        ("return redis.error_reply('MINE of my own')", ErrorKind::Unexpected, "of my own"),
        (
            "redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 1)",
            ErrorKind::InvalidArgument,
            "kind",
        ),
        ("return 'a' .. {}", ErrorKind::Unexpected, "user_script:1"),
        ("this is no Lua", ErrorKind::Unexpected, "compiling"),
    ] {
        let script = FencedScript::new(text);
        let error =
            fence.run::<_, redis::Value>(&mut redis, script.key("script:k"), token).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.downcast_ref::<redis::RedisError>().is_some(), "{text}: {source}");
    }
    let wrong =
        fence.run::<_, i64>(&mut redis, FencedScript::new("return 'x'").call(), token).await.unwrap_err();
    assert!(wrong.to_string().contains("did what it does"), "{wrong}");
}

#[tokio::test]
async fn a_redis_that_forgot_the_scripts_is_told_them_again() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&format!("redis://{}/", engine.address())).await.unwrap();
    let (mut redis, fence) = (connection(engine.address()).await, RedisFence::around("a").unwrap());
    for value in 1..3 {
        let token = writer(&locks, "a").await;
        fence.set(&mut redis, "a", value, token).await.unwrap();
        cli(engine.address(), &["SCRIPT", "FLUSH"]);
    }
    assert_eq!(cli(engine.address(), &["GET", "a"]), "2");
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_written() {
    let (locks, mut redis) = on_shared().await;
    let token = writer(&locks, "wrong").await;
    let fence = RedisFence::around("wrong").unwrap();
    for (kind, make) in
        [("a list", vec!["LPUSH", "{wrong}:mark", "x"]), ("text", vec!["SET", "{wrong}:mark", "x"])]
    {
        cli(shared(), &["DEL", "{wrong}:mark"]);
        cli(shared(), &make);
        let error = fence.set(&mut redis, "wrong", 1, token).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{kind}: {error}");
        assert!(error.to_string().contains("{wrong}:mark"), "{kind}: {error}");
    }
    cli(shared(), &["DEL", "{wrong}:mark"]);
    let two = fence.set(&mut redis, "wrong", vec!["a", "b"], token).await.unwrap_err();
    assert_eq!(two.kind(), ErrorKind::InvalidArgument, "{two}");
    cli(shared(), &["SET", "wrong:s", "1"]);
    let no_hash = fence.hset(&mut redis, "wrong:s", "f", 1, token).await.unwrap_err();
    assert_eq!(no_hash.kind(), ErrorKind::InvalidArgument, "{no_hash}");
    assert_eq!(cli(shared(), &["EXISTS", "wrong"]), "0");

    cli(shared(), &["ACL", "SETUSER", "narrow", "reset", "on", ">pw", "+@all", "~wrong"]);
    let client = redis::Client::open(format!("redis://narrow:pw@{}/", shared())).unwrap();
    let mut narrow = client.get_multiplexed_async_connection().await.unwrap();
    let denied = fence.set(&mut narrow, "wrong", 1, token).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(denied.to_string().contains("{wrong}:mark"), "{denied}");

    let lost = engines::private(&Config::redis()).unwrap();
    let mut cut = connection(lost.address()).await;
    lost.kill();
    let unknown = fence.set(&mut cut, "wrong", 1, token).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Indeterminate, "{unknown}");
}

#[tokio::test]
async fn keys_and_mark_are_in_one_slot_of_a_cluster() {
    let bus = engines::spare_port();
    let config = Config::redis().argument("--cluster-enabled").argument("yes");
    let config = config.argument("--cluster-port").argument(bus.number().to_string());
    let engine = engines::private(&config).unwrap();
    cli(engine.address(), &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    support::until("the cluster stands", async || {
        cli(engine.address(), &["CLUSTER", "INFO"]).contains("cluster_state:ok")
    })
    .await;
    let (locks, _) = on_shared().await;
    let (token, mut redis) = (writer(&locks, "cluster").await, connection(engine.address()).await);
    for (resource, key) in
        [("plain", "plain"), ("{t}", "{t}:total"), ("a:{t}:b", "a:{t}:b"), ("od{d", "od{d")]
    {
        let fence = RedisFence::around(resource).unwrap();
        fence.set(&mut redis, key, 1, token).await.unwrap();
        assert_eq!(cli(engine.address(), &["GET", key]), "1");
    }
    let elsewhere =
        RedisFence::around("plain").unwrap().set(&mut redis, "other", 1, token).await.unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::InvalidArgument, "{elsewhere}");
    assert!(elsewhere.to_string().contains("{tag}"), "{elsewhere}");
}

/// Two writers that leave the lock before they write, one of them often late. What arrived, in that order, and how
/// many writes were refused.
async fn race(name: &'static str, fenced: bool) -> (Vec<u64>, usize) {
    let log = FencedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let mut writers = Vec::new();
    for late in [false, true] {
        let log = log.clone();
        writers.push(tokio::spawn(async move {
            let (locks, mut redis) = on_shared().await;
            let fence = RedisFence::around(name).unwrap();
            let mut refused = 0;
            for round in 0..1000 {
                let token = writer(&locks, name).await;
                if late && round % 2 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if !fenced {
                    let _: u64 = redis.rpush(name, u64::from(token)).await.unwrap();
                    continue;
                }
                let call = log.key(name).arg(u64::from(token));
                match fence.run::<_, u64>(&mut redis, call, token).await {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Lost => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            refused
        }));
    }
    let mut refused = 0;
    for writer in writers {
        refused += writer.await.unwrap();
    }
    let arrived = on_shared().await.1.lrange(name, 0, -1).await.unwrap();
    (arrived, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_racing_writers_no_stale_one_writes_after_a_newer_and_without_the_fence_some_do() {
    let (arrived, refused) = race("race", true).await;
    assert!(arrived.is_sorted(), "a stale write came after a newer");
    assert!(refused > 0, "they did not meet");
    assert_eq!(arrived.len() + refused, 2000, "no other write is lost");
    let (unfenced, _) = race("race-unfenced", false).await;
    assert!(!unfenced.is_sorted(), "the same run without the fence shows nothing");
}

const ASKED: &str = "FENCE_HOLDER";

/// A process that takes the lock, reads, and writes when it is told to.
#[tokio::test]
#[ignore = "the other side of the test below"]
async fn helper_process() {
    let asked = std::env::var(ASKED).unwrap();
    let [address, key, how] = asked.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let (locks, mut redis) =
        (locks(&format!("redis://{address}/")).await.unwrap(), connection(address).await);
    let guard = locks.lock(key).ttl(Duration::from_millis(500)).acquire().await.unwrap();
    let fence = RedisFence::around(key).unwrap();
    fence.admit(&mut redis, guard.fence().unwrap()).await.unwrap();
    let seen: String = redis.get(key).await.unwrap();
    // Checked a moment ago, and then the process stands still.
    let proof = guard.fence().unwrap();
    println!("@read {seen}");
    std::io::stdin().lines().next().unwrap().unwrap();
    let value = format!("{seen} late");
    if how == "fenced" {
        match fence.set(&mut redis, key, value, proof).await {
            Ok(()) => println!("@written"),
            Err(error) => println!("@{:?}, guard valid: {}", error.kind(), guard.fence().is_ok()),
        }
    } else {
        let () = redis.set(key, value).await.unwrap();
        println!("@written");
    }
}

/// The process, killed when it is dropped.
struct Holder(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Holder {
    fn start(address: SocketAddr, key: &str, how: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper_process", "--ignored", "--nocapture"])
            .env(ASKED, format!("{address} {key} {how}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    fn hear(&mut self) -> String {
        self.1.by_ref().map(Result::unwrap).find_map(|line| Some(line.split_once('@')?.1.to_owned())).unwrap()
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A holder is stopped beyond its ttl, another takes over and writes, and the first one goes on. What the first one
/// said, and what is there in the end.
async fn overtaken(key: &str, how: &str) -> (String, String) {
    let (locks, mut redis) = on_shared().await;
    let () = redis.set(key, "begun").await.unwrap();
    let mut holder = Holder::start(shared(), key, how);
    assert_eq!(holder.hear(), "read begun");
    holder.signal("-STOP");
    let guard = locks.lock(key).wait(Duration::from_secs(30)).acquire().await.unwrap();
    let fence = RedisFence::around(key).unwrap();
    fence.admit(&mut redis, guard.fence().unwrap()).await.unwrap();
    let seen: String = redis.get(key).await.unwrap();
    fence.set(&mut redis, key, format!("{seen} next"), guard.fence().unwrap()).await.unwrap();
    holder.signal("-CONT");
    writeln!(holder.0.stdin.as_ref().unwrap(), "write").unwrap();
    (holder.hear(), redis.get(key).await.unwrap())
}

#[tokio::test]
async fn a_paused_holder_cannot_write_and_without_the_fence_it_destroys_what_came_after() {
    let fenced = overtaken("paused", "fenced").await;
    assert_eq!(fenced, ("Lost, guard valid: false".to_owned(), "begun next".to_owned()));
    let plain = overtaken("paused-unfenced", "plain").await;
    assert_eq!(plain, ("written".to_owned(), "begun late".to_owned()), "the other's write is lost");
}

/// What stands between "```LANGUAGE" and "```" on the page, after `heading`.
fn shown(heading: &str, language: &str) -> String {
    let page = include_str!("../../../docs/backends/redis.md");
    let section = page.split_once(heading).unwrap().1;
    let block = section.split_once(&format!("```{language}\n")).unwrap().1;
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn what_the_page_says_works_when_pasted() {
    let script = shown("## Fencing what is in Redis", "lua");
    let code = |text: &'static str| text.lines().filter(|line| !line.starts_with("--")).map(str::to_owned);
    let ours = code(include_str!("../src/scripts/fence/gate.lua"));
    let set = code(include_str!("../src/scripts/fence/set.lua"));
    let told: Vec<_> = script.lines().filter(|line| !line.starts_with("--")).map(str::to_owned).collect();
    assert_eq!(told, ours.chain(set).collect::<Vec<_>>(), "the page shows the script that runs");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fenced-set.lua"), script).unwrap();
    let engine = engines::private(&Config::redis()).unwrap();
    // The page's redis-cli is one that knows no port.
    let found = format!("redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n", engine.address().port());
    let pasted = found + &shown("## Fencing what is in Redis", "sh");
    let output = Command::new("bash").arg("-c").arg(pasted).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let said: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(said, ["OK", "FENCED 1002 was here already, the token 1001 is stale", "17"]);

    // Callers in other languages may pass anything.
    let file = folder.path().join("fenced-set.lua").display().to_string();
    let marked = ["--eval", &file, "total", "{total}:mark", ",", "0"];
    for wrong in [["0", "exclusive"], ["x", "exclusive"], ["9007199254740992", "exclusive"], ["1003", "both"]]
    {
        let answer = cli(engine.address(), &[&marked[..], &wrong].concat());
        assert!(answer.contains("BADTOKEN"), "{wrong:?}: {answer}");
    }
    assert_eq!(cli(engine.address(), &["MGET", "total", "{total}:mark"]), "17\n1002", "nothing was changed");
}
