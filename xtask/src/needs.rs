//! What tests need beside Rust and a C compiler, and how it comes onto the machine.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

/// Something that tests need.
struct Need {
    /// A program, or a file where packages keep it off the path.
    program: &'static str,
    /// The Debian package it comes in.
    package: &'static str,
    by: By,
}

/// Which tests need it.
enum By {
    All,
    /// Those in modules called `as_root`.
    AsRoot,
    /// Those of these parts.
    Parts(&'static [&'static str]),
}

const REDIS: By = By::Parts(&["redis", "fence", "cli", "testkit", "core"]);
const ETCD: By = By::Parts(&["etcd", "fence", "cli", "testkit"]);
const ZOOKEEPER: By = By::Parts(&["zookeeper", "fence", "testkit"]);
const POSTGRES: By = By::Parts(&["postgres", "fence", "cli", "testkit", "core"]);
const MYSQL: By = By::Parts(&["mysql", "fence", "cli", "testkit", "core"]);
const CURATOR: By = By::Parts(&["zookeeper"]);
/// What examples on the pages are written in.
const PAGES: By = By::Parts(&["cli"]);
const MANUAL: By = By::Parts(&["cli"]);
/// Other clients, in Python and JavaScript.
const CLIENTS: By = By::Parts(&["redis", "mysql", "etcd", "zookeeper", "cli"]);

const fn need(program: &'static str, package: &'static str, by: By) -> Need {
    Need { program, package, by }
}

const NEEDED: &[Need] = &[
    need("cc", "gcc", By::All),
    need("env", "coreutils", By::All),
    need("setsid", "util-linux", By::All),
    need("prlimit", "util-linux", By::All),
    need("ps", "procps", By::All),
    need("bash", "bash", By::All),
    need("script", "bsdutils", By::All),
    need("mount", "mount", By::AsRoot),
    need("unshare", "util-linux", By::AsRoot),
    need("setpriv", "util-linux", By::AsRoot),
    need("nsenter", "util-linux", By::AsRoot),
    need("ip", "iproute2", By::AsRoot),
    need("/usr/sbin/iptables", "iptables", By::AsRoot),
    need("man", "man-db", MANUAL),
    need("groff", "groff-base", MANUAL),
    need("redis-server", "redis-server", REDIS),
    need("redis-cli", "redis-tools", REDIS),
    need("etcd", "etcd-server", ETCD),
    need("etcdctl", "etcd-client", ETCD),
    need("/usr/share/java/zookeeper.jar", "zookeeper", ZOOKEEPER),
    need("java", "default-jre-headless", ZOOKEEPER),
    need("/usr/share/java/slf4j-simple.jar", "libslf4j-java", ZOOKEEPER),
    need("javac", "default-jdk-headless", CURATOR),
    need("/usr/share/java/curator-recipes.jar", "libcurator-recipes-java", CURATOR),
    need("/usr/lib/python3/dist-packages/kazoo/__init__.py", "python3-kazoo", CURATOR),
    need("/usr/lib/postgresql/15/bin/postgres", "postgresql-15", POSTGRES),
    need("psql", "postgresql-client", POSTGRES),
    need("/usr/sbin/pgbouncer", "pgbouncer", POSTGRES),
    need("/usr/sbin/mariadbd", "mariadb-server", MYSQL),
    need("mariadb", "mariadb-client", MYSQL),
    need("curl", "curl", PAGES),
    need("php", "php-cli", PAGES),
    need("/usr/lib/php/20220829/pdo_mysql.so", "php-mysql", PAGES),
    need("python3", "python3", CLIENTS),
    need("node", "nodejs", CLIENTS),
    need("npm", "npm", CLIENTS),
];

/// What Debian has apart from Python itself, and other Pythons bring along.
const VENV: Need = need("python3 -m venv", "python3-venv", CLIENTS);

impl Need {
    /// Whether a run of `parts` needs it.
    fn is_of(&self, parts: &[&str], as_root: bool) -> bool {
        match &self.by {
            By::All => true,
            By::AsRoot => as_root,
            By::Parts(those) => parts.iter().any(|part| those.contains(part)),
        }
    }

    fn is_there(&self) -> bool {
        match self.program == VENV.program {
            true => makes_environments(),
            false => is_there(self.program),
        }
    }
}

/// What test programs are called with: without root they leave out the tests in modules called `as_root`.
pub(crate) fn arguments() -> &'static [&'static str] {
    if is_root() { &[] } else { &["--skip", "as_root::"] }
}

/// Installs what is missing for a run of `parts`, or says what is: only root can install packages.
pub(crate) fn install(parts: &[&str]) -> Result<(), String> {
    let missing = missing(parts, is_root());
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if !is_there("apt-get") {
        return Err(format!("the tests need {}; install what provides them", names(&missing)));
    }
    if !is_root() {
        return Err(format!(
            "the tests need {}; install them: sudo apt-get install --no-install-recommends {}",
            names(&missing),
            packages.join(" ")
        ));
    }
    println!("installing {}", packages.join(", "));
    let _quiet = NoServices::start()?;
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())
        .map_err(|error| format!("{error}; the tests need {}", names(&missing)))
}

fn missing(parts: &[&str], as_root: bool) -> Vec<&'static Need> {
    let needed = NEEDED.iter().chain([&VENV]).filter(|need| need.is_of(parts, as_root));
    needed.filter(|need| !need.is_there()).collect()
}

fn makes_environments() -> bool {
    let import = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    import.is_ok_and(|output| output.status.success())
}

fn names(missing: &[&Need]) -> String {
    let name = |need: &&Need| format!("{} (Debian package {})", need.program, need.package);
    missing.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    crate::cargo::must(&mut command)
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Joining an absolute path gives that path.
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Keeps packages from starting services of their own while they are installed: the tests start what they
/// need. A policy that the machine already has stays as it is.
struct NoServices {
    ours: bool,
}

impl NoServices {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn start() -> Result<Self, String> {
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(Self::POLICY);
        match made.and_then(|mut policy| io::Write::write_all(&mut policy, b"#!/bin/sh\nexit 101\n")) {
            Ok(()) => Ok(Self { ours: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Self { ours: false }),
            Err(error) => Err(format!("{} cannot be written: {error}", Self::POLICY)),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(Self::POLICY)
        {
            eprintln!("xtask: {} stays behind: {error}", Self::POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(parts: &[&str], as_root: bool) -> Vec<&'static str> {
        NEEDED.iter().filter(|need| need.is_of(parts, as_root)).map(|need| need.program).collect()
    }

    #[test]
    fn a_part_needs_its_own_engines_and_no_others() {
        assert!(needed(&["redis"], false).contains(&"redis-server"));
        let of_core = needed(&["engine", "file"], false);
        for other in ["redis-server", "etcd", "java", "mariadb", "mount"] {
            assert!(!of_core.contains(&other), "{other}");
        }
        assert!(needed(&["file"], true).contains(&"mount"));
    }

    #[test]
    fn every_need_is_of_parts_that_there_are() {
        for need in NEEDED {
            if let By::Parts(parts) = &need.by {
                let names: Vec<String> = parts.iter().map(ToString::to_string).collect();
                crate::parts::chosen(&names).unwrap();
            }
        }
    }
}
