//! What a user meets when the folder, the disk or the limits are not as they should be.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use tollgate_core::{Backend, Error, ErrorKind, Mode, Release};

/// Says what went wrong when opening the folder or taking as many locks as it is told.
#[test]
#[ignore = "the other side of the tests below"]
fn helper_that_fails() {
    let Ok(dir) = std::env::var("HELPER_DIR") else { return };
    let locks = std::env::var("HELPER_LOCKS").map_or(1, |locks| locks.parse().unwrap());
    let outcome = try_open(Path::new(&dir)).and_then(|backend| {
        run(async {
            for lock in 0..locks {
                backend.acquire(&claim(&format!("lock/{lock}"), Mode::Exclusive)).await?;
            }
            Ok(())
        })
    });
    match outcome {
        Ok(()) => println!("@fine"),
        Err(error) => println!("@{:?}: {error}", error.kind()),
    }
}

/// Runs the helper that fails from a shell, after `before`; what it said.
fn fail(dir: &Path, before: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    let script =
        format!("{before} exec {} --exact trouble::helper_that_fails --ignored --nocapture", exe.display());
    let output = Command::new("sh").args(["-c", &script]).env("HELPER_DIR", dir).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    output.lines().find_map(|line| line.split_once('@')).unwrap_or_else(|| panic!("{output}")).1.to_owned()
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

/// Runs `test` again where it may mount file systems that nobody else sees; `true` in there.
fn in_own_mounts(test: &str) -> bool {
    const INSIDE: &str = "TOLLGATE_TEST_OWN_MOUNTS";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command
        .arg("--mount")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// A small file system of its own, for as long as it lives.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success());
        Self(dir)
    }

    fn remount(&self, options: &str) {
        let status =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0.path()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn lock_file(dir: &Path) -> PathBuf {
    fs::read_dir(dir.join("locks")).unwrap().next().unwrap().unwrap().path()
}

fn refused(result: tollgate_core::Result<impl Sized>, kind: ErrorKind, sentence: &str) -> Error {
    let error = result.err().expect("this is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(sentence), "{error}");
    error
}

#[test]
fn a_folder_without_permission_is_refused() {
    let parent = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy = parent.path().join("test");
    // By a program: a process that another test starts meanwhile would have the copy open for writing.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let used = parent.path().join("used");
    run(take(&open(&used), "a", Mode::Exclusive));
    for folder in [used.clone(), used.join("locks"), parent.path().to_owned()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
    }
    for folder in [parent.path().join("new"), used.clone()] {
        // Nothing is forbidden to root, so somebody else has to try.
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
            command
        } else {
            Command::new(&copy)
        };
        command
            .args(["--exact", "trouble::helper_that_fails", "--ignored", "--nocapture"])
            .env("HELPER_DIR", &folder);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("@Config: cannot") && said.contains(": no permission"), "{said} {output:?}");
    }
    for folder in [parent.path().to_owned(), used.clone(), used.join("locks")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn too_many_open_files_say_what_to_raise() {
    let dir = tempfile::tempdir().unwrap();
    let said = fail(dir.path(), "HELPER_LOCKS=100 && export HELPER_LOCKS && ulimit -n 40 &&");
    assert!(said.starts_with("Unavailable") && said.contains("ulimit -n"), "{said}");
    let said = fail(dir.path(), "HELPER_LOCKS=100 && export HELPER_LOCKS &&");
    assert_eq!(said, "fine");
}

/// A library loaded before libc answers in its place, so that no network is needed.
#[test]
fn network_file_systems_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let shim = dir.path().join("shim.c");
    for (number, name) in [("0x6969", "NFS"), ("0xfe534d42", "SMB2"), ("0x65735546", "FUSE")] {
        let source = format!(
            "#include <sys/vfs.h>\n#include <string.h>\n\
             int statfs(const char *path, struct statfs *out) {{ memset(out, 0, sizeof *out); out->f_type = {number}; return 0; }}\n"
        );
        fs::write(&shim, source).unwrap();
        let library = dir.path().join(format!("{name}.so"));
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&shim).status().unwrap();
        assert!(built.success());
        let folder = dir.path().join("locks");
        let said = fail(&folder, &format!("LD_PRELOAD={} && export LD_PRELOAD &&", library.display()));
        assert!(said.starts_with("Config") && said.contains(&format!("is on {name},")), "{said}");
    }
    assert_eq!(fail(&dir.path().join("locks"), ""), "fine");
}

#[test]
fn a_damaged_counter_grants_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    assert!(run(is_free(&backend, "a", Mode::Exclusive)), "the first lock makes the folder");
    let counters = dir.path().join("counters");
    let whole = fs::read(&counters).unwrap();
    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(&counters, "").unwrap(),
        &|| fs::write(&counters, &whole[..whole.len() / 2 - 5]).unwrap(),
        &|| fs::write(&counters, vec![0; whole.len()]).unwrap(),
        &|| fs::remove_file(&counters).unwrap(),
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        damage();
        for name in ["a", "b", "c"] {
            // Half a file still counts for the names whose shards are there.
            let taken = run(backend.acquire(&claim(name, Mode::Exclusive)));
            if let (1, Ok(grant)) = (at, &taken) {
                run(backend.release(grant)).unwrap();
                continue;
            }
            let error = refused(taken, ErrorKind::Config, &counters.display().to_string());
            assert!(!error.is_retryable());
            assert_eq!(run(look(&backend, name)), None, "the claim left again");
        }
        if at != 2 {
            refused(try_open(dir.path()), ErrorKind::Config, "damaged");
        }
        if at != 3 {
            fs::write(&counters, &whole).unwrap();
        }
    }
    assert!(!counters.exists(), "nobody made a new one");
}

#[test]
fn a_lock_file_damaged_while_in_use_is_refused_and_heals_when_free() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let file = lock_file(dir.path());
        fs::OpenOptions::new().write(true).open(&file).unwrap().write_all_at(b"oops", 20).unwrap();
        let taken = backend.acquire(&claim("a", Mode::Exclusive)).await;
        refused(taken, ErrorKind::Config, &file.display().to_string());
        assert_eq!(
            backend.release(&held).await.unwrap(),
            Release::Released,
            "what is held can be given back"
        );
        assert!(is_free(&backend, "a", Mode::Exclusive).await);
    });
}

#[test]
fn a_folder_removed_while_in_use_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("locks-here");
    let backend = open(&folder);
    assert!(!folder.exists(), "connecting makes nothing");
    assert!(run(is_free(&backend, "a", Mode::Exclusive)));
    fs::remove_dir_all(&folder).unwrap();
    let taken = run(backend.acquire(&claim("a", Mode::Exclusive)));
    refused(taken, ErrorKind::Config, "removed while in use");
    // Somebody made a new one: its counters are not the ones we opened.
    let other = open(&folder);
    assert!(run(is_free(&other, "b", Mode::Exclusive)));
    let taken = run(backend.acquire(&claim("a", Mode::Exclusive)));
    refused(taken, ErrorKind::Config, "replaced while in use");
    run(take(&other, "a", Mode::Exclusive));
}

#[test]
fn whatever_is_in_the_place_of_the_version_nobody_waits_for_it() {
    let made = |make: &str| {
        let dir = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("sh").arg("-c").arg(make).current_dir(dir.path()).status();
        assert!(status.unwrap().success(), "{make}");
        dir
    };
    for make in ["mkfifo version", "ln -s /dev/zero version", "mkdir version"] {
        let dir = made(make);
        let opened = crate::support::try_open(dir.path()).and_then(|backend| {
            crate::support::run(
                backend.try_acquire(&crate::support::claim("a", tollgate_core::Mode::Exclusive)),
            )
        });
        let error = opened.expect_err(make);
        assert_eq!(error.kind(), tollgate_core::ErrorKind::Config, "{make}: {error}");
    }
}

/// Only root may do what these do: mount file systems, change users.
mod as_root {
    use super::*;

    #[test]
    fn a_full_disk_grants_nothing_breaks_nothing_and_heals() {
        if !in_own_mounts("trouble::as_root::a_full_disk_grants_nothing_breaks_nothing_and_heals") {
            return;
        }
        let mount = Mount::new("1m");
        let dir = mount.0.path();
        let backend = open(dir);
        run(async {
            let held = take(&backend, "held", Mode::Shared).await;
            let filler = fs::File::create(dir.join("filler")).unwrap();
            let mut at = 0;
            while filler.write_all_at(&[7; 4096], at).is_ok() {
                at += 4096;
            }
            let free = claim("another", Mode::Exclusive);
            refused(backend.acquire(&free).await, ErrorKind::Unavailable, "the disk is full");
            backend.withdraw(&free).await.unwrap();
            // Some claims still fit into the page the file has; then the queue cannot grow either.
            let mut readers = Vec::new();
            let error = loop {
                match backend.acquire(&claim("held", Mode::Shared)).await {
                    Ok(grant) => readers.push(grant),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert_eq!(counts(&backend, "held").await, (1 + readers.len(), 0));
            assert_eq!(look(&backend, "another").await, None);
            for grant in readers {
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            }
            // Not removed: a process that another test starts just now may have it open for an instant.
            filler.set_len(0).unwrap();
            let another = backend.acquire(&free).await.unwrap();
            let reader = take(&backend, "held", Mode::Shared).await;
            for grant in [held, another, reader] {
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            }
        });
        let full = Mount::new("128k");
        let claimed = claim("a", Mode::Exclusive);
        refused(run(open(full.0.path()).acquire(&claimed)), ErrorKind::Unavailable, "the disk is full");
        full.remount("size=4m");
        run(take(&open(full.0.path()), "a", Mode::Exclusive));
    }

    #[test]
    fn a_read_only_file_system_is_refused() {
        if !in_own_mounts("trouble::as_root::a_read_only_file_system_is_refused") {
            return;
        }
        let mount = Mount::new("4m");
        mount.remount("ro");
        refused(try_open(mount.0.path()), ErrorKind::Config, "read-only file system");
        mount.remount("rw");
        assert_eq!(fail(mount.0.path(), ""), "fine");
        mount.remount("ro");
        refused(try_open(mount.0.path()), ErrorKind::Config, "read-only file system");
    }
}
