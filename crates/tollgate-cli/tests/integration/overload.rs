//! `tollgate run` at a PostgreSQL that has no time or no room for it: a command that waits tries again.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, eventually, text};
use tollgate_testkit::engines::{self, Config, Engine};

fn url(engine: &Engine) -> String {
    format!("postgres://postgres@{}/postgres", engine.address())
}

/// A command that waits without a limit, and has said that it tries again.
fn tries_again(sandbox: &Sandbox, url: &str) -> Running {
    let mut command = sandbox.tollgate(&["run", "--url", url, "x", "--", "true"]);
    let running = Running(command.stderr(File::create(sandbox.path("said")).unwrap()).spawn().unwrap());
    eventually("it tries again", || sandbox.read("said").contains("trying again").then_some(()));
    running
}

fn is_told_at_once(sandbox: &Sandbox, url: &str, because: &str) {
    let once = sandbox.output(&["run", "--try", "--url", url, "x", "--", "true"]);
    assert_eq!(once.status.code(), Some(69), "{}", text(&once.stderr));
    let said = text(&once.stderr);
    assert!(said.contains(because) && !said.contains("trying again"), "{said}");
}

#[test]
fn a_command_that_waits_outlasts_a_server_that_does_not_answer_in_time() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let (sandbox, url) = (Sandbox::new(), url(&engine));
    engine.pause();
    is_told_at_once(&sandbox, &url, "did not answer within");
    let mut waits = tries_again(&sandbox, &url);
    engine.resume();
    assert_eq!(waits.code(), 0, "{}", sandbox.read("said"));
}

/// Connections that others keep.
struct Kept(Vec<Child>);

impl Kept {
    /// As many as the server has left.
    fn all(engine: &Engine) -> Self {
        let port = engine.address().port().to_string();
        let keep = || {
            let mut psql = Command::new("psql");
            psql.args(["-XAtq", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
            psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut psql = psql.spawn().unwrap();
            // It keeps its connection as long as its input is open. If it has none, it has ended.
            let _ = psql.stdin.as_mut().unwrap().write_all(b"select 'connected';\n");
            let mut said = [0; 10];
            let connected = psql.stdout.as_mut().unwrap().read_exact(&mut said).is_ok();
            if !connected {
                psql.wait().unwrap();
            }
            connected.then_some(psql)
        };
        Self(std::iter::from_fn(keep).collect())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for psql in &mut self.0 {
            let _ = psql.kill();
            let _ = psql.wait();
        }
    }
}

#[test]
fn a_command_that_waits_outlasts_a_server_without_room() {
    let few = Config::postgres().argument("-c").argument("max_connections=6");
    let engine = engines::private(&few).unwrap();
    let (sandbox, url) = (Sandbox::new(), url(&engine));
    let kept = Kept::all(&engine);
    is_told_at_once(&sandbox, &url, "no connections left");
    let mut waits = tries_again(&sandbox, &url);
    drop(kept);
    assert_eq!(waits.code(), 0, "{}", sandbox.read("said"));
}

/// Others take all connections that are left before the holder's first renewal, which would open one of its own.
#[test]
fn a_holder_keeps_its_lock_on_a_server_without_room() {
    let few = Config::postgres().argument("-c").argument("max_connections=12");
    let engine = engines::private(&few).unwrap();
    let (sandbox, url) = (Sandbox::new(), url(&engine));
    let hold = "echo >held; until test -e go; do sleep 0.02; done";
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "9s", "x", "--", "sh", "-c", hold]);
    sandbox.wait_for("held");
    let held = Instant::now();
    let _kept = Kept::all(&engine);
    // Beyond its ttl.
    while held.elapsed() < Duration::from_secs(11) {
        assert!(holder.0.try_wait().unwrap().is_none(), "it lost its lock: {}", holder.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(holder.code(), 0, "{}", holder.stderr());
}
