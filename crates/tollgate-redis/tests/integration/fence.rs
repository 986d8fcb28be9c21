//! Data in Redis that refuses stale tokens: the rule, scripts of users, and what is said when something is wrong.

use std::process::Command;

use crate::support::fenced::{connection, on_shared, shared, writer};
use crate::support::{cli, locks};
use redis::AsyncCommands;
use tollgate_core::{ErrorKind, Fence, Locks};
use tollgate_redis::{FencedScript, RedisFence};
use tollgate_testkit::engines::{self, Config};

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
            "a value of another type",
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
    assert!(wrong.to_string().contains("the script was executed"), "{wrong}");
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
    crate::support::until("the cluster stands", async || {
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

/// What stands between "```LANGUAGE" and "```" on the page, after `heading`.
fn shown(heading: &str, language: &str) -> String {
    let page = include_str!("../../../../docs/backends/redis.md");
    let section = page.split_once(heading).unwrap().1;
    let block = section.split_once(&format!("```{language}\n")).unwrap().1;
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn what_the_page_says_works_when_pasted() {
    let script = shown("## Fencing what is in Redis", "lua");
    let code = |text: &'static str| text.lines().filter(|line| !line.starts_with("--")).map(str::to_owned);
    let ours = code(include_str!("../../src/scripts/fence/gate.lua"));
    let set = code(include_str!("../../src/scripts/fence/set.lua"));
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
