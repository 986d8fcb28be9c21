//! `tollgate doctor`: what is wrong is found and explained, and nothing is changed.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Sandbox, eventually, state, text, until_dead};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A folder in which a lock was taken.
fn used() -> Sandbox {
    let sandbox = Sandbox::new();
    assert!(sandbox.output(&["run", "x", "--", "true"]).status.success());
    sandbox
}

/// The exit code, and what was found: severity and everything said of it.
fn examine(sandbox: &Sandbox) -> (i32, Vec<(String, String)>) {
    let output = sandbox.output(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let found = report["findings"].as_array().unwrap().iter();
    let found = found.map(|finding| (finding["severity"].as_str().unwrap().to_owned(), finding.to_string()));
    (output.status.code().unwrap(), found.collect())
}

fn find(sandbox: &Sandbox, code: i32, severity: &str, words: &[&str]) {
    let (was, found) = examine(sandbox);
    let told = |word: &&str| found.iter().any(|(is, said)| is == severity && said.contains(*word));
    assert!(was == code && words.iter().all(told), "{was}, not {code} with {words:?}: {found:#?}");
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything in a folder that a change would change.
fn snapshot(folder: &Path) -> BTreeMap<String, (u32, i64, Vec<u8>)> {
    let mut seen = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let contents = std::fs::read(&path).unwrap_or_default();
        seen.insert(path.display().to_string(), (metadata.mode(), metadata.mtime_nsec(), contents));
        if metadata.is_dir() {
            seen.extend(snapshot(&path));
        }
    }
    seen
}

#[test]
fn a_healthy_folder_is_called_so_and_left_as_it_was() {
    let sandbox = used();
    let _held = sandbox.start(&["run", "held", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    let before = snapshot(&sandbox.path("locks"));
    find(
        &sandbox,
        0,
        "fine",
        &["file system", "layout 1", "counters are readable", "F_OFD_SETLK", "waited for: 1"],
    );
    assert!(examine(&sandbox).1.iter().all(|(severity, _)| severity != "problem"));
    assert_eq!(snapshot(&sandbox.path("locks")), before, "something was changed");
    let words = text(&sandbox.output(&["doctor"]).stdout);
    assert!(
        words.contains("survive:\n  - a holder is killed") && words.contains("restored from a backup"),
        "{words}"
    );
    assert!(!words.contains('\x1b'), "colours go to a terminal only");
}

#[test]
fn what_is_not_there_yet_is_not_made() {
    let sandbox = Sandbox::new();
    find(&sandbox, 0, "fine", &["does not exist yet"]);
    assert!(!sandbox.path("locks").exists());
    std::fs::create_dir(sandbox.path("locks")).unwrap();
    find(&sandbox, 0, "fine", &["no lock was ever taken"]);
    assert_eq!(std::fs::read_dir(sandbox.path("locks")).unwrap().count(), 0);
}

#[test]
fn permissions_that_do_not_fit_are_found() {
    let sandbox = used();
    let folder = sandbox.path("locks");
    chmod(&folder, 0o777);
    find(
        &sandbox,
        78,
        "problem",
        &["all users can delete", "chmod +t", "counters has mode", "locks has mode"],
    );
    chmod(&folder, 0o1777);
    chmod(&folder.join("locks"), 0o1777);
    chmod(&folder.join("counters"), 0o666);
    chmod(&folder.join("version"), 0o666);
    find(&sandbox, 0, "fine", &["all other users"]);
    let _held = sandbox.start(&["run", "held", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    find(&sandbox, 0, "fine", &["waited for: 1"]);
    let file = std::fs::read_dir(folder.join("locks")).unwrap().next().unwrap().unwrap().path();
    chmod(&file, 0o644);
    find(&sandbox, 78, "problem", &["has mode 0644"]);
    chmod(&file, 0o666);
    chmod(&folder.join("counters"), 0o600);
    find(&sandbox, 78, "problem", &["chmod 0666"]);
}

#[test]
fn a_damaged_counter_is_a_problem_and_a_torn_slot_is_not() {
    let sandbox = used();
    let path = sandbox.path("locks/counters");
    let good = std::fs::read(&path).unwrap();
    let counters = std::fs::File::options().write(true).open(&path).unwrap();
    counters.write_all_at(b"oops", 8).unwrap();
    find(&sandbox, 0, "note", &["1 of the 512 slots"]);
    counters.write_all_at(b"oops", 4096 + 8).unwrap();
    let damaged = std::fs::read(&path).unwrap();
    find(&sandbox, 78, "problem", &["both slots of shard 0"]);
    assert_eq!(std::fs::read(&path).unwrap(), damaged, "evidence was overwritten");
    std::fs::write(&path, &good[..100]).unwrap();
    find(&sandbox, 78, "problem", &["100 bytes"]);
    std::fs::remove_file(&path).unwrap();
    find(&sandbox, 78, "problem", &["the file is missing"]);
}

#[test]
fn another_layout_and_a_file_in_the_way_are_problems() {
    let sandbox = used();
    std::fs::write(sandbox.path("locks/version"), "tollgate file layout 2\n").unwrap();
    find(&sandbox, 78, "problem", &["layout 2"]);
    std::fs::remove_dir_all(sandbox.path("locks")).unwrap();
    std::fs::write(sandbox.path("locks"), "").unwrap();
    find(&sandbox, 78, "problem", &["is not a folder"]);
}

#[test]
fn what_was_left_behind_is_named() {
    let sandbox = used();
    std::fs::write(sandbox.path("locks/mine.txt"), "").unwrap();
    assert!(sandbox.output(&["acquire", "dead", "--ttl", "60s"]).status.success());
    let dead = sandbox.holders("dead").remove(0);
    kill_process(Pid::from_raw(dead.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    until_dead(&dead);
    assert!(sandbox.output(&["acquire", "alive", "--ttl", "60s"]).status.success());
    // Holders elsewhere are this user's, too, so they are not counted here.
    let socket = format!("(first {}", sandbox.path("run/tollgate").display());
    find(&sandbox, 0, "note", &["mine.txt", "left of locks that are not in use", &socket]);
    find(&sandbox, 0, "fine", &["waited for: 1", "locks for scripts: "]);
    let nobody = examine(&sandbox).1.iter().any(|(_, said)| said.contains("locks for scripts: 0"));
    assert!(!nobody, "one lives");
    assert_eq!(sandbox.holders("alive").len(), 1, "the one that lives was not disturbed");
}

#[test]
fn a_lock_whose_holder_is_stopped_is_named() {
    let sandbox = used();
    assert!(sandbox.output(&["acquire", "stuck", "--ttl", "60s"]).status.success());
    let holder = sandbox.holders("stuck").remove(0);
    let pid = Pid::from_raw(holder.parse().unwrap()).unwrap();
    let is_stopped = || state(&holder) == Some('T');
    kill_process(pid, Signal::STOP).unwrap();
    eventually("it is stopped", || is_stopped().then_some(()));
    find(&sandbox, 0, "note", &["stuck", &format!("kill -CONT {holder}")]);
    kill_process(pid, Signal::CONT).unwrap();
    eventually("it goes on", || (!is_stopped()).then_some(()));
    let noted = examine(&sandbox).1.iter().any(|(_, said)| said.contains("kill -CONT"));
    assert!(!noted, "it goes on");
}

#[test]
fn a_damaged_lock_in_use_is_a_problem() {
    let sandbox = used();
    let _held = sandbox.start(&["run", "bad", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    for file in std::fs::read_dir(sandbox.path("locks/locks")).unwrap() {
        let file = std::fs::File::options().write(true).open(file.unwrap().path()).unwrap();
        file.write_all_at(b"oops", 20).unwrap();
    }
    find(&sandbox, 78, "problem", &["damaged while in use"]);
}

#[test]
fn a_network_file_system_is_refused() {
    let sandbox = Sandbox::new();
    let (source, shim) = (sandbox.path("nfs.c"), sandbox.path("nfs.so"));
    let code = "#include <sys/vfs.h>\n#include <string.h>\n\
        int statfs(const char *p, struct statfs *s) { memset(s, 0, sizeof *s); s->f_type = 0x6969; return 0; }\n\
        int statfs64(const char *p, struct statfs *s) { return statfs(p, s); }\n";
    std::fs::write(&source, code).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).status().unwrap();
    assert!(compiled.success());
    let output = sandbox.tollgate(&["doctor"]).env("LD_PRELOAD", &shim).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stdout).contains("on NFS"), "{}", text(&output.stdout));
}

#[test]
fn memory_has_nothing_to_examine_and_a_bad_url_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let memory = sandbox.output(&["doctor", "memory:"]);
    assert_eq!(memory.status.code(), Some(0));
    assert!(text(&memory.stdout).contains("nothing to examine"), "{}", text(&memory.stdout));
    assert_eq!(sandbox.output(&["doctor", "nats://x"]).status.code(), Some(2));
}

/// Only root may do what these do: mount file systems, change users.
mod as_root {
    use super::*;

    /// Runs a script where it may mount file systems that nobody else sees; `tollgate` is `$1`.
    fn with_mounts(sandbox: &Sandbox, script: &str) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_tollgate")]);
        command.current_dir(sandbox.path("")).env("XDG_RUNTIME_DIR", sandbox.path("run"));
        command.stdin(Stdio::null()).env_remove("TOLLGATE_URL").output().unwrap()
    }

    #[test]
    fn a_disk_that_is_memory_full_or_read_only_is_told_of() {
        let sandbox = Sandbox::new();
        let script = "set -e; mkdir disk; mount -t tmpfs -o size=2m none disk; U=file:$PWD/disk/locks
            $1 run --url $U a -- true
            $1 doctor $U >memory; echo $? >>memory
            cat /dev/zero >disk/full 2>/dev/null || true
            $1 doctor $U >full || echo $? >>full
            rm disk/full; mount -o remount,ro disk
            $1 doctor $U >read-only || echo $? >>read-only";
        let output = with_mounts(&sandbox, script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for (file, words, code) in [
            ("memory", "tmpfs", "0"),
            ("full", "the disk is full", "78"),
            ("read-only", "is read-only", "78"),
        ] {
            let said = sandbox.read(file);
            assert!(said.contains(words) && said.trim().ends_with(code), "{file}: {said}");
        }
    }

    #[test]
    fn a_folder_that_may_not_be_looked_at_is_unavailable() {
        let sandbox = used();
        chmod(&sandbox.path("locks"), 0o700);
        chmod(&sandbox.path(""), 0o755);
        let binary = sandbox.copy_of_tollgate();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
        let output = command.args(["doctor", &sandbox.url()]).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("permission"), "{}", text(&output.stderr));
    }

    #[test]
    fn groups_that_do_not_fit_are_found() {
        let sandbox = used();
        let folder = sandbox.path("locks");
        let _held = sandbox.start(&["run", "held", "--", "sh", "-c", "echo >held; sleep 60"]);
        sandbox.wait_for("held");
        let file = std::fs::read_dir(folder.join("locks")).unwrap().next().unwrap().unwrap().path();
        for path in
            [folder.clone(), folder.join("locks"), folder.join("counters"), folder.join("version"), file]
        {
            std::os::unix::fs::chown(&path, None, Some(4242)).unwrap();
            chmod(&path, if path.is_dir() { 0o2770 } else { 0o660 });
        }
        find(&sandbox, 0, "fine", &["group 4242"]);
        std::os::unix::fs::chown(folder.join("counters"), None, Some(4243)).unwrap();
        find(&sandbox, 78, "problem", &["chgrp 4242"]);
    }
}
