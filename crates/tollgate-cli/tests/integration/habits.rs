//! Command lines that are usual with other lock tools, and the places where a command finds its
//! engine.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Sandbox, redis_cli, text};
use tollgate_testkit::engines::{self, Config};

/// The command line that the first line of an error advises.
fn advice(stderr: &[u8]) -> String {
    let said = text(stderr);
    let line = said.lines().next().unwrap_or_default();
    line.split_once("after --: ")
        .map_or_else(|| panic!("no advice in {said}"), |(_, advice)| advice.to_owned())
}

#[test]
fn a_command_without_dashes_is_advised_and_the_advice_works() {
    let sandbox = Sandbox::new();
    for script in
        ["tollgate run x echo hi", "tollgate run -n --ttl 5s x sh -c 'echo hi'", "tollgate elect x echo hi"]
    {
        let refused = sandbox.bash(script).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{script}");
        let done = sandbox.bash(&advice(&refused.stderr)).output().unwrap();
        assert_eq!(text(&done.stdout), "hi\n", "{}", text(&done.stderr));
    }
    for word in ["lock", "exec", "with"] {
        let refused = sandbox.output(&[word, "x", "--", "true"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("tollgate run NAME -- COMMAND"), "{}", text(&refused.stderr));
    }
}

#[test]
fn options_of_flock_mean_the_same() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(&["run", "x", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    for busy in [&["run", "-n"][..], &["run", "--nonblock"], &["run", "-w", "0.2"], &["run", "-w", "200ms"]] {
        let output = sandbox.output(&[busy, &["x", "--", "true"]].concat());
        assert_eq!(output.status.code(), Some(75), "{busy:?}: {}", text(&output.stderr));
    }
    let zero = sandbox.output(&["run", "--ttl", "0", "y", "--", "true"]);
    assert_eq!(zero.status.code(), Some(2));
    assert!(text(&zero.stderr).contains("--ttl 30s"), "{}", text(&zero.stderr));
}

#[test]
fn a_url_may_stand_on_either_side_of_the_sub_command() {
    let sandbox = Sandbox::new();
    let url = format!("file:{}", sandbox.path("elsewhere").display());
    let holder = sandbox.start(&["run", "--url", &url, "x", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    for words in [&["--url", &url, "ls"][..], &["ls", "--url", &url], &[&format!("--url={url}"), "ls"]] {
        let listed = sandbox.output(words);
        assert!(text(&listed.stdout).contains('x'), "{words:?}: {}", text(&listed.stderr));
    }
    for words in [&["--url", &url, "doctor"][..], &["doctor", "--url", &url], &["doctor", &url]] {
        let examined = text(&sandbox.output(words).stdout);
        assert!(examined.contains("elsewhere"), "{words:?}: {examined}");
    }
    assert_eq!(sandbox.output(&["doctor", "--url", &url, "file:other"]).status.code(), Some(2));
    let schema = sandbox.output(&["sql-schema", "--url", "postgres://db/shop"]);
    assert!(text(&schema.stdout).contains("create table"), "{}", text(&schema.stderr));
    let missing = sandbox.tollgate(&["sql-schema"]).env_remove("TOLLGATE_URL").output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("postgres://db/shop"), "{}", text(&missing.stderr));
    drop(holder);
}

#[test]
fn a_command_does_not_find_the_url_unless_it_is_passed() {
    let sandbox = Sandbox::new();
    let script = "env | grep -c ^TOLLGATE_URL=; tollgate ls; echo $?";
    let kept = sandbox.bash(&format!("tollgate run x -- bash -c '{script}'")).output().unwrap();
    assert_eq!(text(&kept.stdout), "0\n2\n", "{}", text(&kept.stderr));
    assert!(text(&kept.stderr).contains("--pass-url"), "{}", text(&kept.stderr));
    let passed = sandbox.bash(&format!("tollgate run --pass-url x -- bash -c '{script}'")).output().unwrap();
    let said = text(&passed.stdout);
    assert!(said.starts_with("1\n") && said.contains('x') && said.ends_with("0\n"), "{said}");
    // Where nothing was in the environment, nothing is kept from the command.
    let plain = sandbox.bash("unset TOLLGATE_URL; tollgate run x -- bash -c 'tollgate ls'").output().unwrap();
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
}

#[test]
fn the_url_may_lie_in_a_file() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("url"), format!("{}\nignored\n", sandbox.url())).unwrap();
    let from_file = |path: &str| {
        let mut command = sandbox.tollgate(&["run", "x", "--", "sh", "-c", "echo ${TOLLGATE_URL_FILE-none}"]);
        command.env_remove("TOLLGATE_URL").env("TOLLGATE_URL_FILE", sandbox.path(path)).output().unwrap()
    };
    assert_eq!(text(&from_file("url").stdout), "none\n");
    let missing = from_file("missing");
    assert_eq!(missing.status.code(), Some(78), "{}", text(&missing.stderr));
    std::fs::write(sandbox.path("empty"), "\n").unwrap();
    assert_eq!(from_file("empty").status.code(), Some(78));
}

#[test]
fn a_password_is_taken_from_where_the_engines_own_tools_look() {
    let engine = engines::private(&Config::redis()).unwrap();
    assert_eq!(redis_cli(engine.address(), &["CONFIG", "SET", "requirepass", "s3cret"]), "OK");
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let run = |password: &str| {
        let mut command = sandbox.tollgate(&["run", "--url", &url, "x", "--", "echo", "in"]);
        command.env("REDISCLI_AUTH", password).output().unwrap()
    };
    assert_eq!(text(&run("s3cret").stdout), "in\n");
    assert_eq!(run("wrong").status.code(), Some(77));
}

#[test]
fn a_password_file_that_others_may_read_is_not_read() {
    let (sandbox, address) = (Sandbox::new(), engines::shared(&Config::postgres()).address());
    let file = sandbox.path("pgpass");
    std::fs::write(&file, "*:*:*:postgres:any\n").unwrap();
    let run = |mode| {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let url = format!("postgres://postgres@{address}/postgres?namespace=pgpass");
        let mut command = sandbox.tollgate(&["run", "--url", &url, "x", "--", "true"]);
        command.env("PGPASSFILE", &file).output().unwrap()
    };
    assert!(run(0o600).stderr.is_empty());
    assert!(text(&run(0o644).stderr).contains("chmod 600"));
}

#[test]
fn nobody_leads_is_1() {
    let sandbox = Sandbox::new();
    for words in [&["leader", "x"][..], &["leader", "x", "--json"]] {
        assert_eq!(sandbox.output(words).status.code(), Some(1), "{words:?}");
    }
    let leads = sandbox.start(&["elect", "x", "--", "sh", "-c", "echo >leads; sleep 60"]);
    sandbox.wait_for("leads");
    assert_eq!(sandbox.output(&["leader", "x"]).status.code(), Some(0));
    drop(leads);
}

#[test]
fn secrets_are_not_echoed() {
    let sandbox = Sandbox::new();
    let advised = sandbox.output(&["--url", "redis://:s3cret@h", "run", "x", "echo", "hi"]);
    assert!(text(&advised.stderr).contains("run --url URL x -- echo hi"), "{}", text(&advised.stderr));
    for url in [
        "memory:s3cret",
        "s3cret@host:1",
        "redis://h/?s3cret=x@y",
        "redis://:pa?s3cret@h/",
        "nonsense://u:s3cret@h/",
    ] {
        let refused = sandbox.output(&["run", "--url", url, "x", "--", "true"]);
        assert!(matches!(refused.status.code(), Some(2 | 78)), "{url}: {}", text(&refused.stderr));
        assert!(!text(&refused.stderr).contains("s3cret"), "{url}: {}", text(&refused.stderr));
    }
}
