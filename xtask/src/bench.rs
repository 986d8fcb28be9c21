//! `cargo xtask bench`: the engine alone, `file:` and `memory:`, and other people's locks beside ours.

use std::path::PathBuf;
use std::process::Command;

use crate::cargo::{cargo, must, root};
use crate::needs;

/// What can be measured without anything from outside the workspace.
const OWN: &[&str] = &["engine", "file", "memory", "fence"];

/// The engines that `bench-peers` starts.
const WITH_PEERS: &[&str] = &[
    "redis",
    "redis-durable",
    "redlock",
    "redlock5",
    "etcd",
    "etcd3",
    "zookeeper",
    "zookeeper3",
    "postgres",
    "mariadb",
];

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    names: Vec<&'a str>,
    /// What comes after `--`, for each.
    options: &'a [String],
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if arguments == ["--check"] {
        return check();
    }
    let asked = Asked::read(arguments)?;
    if asked.names.iter().any(|name| WITH_PEERS.contains(name)) {
        let parts = asked.names.iter().map(|name| if *name == "redlock" { "redis" } else { name });
        needs::install(&parts.collect::<Vec<_>>())?;
        must(peers("build").arg("--release"))?;
    }
    for name in &asked.names {
        println!("\n== {name}");
        match *name {
            "engine" => engine(asked.options)?,
            "file" => file(asked.options)?,
            "fence" => must(&mut cargo(&["bench", "-p", "tollgate-fence", "--bench", "proxy"]))?,
            "memory" => must(tollgate("memory:").args(asked.options))?,
            other => must(peers("run").args(["--release", "--quiet", "--", other]).args(asked.options))?,
        }
    }
    Ok(())
}

impl<'a> Asked<'a> {
    fn read(arguments: &'a [String]) -> Result<Self, String> {
        let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
        let mut names: Vec<&str> = arguments[..end].iter().map(String::as_str).collect();
        let options = arguments.get(end + 1..).unwrap_or_default();
        if let Some(unknown) = names.iter().find(|name| !OWN.contains(name) && !WITH_PEERS.contains(name)) {
            let known = [OWN, WITH_PEERS].concat().join(", ");
            return Err(format!("nothing to measure is called {unknown:?}; there are {known}"));
        }
        if names.is_empty() {
            names = OWN.to_vec();
        }
        Ok(Self { names, options })
    }
}

/// The lock table by itself. Its options are criterion's, and mean nothing to the others.
fn engine(options: &[String]) -> Result<(), String> {
    if !options.is_empty() {
        println!("the engine is measured by criterion and has no such options: {}", options.join(" "));
    }
    must(&mut cargo(&["bench", "-p", "tollgate-engine", "--bench", "engine"]))
}

/// In a folder of the project: what is temporary may not be on a disk.
fn file(options: &[String]) -> Result<(), String> {
    let folder = root().join(format!("target/bench-{}", std::process::id()));
    let measured = must(tollgate(&format!("file:{}", folder.display())).args(options));
    let removed = std::fs::remove_dir_all(&folder);
    measured?;
    removed.map_err(|error| format!("{} cannot be removed: {error}", folder.display()))
}

fn tollgate(url: &str) -> Command {
    cargo(&["run", "--release", "--quiet", "-p", "tollgate-cli", "--", "bench", url])
}

/// The lints and tests of `bench-peers`, which are no part of `cargo xtask check`: its crates come over the
/// network, and nothing else needs them.
fn check() -> Result<(), String> {
    must(peers("clippy").args(["--release", "--all-targets", "--", "-D", "warnings"]))?;
    must(peers("test").arg("--release"))
}

/// Where the peers are.
pub(crate) fn peers_folder() -> PathBuf {
    root().join("bench-peers")
}

/// A call of cargo in the peers' package. From its folder, or cargo would not read its configuration.
fn peers(command: &str) -> Command {
    let mut cargo = cargo(&[command, "--locked"]);
    cargo.current_dir(peers_folder());
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn without_names_everything_of_ours_is_measured() {
        let arguments = words(&["--", "--rounds", "1"]);
        let asked = Asked::read(&arguments).unwrap();
        assert_eq!(asked, Asked { names: OWN.to_vec(), options: &arguments[1..] });
    }

    #[test]
    fn a_name_that_nobody_knows_is_answered_with_those_there_are() {
        let error = Asked::read(&words(&["redis", "oracle"])).unwrap_err();
        assert!(error.contains("\"oracle\"") && error.contains("redlock5"), "{error}");
    }

    #[test]
    fn every_engine_that_can_be_named_is_one_of_the_peers() {
        let source = std::fs::read_to_string(peers_folder().join("src/engine.rs")).unwrap();
        let variants = source.split("enum EngineName {").nth(1).unwrap().split('}').next().unwrap();
        let names =
            variants.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        let there: Vec<String> = names.map(|name| kebab(name.trim_end_matches(','))).collect();
        let named = WITH_PEERS.iter().map(|name| (*name).to_owned());
        assert_eq!(there, named.chain(["file".to_owned()]).collect::<Vec<_>>());
    }

    /// As the command line spells a variant.
    fn kebab(variant: &str) -> String {
        let mut name = String::new();
        for letter in variant.chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }
}
