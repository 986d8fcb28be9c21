//! Folders that cannot hold locks: a sentence, the right exit code, no lock granted and nothing lost.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Sandbox, text};

/// Asserts that the command did not run, with one of `codes` and a sentence with one of `words`.
fn refused(sandbox: &Sandbox, output: &Output, codes: &[i32], words: &[&str]) {
    let said = text(&output.stderr);
    assert!(codes.contains(&output.status.code().expect("it was not killed")), "{:?}: {said}", output.status);
    assert!(words.iter().any(|word| said.contains(word)), "{said}");
    assert!(!sandbox.path("ran").exists(), "the command ran without a lock");
}

fn run_at(sandbox: &Sandbox, folder: &Path) -> Output {
    sandbox.output(&["run", "--url", &format!("file:{}", folder.display()), "x", "--", "touch", "ran"])
}

#[test]
fn a_folder_that_cannot_be_written() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("forbidden");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    std::fs::set_permissions(sandbox.path(""), std::fs::Permissions::from_mode(0o777)).unwrap();
    let url = format!("file:{}", folder.display());
    let mut command = if rustix::process::geteuid().is_root() {
        // Nothing is forbidden to root.
        let binary = sandbox.copy_of_tollgate();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_tollgate"))
    };
    let output = command
        .args(["run", "--url", &url, "x", "--", "touch", "ran"])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    refused(&sandbox, &output, &[78], &["permission", "Permission", "writ"]);
}

#[test]
fn a_file_where_a_folder_should_be() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "").unwrap();
    refused(&sandbox, &run_at(&sandbox, &sandbox.path("file")), &[78], &["folder", "director"]);
    refused(&sandbox, &run_at(&sandbox, &sandbox.path("file/below")), &[78], &["folder", "director"]);
}

#[test]
fn a_damaged_counter() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("locks");
    assert!(run_at(&sandbox, &folder).status.success());
    std::fs::remove_file(sandbox.path("ran")).unwrap();
    let counters = folder.join("counters");
    let good = std::fs::read(&counters).unwrap();
    for bad in [vec![], vec![0xff; good.len()], good[..good.len() / 2].to_vec(), vec![0; good.len()]] {
        std::fs::write(&counters, &bad).unwrap();
        refused(&sandbox, &run_at(&sandbox, &folder), &[69, 78], &["counters"]);
        assert_eq!(std::fs::read(&counters).unwrap(), bad, "evidence was overwritten");
    }
    std::fs::remove_file(&counters).unwrap();
    refused(&sandbox, &run_at(&sandbox, &folder), &[69, 78], &["counters"]);
    std::fs::write(&counters, good).unwrap();
    assert!(run_at(&sandbox, &folder).status.success(), "a repaired folder works again");
}

#[test]
fn a_damaged_lock_file_hides_no_other() {
    let sandbox = Sandbox::new();
    let _bad = sandbox.start(&["run", "bad", "--", "sh", "-c", "echo >bad; sleep 60"]);
    sandbox.wait_for("bad");
    for file in std::fs::read_dir(sandbox.path("locks/locks")).unwrap() {
        let file = std::fs::File::options().write(true).open(file.unwrap().path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"oops", 20).unwrap();
    }
    let _good = sandbox.start(&["run", "good", "--", "sh", "-c", "echo >good; sleep 60"]);
    sandbox.wait_for("good");
    let listed = sandbox.output(&["ls"]);
    assert_eq!(listed.status.code(), Some(78));
    assert!(text(&listed.stdout).contains("good"), "{}", text(&listed.stdout));
    assert!(text(&listed.stderr).contains("damaged"), "{}", text(&listed.stderr));
}

#[test]
fn a_network_file_system() {
    let sandbox = Sandbox::new();
    let (source, shim) = (sandbox.path("nfs.c"), sandbox.path("nfs.so"));
    let code = "#include <sys/vfs.h>\n#include <string.h>\n\
        int statfs(const char *p, struct statfs *s) { memset(s, 0, sizeof *s); s->f_type = 0x6969; return 0; }\n\
        int fstatfs(int f, struct statfs *s) { return statfs(\"\", s); }\n\
        int statfs64(const char *p, struct statfs *s) { return statfs(p, s); }\n\
        int fstatfs64(int f, struct statfs *s) { return statfs(\"\", s); }\n";
    std::fs::write(&source, code).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).status().unwrap();
    assert!(compiled.success());
    let mut command = sandbox.tollgate(&["run", "x", "--", "touch", "ran"]);
    let output = command.env("LD_PRELOAD", &shim).output().unwrap();
    refused(&sandbox, &output, &[78], &["NFS"]);
}

#[test]
fn too_few_descriptors() {
    let sandbox = Sandbox::new();
    let script = "ulimit -n 9; exec \"$1\" run x -- touch ran";
    let output = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tollgate")])
        .env("TOLLGATE_URL", sandbox.url())
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    assert!([0, 69, 70].contains(&code), "{code}: {}", text(&output.stderr));
    assert_eq!(sandbox.path("ran").exists(), code == 0);
}

/// Only root may do what these do: mount file systems, change users.
mod as_root {
    use super::*;

    /// A shell in which the user is root over its own mounts.
    fn shell_with_mounts(sandbox: &Sandbox, script: &str) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_tollgate")]);
        command
            .current_dir(sandbox.path(""))
            .stdin(Stdio::null())
            .env_remove("TOLLGATE_URL")
            .output()
            .expect("unshare runs")
    }

    #[test]
    fn a_full_disk() {
        let sandbox = Sandbox::new();
        let script =
            "set -e; mkdir disk; mount -t tmpfs -o size=1m none disk; export TOLLGATE_URL=file:$PWD/disk/locks
            $1 run a -- sh -c 'echo $TOLLGATE_TOKEN >first'
            set +e; cat /dev/zero >disk/full 2>/dev/null
            $1 run b -- touch ran; echo $? >code
            rm disk/full; set -e
            $1 run a -- sh -c 'echo $TOLLGATE_TOKEN >second'
            $1 run b -- true";
        let output = shell_with_mounts(&sandbox, script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        // An idle lock may need no room at all; then it is granted as ever.
        let code = sandbox.read("code");
        assert!(["69", "78", "0"].contains(&code.trim()), "{code}: {}", text(&output.stderr));
        if code.trim() != "0" {
            assert!(!sandbox.path("ran").exists());
            assert!(
                text(&output.stderr).contains("full") || text(&output.stderr).contains("space"),
                "{}",
                text(&output.stderr)
            );
        }
        let token = |name| sandbox.read(name).trim().parse::<u64>().unwrap();
        assert!(token("second") > token("first"));
    }

    #[test]
    fn a_full_disk_for_a_new_folder() {
        let sandbox = Sandbox::new();
        let script = "set -e; mkdir disk; mount -t tmpfs -o size=64k none disk; set +e; cat /dev/zero >disk/full 2>/dev/null
            $1 run --url file:$PWD/disk/locks b -- touch ran; echo $? >code
            rm disk/full; $1 run --url file:$PWD/disk/locks b -- true; echo $? >again";
        let output = shell_with_mounts(&sandbox, script);
        assert!(
            ["69", "78"].contains(&sandbox.read("code").trim()),
            "{}: {}",
            sandbox.read("code"),
            text(&output.stderr)
        );
        assert!(!sandbox.path("ran").exists());
    }

    #[test]
    fn a_read_only_file_system() {
        let sandbox = Sandbox::new();
        let script = "set -e; mkdir disk; mount -t tmpfs -o size=1m none disk; mkdir disk/locks; mount -o remount,ro disk; set +e
            $1 run --url file:$PWD/disk/locks b -- touch ran; echo $? >code";
        let output = shell_with_mounts(&sandbox, script);
        assert_eq!(sandbox.read("code").trim(), "78", "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains("read-only") || text(&output.stderr).contains("Read-only"),
            "{}",
            text(&output.stderr)
        );
    }

    #[test]
    fn too_few_threads() {
        let sandbox = Sandbox::new();
        let binary = sandbox.copy_of_tollgate();
        std::fs::set_permissions(sandbox.path(""), std::fs::Permissions::from_mode(0o777)).unwrap();
        // A user of whom there are no other processes: the limit counts them all.
        let user = 1_000_000_000 + std::process::id();
        let mut codes = Vec::new();
        for limit in 1..=8 {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups"]);
            command.args(["prlimit", &format!("--nproc={limit}")]).arg(&binary);
            command.args(["run", "--url", &sandbox.url(), "x", "--", "touch", "ran"]);
            let output = command.current_dir(sandbox.path("")).output().unwrap();
            let code = output.status.code().unwrap();
            // 126: the lock was there, but no process for the command.
            assert!([0, 69, 126].contains(&code), "{limit}: {code}: {}", text(&output.stderr));
            assert_eq!(sandbox.path("ran").exists(), code == 0);
            let _ = std::fs::remove_file(sandbox.path("ran"));
            codes.push(code);
        }
        assert!(codes.first() == Some(&69) && codes.last() == Some(&0), "{codes:?}");
    }
}
