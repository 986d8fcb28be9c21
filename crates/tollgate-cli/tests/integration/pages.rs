//! Every block of commands on every page is executed as it stands, or says why it is not.
//!
//! A block that is not Rust has a comment before it, which readers of the rendered page do not see:
//!
//! - `test: run`: the lines that begin with `$ ` are run in one shell, without an engine but files;
//! - `test: server`: the same, with a server of its own in the place of 127.0.0.1:7420;
//! - `test: redis` (or another engine): the same with that engine in place of the hosts that the page names;
//! - `test: elsewhere, PATH::NAME`: the test of that name in that file executes it;
//! - `not run: REASON`.
//!
//! `, exit N` says with which code the last command ends. Blocks of Rust are compiled and run as doctests; one that is only
//! compiled has the reason before it, too.

use std::path::{Path, PathBuf};

use crate::support::server::Server;
use crate::support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config, Engine};

/// A block with what is to be done about it.
struct Block {
    page: String,
    line: usize,
    language: String,
    marker: Option<String>,
    lines: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages that are written for people.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/backends"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let name = page.strip_prefix(root()).unwrap().display().to_string();
    let (mut blocks, mut before) = (Vec::<Block>::new(), String::new());
    let mut is_open = false;
    for (number, line) in std::fs::read_to_string(page).unwrap().lines().enumerate() {
        let line = line.trim_start_matches("> ");
        match line.trim_start().strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(language) => {
                let marker = before.trim().strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
                blocks.push(Block {
                    page: name.clone(),
                    line: number + 1,
                    language: language.to_owned(),
                    marker: marker.map(str::to_owned),
                    lines: Vec::new(),
                });
                is_open = true;
            }
            None if is_open => blocks.last_mut().unwrap().lines.push(line.to_owned()),
            None => {}
        }
        before = line.to_owned();
    }
    blocks
}

/// Whether doctests run it: a block of Rust that is not marked otherwise.
fn is_doctest(block: &Block) -> bool {
    let mut words = block.language.split(',');
    words.next() == Some("rust") && !words.any(|word| ["no_run", "ignore"].contains(&word))
}

#[test]
fn every_block_is_executed_or_says_why_not() {
    let blocks = blocks();
    assert!(blocks.len() > 50, "only {} blocks are found", blocks.len());
    let mut troubles = Vec::new();
    for block in &blocks {
        let place = format!("{}:{}", block.page, block.line);
        let Some(marker) = &block.marker else {
            if !is_doctest(block) {
                troubles.push(format!("{place}: no comment says whether it is executed"));
            }
            continue;
        };
        if let Some(test) = marker.strip_prefix("test: elsewhere, ") {
            let found = test.rsplit_once("::").is_some_and(|(path, name)| {
                let source = std::fs::read_to_string(root().join(path)).unwrap_or_default();
                source.contains(&format!("fn {name}("))
            });
            if !found {
                troubles.push(format!("{place}: there is no test {test}"));
            }
        } else if let Some(how) = marker.strip_prefix("test: ") {
            let engine = how.split(", ").next().unwrap_or_default();
            if !["run", "server", "redis", "redlock", "postgres", "mariadb", "etcd", "zookeeper"]
                .contains(&engine)
            {
                troubles.push(format!("{place}: there is no engine {engine}"));
            }
        } else if marker.strip_prefix("not run: ").is_none_or(|reason| reason.trim().is_empty()) {
            troubles.push(format!("{place}: {marker:?} says neither how it is executed nor why it is not"));
        }
    }
    assert!(troubles.is_empty(), "{}", troubles.join("\n"));
}

#[test]
fn commands_that_need_no_engine_work_when_pasted() {
    assert!(run_all("run", |script| script.to_owned()) > 0);
}

#[test]
fn commands_for_a_server_work_when_pasted() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let address = server.address.to_string();
    assert!(run_all("server", |script| script.replace("127.0.0.1:7420", &address)) > 0);
}

#[test]
fn commands_on_redis_work_when_pasted() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (address, port) = (engine.address().to_string(), engine.address().port());
    run_all("redis", |script| {
        let script = with_authority(script, &["redis"], &address);
        format!(
            "redis-cli() {{ command redis-cli -p {port} \"$@\"; }}\n{}",
            with_url("redis", &address, &script)
        )
    });
}

#[test]
fn commands_on_redlock_work_when_pasted() {
    let nodes: Vec<Engine> = (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let address = addresses.join(",");
    run_all("redlock", |script| {
        with_url("redlock", &address, &with_authority(script, &["redlock"], &address))
    });
}

#[test]
fn commands_on_postgres_work_when_pasted() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = format!("postgres@{}", engine.address());
    run_all("postgres", |script| {
        let script = with_database(
            &with_authority(script, &["postgres", "postgresql"], &address),
            &address,
            "postgres",
        );
        format!(
            "export DATABASE_URL=postgres://{address}/postgres\n{}",
            with_url("postgres", &address, &script)
        )
    });
}

#[test]
fn commands_on_mariadb_work_when_pasted() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let address = format!("root@{}", engine.address());
    run_all("mariadb", |script| {
        let script =
            with_database(&with_authority(script, &["mysql", "mariadb"], &address), &address, "test");
        format!("export TOLLGATE_URL=mysql://{address}/test\n{script}")
    });
}

#[test]
fn commands_on_etcd_work_when_pasted() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let address = engine.address().to_string();
    run_all("etcd", |script| {
        let script = with_authority(script, &["etcd"], &address);
        format!("export ETCDCTL_API=3 ETCDCTL_ENDPOINTS={address}\n{}", with_url("etcd", &address, &script))
    });
}

#[test]
fn commands_on_zookeeper_work_when_pasted() {
    let engine = engines::private(&Config::zookeeper().argument("maxSessionTimeout=60000")).unwrap();
    let address = engine.address().to_string();
    run_all("zookeeper", |script| {
        with_url("zookeeper", &address, &with_authority(script, &["zookeeper"], &address))
    });
}

fn with_url(scheme: &str, address: &str, script: &str) -> String {
    format!("export TOLLGATE_URL={scheme}://{address}/\n{script}")
}

/// Puts `authority` in the place of the hosts in URLs of these schemes.
fn with_authority(script: &str, schemes: &[&str], authority: &str) -> String {
    let mut script = script.to_owned();
    for scheme in schemes {
        let start = format!("{scheme}://");
        let mut from = 0;
        while let Some(found) = script[from..].find(&start) {
            let begin = from + found + start.len();
            let length =
                script[begin..].find(|c: char| "/?\"' \n)".contains(c)).unwrap_or(script.len() - begin);
            script.replace_range(begin..begin + length, authority);
            from = begin + authority.len();
        }
    }
    script
}

/// Puts `database` in the place of the one that follows `authority`.
fn with_database(script: &str, authority: &str, database: &str) -> String {
    let mut script = script.to_owned();
    let start = format!("{authority}/");
    let mut from = 0;
    while let Some(found) = script[from..].find(&start) {
        let begin = from + found + start.len();
        let length = script[begin..].find(|c: char| "?\"' \n)".contains(c)).unwrap_or(script.len() - begin);
        script.replace_range(begin..begin + length, database);
        from = begin + database.len();
    }
    script
}

/// Runs every block of `engine`, each in a sandbox of its own; answers how many there were.
fn run_all(engine: &str, adapt: impl Fn(&str) -> String) -> usize {
    let mut count = 0;
    for block in blocks() {
        let Some(how) = block.marker.as_deref().and_then(|marker| marker.strip_prefix("test: ")) else {
            continue;
        };
        let mut words = how.split(", ");
        if words.next() != Some(engine) {
            continue;
        }
        let code = words.find_map(|word| word.strip_prefix("exit ")).map_or(0, |code| code.parse().unwrap());
        let sandbox = Sandbox::new();
        let commands = commands(&block);
        let (last, first) = commands.split_last().expect("a block has a command");
        let first: String = first.iter().map(|command| format!("{command} || exit 99\n")).collect();
        let script = format!("{first}{last}");
        let output = sandbox.bash(&adapt(&script)).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{}:{}:\n{script}\n{}\n{}",
            block.page,
            block.line,
            text(&output.stdout),
            text(&output.stderr)
        );
        count += 1;
    }
    count
}

/// The commands of a block: in a console those after a prompt, with the lines that continue them; else all of it.
fn commands(block: &Block) -> Vec<String> {
    if block.language != "console" {
        return vec![block.lines.join("\n")];
    }
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in &block.lines {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push(command.to_owned()),
            None if goes_on => {
                let last = commands.last_mut().expect("a command is continued");
                last.push('\n');
                last.push_str(line.strip_prefix("> ").unwrap_or(line));
            }
            None => {}
        }
        goes_on = (line.starts_with("$ ") || goes_on) && line.trim_end().ends_with('\\');
    }
    assert!(!commands.is_empty(), "{}:{} has no command", block.page, block.line);
    // A comment behind a command would swallow what is appended to it.
    commands.iter().map(|command| format!("{{ {command}\n}}")).collect()
}
