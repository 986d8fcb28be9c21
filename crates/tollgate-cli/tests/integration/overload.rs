//! `tollgate run` at a PostgreSQL that has no time or no room for it: a command that waits tries again.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

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
    fn of(engine: &Engine, count: usize) -> Self {
        let port = engine.address().port().to_string();
        let keep = |_| {
            let mut psql = Command::new("psql");
            psql.args(["-XAtq", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
            psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut psql = psql.spawn().unwrap();
            // It keeps its connection as long as its input is open.
            psql.stdin.as_mut().unwrap().write_all(b"select 'connected';\n").unwrap();
            let mut said = [0; 10];
            psql.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
            psql
        };
        Self((0..count).map(keep).collect())
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
    let kept = Kept::of(&engine, 6);
    is_told_at_once(&sandbox, &url, "no connections left");
    let mut waits = tries_again(&sandbox, &url);
    drop(kept);
    assert_eq!(waits.code(), 0, "{}", sandbox.read("said"));
}
