//! A folder that several users write to: none of them may use it to reach another user's files, or to stop
//! the others without permission to write.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::*;
use futures_util::StreamExt;
use tollgate_core::{Backend, ErrorKind, Gate, Mode, Severity};
use tollgate_local::{FileBackend, FileGate, LockedMark, examine};
use tollgate_testkit::gates::shown;

/// The file of the lock "a": the SHA-256 of its name.
const A: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn foreign(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    chmod(path, 0o600);
}

/// Takes the lock "a" with a backend of its own, and gives it back.
fn cycle(dir: &Path) -> tollgate_core::Result<()> {
    let backend = try_open(dir)?;
    run(async {
        let grant = backend.acquire(&claim("a", Mode::Exclusive)).await?;
        backend.release(&grant).await?;
        backend.close().await;
        Ok(())
    })
}

fn listed(backend: &FileBackend) -> Vec<tollgate_core::Result<tollgate_core::LockState>> {
    run(backend.list("").collect())
}

#[test]
fn a_link_in_the_place_of_a_new_file_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, victim) = (dir.path().join("locks-here"), dir.path().join("victim"));
    fs::create_dir(&folder).unwrap();
    chmod(&folder, 0o2770);
    foreign(&victim, "precious");
    for name in ["version.new", "counters.new"] {
        symlink(&victim, folder.join(name)).unwrap();
    }
    cycle(&folder).unwrap();
    run(FileGate::open(&folder).unwrap().admit("r", shown(1, true))).unwrap();
    assert_eq!((fs::read_to_string(&victim).unwrap().as_str(), mode_of(&victim)), ("precious", 0o600));
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused() {
    for name in ["version", "counters"] {
        let dir = tempfile::tempdir().unwrap();
        let (folder, victim) = (dir.path().join("locks-here"), dir.path().join("victim"));
        fs::create_dir(&folder).unwrap();
        foreign(&victim, "precious");
        symlink(&victim, folder.join(name)).unwrap();
        assert_eq!(cycle(&folder).unwrap_err().kind(), ErrorKind::Config, "{name}");
        assert_eq!((fs::read_to_string(&victim).unwrap().as_str(), mode_of(&victim)), ("precious", 0o600));
    }
}

#[test]
fn a_link_in_the_place_of_the_locks_is_refused_and_nothing_behind_it_is_deleted() {
    let used = tempfile::tempdir().unwrap();
    cycle(used.path()).unwrap();
    fs::remove_dir_all(used.path().join("locks")).unwrap();
    for dir in [tempfile::tempdir().unwrap(), used] {
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = elsewhere.path().join(A);
        foreign(&victim, "");
        chmod(elsewhere.path(), 0o700);
        symlink(elsewhere.path(), dir.path().join("locks")).unwrap();
        let error = cycle(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("is a symbolic link"), "{error}");
        if let Ok(backend) = try_open(dir.path()) {
            let seen = listed(&backend);
            assert!(seen.iter().all(Result::is_err), "{seen:?}");
        }
        assert!(victim.exists());
        assert_eq!((fs::read_dir(elsewhere.path()).unwrap().count(), mode_of(elsewhere.path())), (1, 0o700));
        let problems = examine(dir.path()).unwrap().findings;
        let told = problems.iter().any(|finding| {
            finding.severity == Severity::Problem && format!("{finding:?}").contains("is a symbolic link")
        });
        assert!(told, "{problems:#?}");
    }
}

#[test]
fn a_link_in_the_place_of_the_marks_is_refused() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    chmod(elsewhere.path(), 0o700);
    symlink(elsewhere.path(), dir.path().join("marks")).unwrap();
    let error = FileGate::open(dir.path()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("is a symbolic link"), "{error}");
    assert_eq!((fs::read_dir(elsewhere.path()).unwrap().count(), mode_of(elsewhere.path())), (0, 0o700));
}

#[test]
fn a_file_that_tollgate_did_not_make_survives() {
    let dir = tempfile::tempdir().unwrap();
    cycle(dir.path()).unwrap();
    let locks = dir.path().join("locks");
    let backup = locks.join("0123456789abcdef".repeat(4));
    // Longer than what is cut off when a lock's file is idle.
    let content = "precious ".repeat(20_000);
    for file in [&locks.join(A), &backup] {
        foreign(file, &content);
    }
    let backend = open(dir.path());
    assert!(listed(&backend).is_empty());
    let error = cycle(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("is not a file that tollgate created"), "{error}");
    listed(&backend);
    let findings = examine(dir.path()).unwrap().findings;
    assert!(format!("{findings:?}").contains("2 files that tollgate did not create"), "{findings:#?}");
    for file in [locks.join(A), backup] {
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        assert_eq!(mode_of(&file), 0o600);
    }
}

#[test]
fn a_file_that_has_another_name_elsewhere_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    cycle(dir.path()).unwrap();
    let (victim, planted) = (dir.path().join("victim"), dir.path().join("locks").join(A));
    fs::write(&victim, "").unwrap();
    fs::hard_link(&victim, &planted).unwrap();
    let error = cycle(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("is not a file that tollgate created"), "{error}");
    listed(&open(dir.path()));
    assert_eq!(fs::metadata(&victim).unwrap().len(), 0);
    assert!(planted.exists());
}

#[test]
fn a_lock_file_without_its_content_after_a_power_failure_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    cycle(dir.path()).unwrap();
    for length in [0, 1500, 10_000] {
        fs::write(dir.path().join("locks").join(A), vec![0; length]).unwrap();
        cycle(dir.path()).unwrap();
    }
}

#[test]
fn a_pipe_in_the_place_of_a_lock_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    cycle(dir.path()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("locks").join(A)).status().unwrap();
    assert!(made.success());
    assert_eq!(cycle(dir.path()).unwrap_err().kind(), ErrorKind::Config);
    listed(&open(dir.path()));
    assert!(dir.path().join("locks").join(A).exists());
}

/// What is made in a folder of this mode: the files in it, and the mark of a file beside it.
fn files_made(dir: &Path) -> Vec<PathBuf> {
    let backend = open(dir);
    run(take(&backend, "a", Mode::Exclusive));
    run(FileGate::open(dir).unwrap().admit("r", shown(1, true))).unwrap();
    drop(LockedMark::at(&dir.join("beside"), "r").unwrap());
    let mark = fs::read_dir(dir.join("marks")).unwrap().next().unwrap().unwrap().path();
    let files = ["version", "counters", "beside"].map(|name| dir.join(name));
    files.into_iter().chain([mark, dir.join("locks").join(A)]).collect()
}

#[test]
fn files_can_be_read_only_by_users_that_may_write_them() {
    for (folder, file) in [(0o700, 0o600), (0o755, 0o600), (0o2770, 0o660), (0o2775, 0o660), (0o1777, 0o666)]
    {
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), folder);
        for made in files_made(dir.path()) {
            let mode = mode_of(&made);
            assert_eq!(mode, file, "{mode:o} of {} in {folder:o}", made.display());
        }
        assert_eq!(mode_of(&dir.path().join("locks")), folder);
        let findings = examine(dir.path()).unwrap().findings;
        assert!(findings.iter().all(|finding| finding.severity != Severity::Problem), "{findings:#?}");
    }
}

#[test]
fn files_that_too_many_may_read_are_found_and_their_owner_mends_them() {
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o755);
    cycle(dir.path()).unwrap();
    let files = ["version", "counters"].map(|name| dir.path().join(name));
    for file in &files {
        chmod(file, 0o644);
        let findings = examine(dir.path()).unwrap().findings;
        let said = format!("chmod 0600 {}", file.display());
        let told = |finding: &tollgate_core::Finding| {
            finding.severity == Severity::Problem && format!("{finding:?}").contains(&said)
        };
        assert!(findings.iter().any(told), "{findings:#?}");
        assert_eq!(mode_of(file), 0o644, "examining changes nothing");
    }
    cycle(dir.path()).unwrap();
    assert_eq!(files.map(|file| mode_of(&file)), [0o600; 2]);

    let made = files_made(dir.path());
    for file in &made {
        chmod(file, 0o644);
    }
    for file in files_made(dir.path()) {
        assert_eq!(mode_of(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_folder_that_was_moved_away_is_noticed_and_so_is_another_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, moved) = (dir.path().join("here"), dir.path().join("there"));
    let backend = open(&folder);
    let gate = FileGate::open(&folder).unwrap();
    run(gate.admit("r", shown(1, true))).unwrap();
    run(take(&backend, "b", Mode::Exclusive));
    fs::rename(&folder, &moved).unwrap();
    for name in ["a", "b"] {
        let error = run(backend.try_acquire(&claim(name, Mode::Exclusive))).unwrap_err();
        assert!(error.to_string().contains("removed while in use"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    assert!(run(gate.admit("r", shown(2, true))).is_err());
    cycle(&folder).unwrap();
    FileGate::open(&folder).unwrap();
    for name in ["a", "b"] {
        let error = run(backend.try_acquire(&claim(name, Mode::Exclusive))).unwrap_err();
        assert!(error.to_string().contains("replaced while in use"), "{error}");
    }
    let error = run(gate.admit("r", shown(2, true))).unwrap_err();
    assert!(error.to_string().contains("replaced while in use"), "{error}");
    assert!(listed(&backend).iter().all(Result::is_err), "what it has open is not what others see");
}

/// Only root may do what these do: change users.
mod as_root {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// A command of a user who is nothing to the folder's owner.
    fn stranger(script: &str, dir: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]).arg(dir);
        command
    }

    #[test]
    fn a_user_who_may_only_read_the_folder_cannot_open_what_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), 0o755);
        for file in files_made(dir.path()) {
            let output = stranger("exec 3<\"$0\"", &file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains("ermission denied"), "{said}");
        }
    }

    #[test]
    fn a_user_who_may_only_read_the_folder_cannot_hold_up_its_set_up() {
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), 0o755);
        let mut locked = stranger("exec flock \"$0\" sh -c 'echo locked; exec sleep 60'", dir.path())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(locked.stdout.as_mut().unwrap(), &mut said).unwrap();
        let start = Instant::now();
        let taken = cycle(dir.path());
        let took = start.elapsed();
        let group = format!("-{}", locked.id());
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
        locked.wait().unwrap();
        taken.unwrap();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
