//! What tests need beside Rust and a C compiler, and how it comes onto the machine.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

/// A program (or a file, where packages keep it off the path), and the Debian package it comes in.
const NEEDED: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("env", "coreutils"),
    ("mount", "mount"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("script", "bsdutils"),
    ("ps", "procps"),
    ("bash", "bash"),
    ("prlimit", "util-linux"),
    ("man", "man-db"),
    ("groff", "groff-base"),
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("/usr/share/java/zookeeper.jar", "zookeeper"),
    ("java", "default-jre-headless"),
    ("javac", "default-jdk-headless"),
    ("/usr/share/java/curator-recipes.jar", "libcurator-recipes-java"),
    ("/usr/share/java/slf4j-simple.jar", "libslf4j-java"),
    ("/usr/lib/python3/dist-packages/kazoo/__init__.py", "python3-kazoo"),
    ("/usr/lib/postgresql/15/bin/postgres", "postgresql-15"),
    ("psql", "postgresql-client"),
    ("/usr/sbin/pgbouncer", "pgbouncer"),
    ("/usr/sbin/mariadbd", "mariadb-server"),
    ("mariadb", "mariadb-client"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("npm", "npm"),
];

/// What Debian has apart from Python itself, and other Pythons bring along.
const VENV: (&str, &str) = ("python3 -m venv", "python3-venv");

/// Installs what is missing, or says what is.
pub(crate) fn install() -> Result<(), String> {
    if !is_root() {
        return Err(
            "the tests mount small file systems and change users, which is root's to do; run them as root, \
                    or with sudo -E env \"PATH=$PATH\" cargo xtask test"
                .to_owned(),
        );
    }
    install_missing()
}

/// The same without what only tests do as root: a machine that has everything can measure as anybody.
pub(crate) fn install_missing() -> Result<(), String> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    println!("installing {}", packages.join(", "));
    if !is_there("apt-get") {
        return Err(format!("the tests need {}; install what provides them", names(&missing)));
    }
    let _quiet = NoServices::start()?;
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())
        .map_err(|error| format!("{error}; the tests need {}", names(&missing)))
}

fn missing() -> Vec<&'static (&'static str, &'static str)> {
    let mut missing: Vec<_> = NEEDED.iter().filter(|(program, _)| !is_there(program)).collect();
    if !makes_environments() {
        missing.push(&VENV);
    }
    missing
}

fn makes_environments() -> bool {
    let import = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    import.is_ok_and(|output| output.status.success())
}

fn names(missing: &[&(&str, &str)]) -> String {
    missing
        .iter()
        .map(|(program, package)| format!("{program} (Debian package {package})"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    crate::cargo::must(&mut command)
}

fn is_root() -> bool {
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
