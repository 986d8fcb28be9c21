//! What tests need beside Rust and a C compiler, and how it comes onto the machine.

use std::process::{Command, Stdio};

/// A program, and the Debian package it comes in.
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
];

/// Installs what is missing, or says what is.
pub(crate) fn install() -> Result<(), String> {
    if !is_root() {
        return Err(
            "the tests mount small file systems and change users, which is root's to do; run them as root, \
                    or with sudo -E env \"PATH=$PATH\" cargo xtask test"
                .to_owned(),
        );
    }
    let missing: Vec<_> = NEEDED.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    println!("installing {}", packages.join(", "));
    if !is_there("apt-get") {
        return Err(format!("the tests need {}; install what provides them", names(&missing)));
    }
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())
        .map_err(|error| format!("{error}; the tests need {}", names(&missing)))
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
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
