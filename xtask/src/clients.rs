//! The lock clients that Tollgate is tested beside: made once, in a folder of the build's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{metadata, must, root};
use crate::tidy::read;

/// What says which versions, for Python and for Node.
const PINNED: [&str; 2] = ["requirements.txt", "package.json"];
/// Written when everything else is there.
const COMPLETE: &str = "complete";
/// The parts that are tested beside them.
const TESTED_IN: [&str; 3] = ["redis", "mysql", "cli"];

/// Installs the clients for tests of these parts, unless they are there in the versions that are asked for.
pub(crate) fn install(parts: &[&str]) -> Result<(), String> {
    if !parts.iter().any(|part| TESTED_IN.contains(part)) {
        return Ok(());
    }
    let (folder, pinned) = (target()?.join("interop"), pinned()?);
    if is_complete(&folder, &pinned) {
        return Ok(());
    }
    println!("installing redis-py, PyMySQL and node-redlock");
    make(&folder).map_err(|error| {
        format!("{error}; the tests need these clients, which come over the network from PyPI and npm")
    })?;
    write(&folder.join(COMPLETE), &pinned)
}

fn sources() -> PathBuf {
    root().join("crates/tollgate-redis/tests/interop")
}

fn pinned() -> Result<String, String> {
    PINNED.iter().map(|name| read(&sources().join(name))).collect()
}

/// Where this build is, wherever it was told to be.
fn target() -> Result<PathBuf, String> {
    let metadata = metadata()?;
    let folder =
        metadata["target_directory"].as_str().ok_or("cargo metadata does not say where it builds")?;
    Ok(PathBuf::from(folder))
}

/// Whether they are there and start: a Python that was upgraded leaves an environment that does not.
fn is_complete(folder: &Path, pinned: &str) -> bool {
    let starts = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    fs::read_to_string(folder.join(COMPLETE)).is_ok_and(|made| made == pinned)
        && starts(Command::new(python(folder)).args(["-c", "import redis, pymysql"]))
        && starts(
            Command::new("node").args(["-e", "require('redlock'), require('ioredis')"]).current_dir(folder),
        )
}

fn python(folder: &Path) -> PathBuf {
    folder.join("venv/bin/python")
}

fn make(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for name in PINNED {
        write(&folder.join(name), &read(&sources().join(name))?)?;
    }
    must(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(folder))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PINNED[0]];
    must(Command::new(python(folder)).args(pip).current_dir(folder))?;
    let npm = ["install", "--loglevel=error", "--no-audit", "--no-fund", "--no-package-lock"];
    must(Command::new("npm").args(npm).current_dir(folder))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_that_needs_clients_is_there() {
        for name in TESTED_IN {
            assert!(crate::parts::PARTS.iter().any(|part| part.name == name), "there is no part {name}");
        }
    }

    #[test]
    fn versions_are_exact() {
        let requirements = read(&sources().join(PINNED[0])).unwrap();
        assert!(requirements.lines().all(|line| line.contains("==")), "{requirements}");
        let package: serde_json::Value =
            serde_json::from_str(&read(&sources().join(PINNED[1])).unwrap()).unwrap();
        for (name, version) in package["dependencies"].as_object().unwrap() {
            assert!(version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()), "{name}");
        }
    }

    #[test]
    fn a_folder_that_was_made_for_other_versions_is_not_complete() {
        let folder = std::env::temp_dir().join(format!("xtask-clients-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(!is_complete(&folder, "a"), "nothing is there");
        write(&folder.join(COMPLETE), "b").unwrap();
        assert!(!is_complete(&folder, "a"));
        write(&folder.join(COMPLETE), "a").unwrap();
        assert!(!is_complete(&folder, "a"), "it does not start");
        fs::remove_dir_all(&folder).unwrap();
    }
}
