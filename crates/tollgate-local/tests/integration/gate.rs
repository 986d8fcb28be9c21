//! The gate whose marks are files: the contract, among threads and processes that die.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use tollgate_core::{ErrorKind, Gate, Token};
use tollgate_local::{FileGate, LockedMark};
use tollgate_testkit::gates::{gate_cases, shown};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gate_of_files_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let gate: Arc<dyn Gate> = Arc::new(FileGate::open(dir.path().join("made")).unwrap());
    gate_cases(&gate).await;
}

#[tokio::test]
async fn gates_of_one_folder_have_the_same_marks() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (FileGate::open(dir.path()).unwrap(), FileGate::open(dir.path()).unwrap());
    one.admit("r", shown(5, true)).await.unwrap();
    // Seen on the disk by one of them alone, and asked again of that one after the other raised it.
    two.admit("r", shown(6, true)).await.unwrap();
    assert_eq!(one.admit("r", shown(5, true)).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(one.highest("r").await.unwrap(), Token::new(6).ok());
}

#[tokio::test]
async fn a_damaged_mark_lets_nobody_in() {
    let dir = tempfile::tempdir().unwrap();
    let gate = FileGate::open(dir.path()).unwrap();
    gate.admit("r", shown(5, true)).await.unwrap();
    let file = fs::read_dir(dir.path().join("marks")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[4096 + 8] ^= 1;
    fs::write(&file, &damaged).unwrap();
    for token in [4, 5, 6] {
        let error = gate.admit("r", shown(token, true)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("damaged"), "{error}");
    }
    assert!(gate.highest("r").await.is_err());
    assert_eq!(fs::read(&file).unwrap(), damaged, "damage is not written over");
    fs::write(&file, whole).unwrap();
    gate.admit("r", shown(6, true)).await.unwrap();
}

#[tokio::test]
async fn a_mark_that_was_put_in_the_place_of_another_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (FileGate::open(dir.path()).unwrap(), FileGate::open(dir.path()).unwrap());
    one.admit("r", shown(5, true)).await.unwrap();
    assert!(one.admit_at_once("r", shown(5, true)).unwrap().is_ok(), "it has it open");
    let file = fs::read_dir(dir.path().join("marks")).unwrap().next().unwrap().unwrap().path();
    fs::rename(&file, dir.path().join("old")).unwrap();
    two.admit("r", shown(9, true)).await.unwrap();
    assert_eq!(one.admit("r", shown(5, true)).await.unwrap_err().kind(), ErrorKind::Lost);
    let refused = one.admit_at_once("r", shown(8, false)).unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost, "nor does a reader ask the old one");
}

#[tokio::test]
async fn what_has_to_be_brought_to_the_disk_is_not_answered_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (FileGate::open(dir.path()).unwrap(), FileGate::open(dir.path()).unwrap());
    assert!(one.admit_at_once("r", shown(5, true)).is_none());
    assert_eq!(one.highest("r").await.unwrap(), None, "nothing was done");
    one.admit("r", shown(5, true)).await.unwrap();
    assert!(one.admit_at_once("r", shown(6, true)).is_none());
    assert!(two.admit_at_once("r", shown(5, true)).is_none(), "it has not itself seen it there");
    assert!(one.admit_at_once("r", shown(5, true)).unwrap().is_ok());
    assert!(one.admit_at_once("r", shown(6, false)).unwrap().is_ok());
}

#[tokio::test]
async fn a_gate_keeps_few_files_open() {
    let dir = tempfile::tempdir().unwrap();
    let gate = FileGate::open(dir.path()).unwrap();
    for number in 0..300 {
        let resource = format!("r{number}");
        gate.admit(&resource, shown(5, true)).await.unwrap();
        gate.admit(&resource, shown(5, true)).await.unwrap();
    }
    let marks = fs::canonicalize(dir.path().join("marks")).unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let open = open.filter(|file| file.starts_with(&marks)).count();
    assert!((1..=256).contains(&open), "{open}");
    assert!(gate.admit_at_once("r0", shown(5, true)).unwrap().is_ok());
}

#[tokio::test]
async fn a_folder_that_cannot_hold_marks_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = FileGate::open(dir.path().join("file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    fs::write(dir.path().join("version"), "tollgate file layout 9\n").unwrap();
    let error = FileGate::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("layout 9"), "{error}");
}

#[test]
fn a_mark_is_shared_with_whoever_may_use_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let path = dir.path().join("m");
    drop(LockedMark::at(&path, "r").unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
}
