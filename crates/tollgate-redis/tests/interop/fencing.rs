//! The fence in Python, as the documentation shows it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tollgate_testkit::clients;
use tollgate_testkit::engines::{self, Config, Engine};

const ADMIT: &str = "return redis.status_reply('OK')";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/fencing").join(name)
}

/// Runs the example as `tollgate run` does.
fn count_with(engine: &Engine, token: u64) -> Output {
    count_of(engine, "total", token)
}

fn count_of(engine: &Engine, resource: &str, token: u64) -> Output {
    let mut python = Command::new(clients::python(env!("CARGO_TARGET_TMPDIR")));
    python.arg(example("redis_counter.py")).arg(format!("redis://{}/", engine.address())).arg(resource);
    python.env("TOLLGATE_TOKEN", token.to_string()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).trim().to_owned()
}

pub(crate) fn a_stale_token_is_refused_by_the_example() {
    let engine = engines::private(&Config::redis()).unwrap();
    for (token, count) in [(1001, "1"), (1001, "2"), (1002, "3")] {
        let output = count_with(&engine, token);
        assert!(output.status.success() && said(&output) == count, "{token}: {}", said(&output));
    }
    let stale = count_with(&engine, 1001);
    assert_eq!(stale.status.code(), Some(1));
    assert_eq!(said(&stale), "refused: FENCED 1002 was here already, the token 1001 is stale");
    let last = count_with(&engine, 1003);
    assert_eq!(said(&last), "4", "the stale holder has written");
}

/// The mark is the key that Tollgate's own fence uses: each refuses what the other one has seen a later holder of.
pub(crate) fn the_example_and_tollgate_fence_one_resource() {
    let engine = engines::private(&Config::redis()).unwrap();
    for (resource, mark) in [
        ("plain", "{plain}:mark"),
        ("{order:42}:items", "{order:42}:mark:{order:42}:items"),
        ("x{{a}y", "{{a}:mark:x{{a}y"),
        ("a{b", "{a{b}:mark"),
    ] {
        let first = count_of(&engine, resource, 7);
        assert_eq!(said(&first), "1", "{resource}");
        assert_eq!(redis_cli(&engine, &["GET", mark]), "7", "{resource}");
        assert_eq!(redis_cli(&engine, &["SET", mark, "9"]), "OK");
        let stale = count_of(&engine, resource, 8);
        assert_eq!(stale.status.code(), Some(1), "{resource}: {}", said(&stale));
    }
    for wrong in ["a}b", ""] {
        assert!(said(&count_of(&engine, wrong, 1)).contains("{tag}"), "{wrong}");
    }
}

/// Each script, as any client calls it.
pub(crate) fn the_scripts_admit_read_and_write() {
    let engine = engines::private(&Config::redis()).unwrap();
    let run = |name: &str, keys_and_args: &[&str]| {
        let script = example(name).display().to_string();
        redis_cli(&engine, &[&["--eval", &script][..], keys_and_args].concat())
    };
    assert_eq!(run("admit.lua", &["{r}:mark", ",", "5", "exclusive"]), "OK");
    assert!(run("admit.lua", &["{r}:mark", ",", "4", "exclusive"]).contains("FENCED 5 was here already"));
    assert_eq!(run("write.lua", &["{r}", "{r}:mark", ",", "new", "5", "exclusive"]), "OK");
    assert_eq!(run("read.lua", &["{r}", "{r}:mark", ",", "5", "shared"]), "new");
    for (name, rest) in [
        ("write.lua", &["{r}", "{r}:mark", ",", "old", "4", "exclusive"][..]),
        ("read.lua", &["{r}", "{r}:mark", ",", "4", "exclusive"]),
    ] {
        let refused = run(name, rest);
        assert!(refused.contains("FENCED 5 was here already"), "{name}: {refused}");
    }
    assert!(run("admit.lua", &["{r}:mark", ",", "none", "exclusive"]).contains("BADTOKEN"));
    assert_eq!(redis_cli(&engine, &["GET", "{r}"]), "new", "a stale holder has written");
}

fn redis_cli(engine: &Engine, words: &[&str]) -> String {
    let (host, port) = (engine.address().ip().to_string(), engine.address().port().to_string());
    let output = Command::new("redis-cli").args(["-h", &host, "-p", &port]).args(words).output().unwrap();
    said(&output)
}

pub(crate) fn the_scripts_are_those_that_run() {
    let code = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("--")).map(str::to_owned).collect()
    };
    let gate = code(include_str!("../../src/scripts/fence/gate.lua"));
    for (name, last) in [
        ("admit.lua", ADMIT),
        ("read.lua", "return redis.call('GET', KEYS[1])"),
        ("write.lua", "return redis.call('SET', KEYS[1], ARGV[1])"),
    ] {
        let shown = code(&std::fs::read_to_string(example(name)).unwrap());
        assert_eq!(
            shown,
            [&gate[..], &[last.to_owned()]].concat(),
            "{name} is not the gate that Tollgate runs"
        );
    }
}
