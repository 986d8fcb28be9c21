//! Files that refuse those who have lost their lock, whatever happens in between.
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate_core::ErrorKind;
use tollgate_fence::FencedFile;
use tollgate_local::LockedMark;
use tollgate_testkit::gates::shown;

/// Names the file that a helper process replaces until it is killed.
const HELPER: &str = "TOLLGATE_TEST_FENCED_FILE";

fn mark(path: &Path) -> u64 {
    let beside = path.with_file_name(format!("{}.fence", path.file_name().unwrap().to_str().unwrap()));
    LockedMark::at(&beside, "").unwrap().mark().highest().map_or(0, |token| token.get())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_stale_holder_neither_writes_nor_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("total");
    let file = FencedFile::at(&path);
    assert_eq!(file.read(shown(5, true)).await.unwrap(), None);
    file.replace(shown(5, true), "five").await.unwrap();
    // The next one reads before it writes, which is enough to shut the first one out.
    assert_eq!(file.read(shown(6, true)).await.unwrap().unwrap(), b"five");
    for refused in [
        file.replace(shown(5, true), "late").await.unwrap_err(),
        file.read(shown(5, true)).await.unwrap_err(),
        file.read(shown(4, false)).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"five");
    file.replace(shown(6, true), "six").await.unwrap();
    assert_eq!(file.read(shown(9, false)).await.unwrap().unwrap(), b"six", "a reader raises nothing");
    file.replace(shown(6, true), vec![0; 100_000]).await.unwrap();
    assert_eq!(names(dir.path()), ["total", "total.fence"], "nothing else is left");
}

#[tokio::test]
async fn the_mode_stays_and_the_old_file_is_whole_for_whoever_has_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let open = fs::File::open(&path).unwrap();
    FencedFile::at(&path).replace(shown(1, true), "new").await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(std::io::read_to_string(open).unwrap(), "old");
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[tokio::test]
async fn what_cannot_be_replaced_says_why_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::write(&real, "old").unwrap();
    symlink(&real, &link).unwrap();
    let cases = [
        (link.clone(), ErrorKind::InvalidArgument, "link"),
        (dir.path().to_owned(), ErrorKind::InvalidArgument, "regular file"),
        (dir.path().join("missing/f"), ErrorKind::Config, "create it first"),
        (real.join("below"), ErrorKind::Config, "not a folder"),
        ("/".into(), ErrorKind::InvalidArgument, "name the file"),
    ];
    for (path, kind, says) in cases {
        let error = FencedFile::at(&path).replace(shown(1, true), "new").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{path:?}: {error}");
        assert!(error.to_string().contains(says), "{path:?}: {error}");
    }
    assert_eq!(fs::read(&real).unwrap(), b"old");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    // By way of a folder that is a link it is the same file, with the same mark.
    let around = tempfile::tempdir().unwrap();
    symlink(dir.path(), around.path().join("way")).unwrap();
    FencedFile::at(around.path().join("way/real")).replace(shown(7, true), "seven").await.unwrap();
    assert_eq!(
        FencedFile::at(&real).replace(shown(6, true), "six").await.unwrap_err().kind(),
        ErrorKind::Lost
    );
}

#[tokio::test]
async fn content_that_cannot_be_written_leaves_the_old_one_and_lets_the_same_holder_try_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = FencedFile::at(&path);
    file.replace(shown(1, true), "old").await.unwrap();
    let full = |file: &mut fs::File| {
        file.write_all(b"half")?;
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
    };
    let error = file.replace_with(shown(2, true), full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no space"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["f", "f.fence"]);
    file.replace(shown(2, true), "new").await.unwrap();
}

#[tokio::test]
async fn who_stands_still_in_the_middle_of_its_content_keeps_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = FencedFile::at(&path);
    let ((tell, began), (go, wait)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel::<()>());
    let stopped = tokio::spawn({
        let file = file.clone();
        async move {
            let content = move |file: &mut fs::File| {
                file.write_all(b"half")?;
                tell.send(()).unwrap();
                wait.recv().unwrap();
                file.write_all(b" and half")
            };
            file.replace_with(shown(5, true), content).await
        }
    });
    began.await.unwrap();
    assert_eq!(file.read(shown(5, true)).await.unwrap(), None, "its own holder is not kept out");
    file.replace(shown(5, true), "five").await.unwrap();
    file.replace(shown(6, true), "six").await.unwrap();
    assert_eq!(file.read(shown(6, true)).await.unwrap().unwrap(), b"six");
    go.send(()).unwrap();
    assert_eq!(stopped.await.unwrap().unwrap_err().kind(), ErrorKind::Lost, "it comes too late");
    assert_eq!(fs::read(&path).unwrap(), b"six");
    assert_eq!(names(dir.path()), ["f", "f.fence"], "nothing else is left");
}

#[tokio::test]
async fn what_a_killed_writer_left_is_not_in_the_way_and_what_a_living_one_writes_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let (left, live) = (dir.path().join("f.fence-new"), dir.path().join("f.fence-new-1"));
    fs::write(&left, "left behind").unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o400)).unwrap();
    fs::write(&live, "being written").unwrap();
    let living = fs::File::open(&live).unwrap();
    living.lock().unwrap();
    FencedFile::at(&path).replace(shown(1, true), "new").await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o200 != 0,
        "it has not got the rights of that"
    );
    assert_eq!(names(dir.path()), ["f", "f.fence", "f.fence-new-1"]);
    let many: Vec<_> = (0..20_u8)
        .map(|number| {
            let file = FencedFile::at(&path);
            tokio::spawn(async move { file.replace(shown(2, true), vec![number; 50_000]).await })
        })
        .collect();
    for one in many {
        one.await.unwrap().unwrap();
    }
    let content = fs::read(&path).unwrap();
    assert_eq!(content, vec![content[0]; 50_000], "one of them, whole");
    assert_eq!(fs::read(&live).unwrap(), b"being written");
    drop(living);
}

#[tokio::test]
async fn a_damaged_mark_lets_nobody_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = FencedFile::at(&path);
    file.replace(shown(1, true), "old").await.unwrap();
    let beside = dir.path().join("f.fence");
    let mut bytes = fs::read(&beside).unwrap();
    bytes[4100] ^= 1;
    fs::write(&beside, bytes).unwrap();
    let error = file.replace(shown(2, true), "new").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

/// Not a test: what `a_crash_at_any_moment…` starts and kills.
#[test]
fn helper() {
    let Some(path) = std::env::var_os(HELPER) else { return };
    let file = FencedFile::at(path);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut token = mark(Path::new(&std::env::var_os(HELPER).unwrap())) + 1;
    println!("ready");
    loop {
        let content = format!("{token}\n").repeat(20_000);
        runtime.block_on(file.replace(shown(token, true), content)).unwrap();
        token += 1;
    }
}

#[test]
fn a_crash_at_any_moment_leaves_whole_content_and_a_mark_that_is_not_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let (mut last, mut written) = (0, 0);
    // On a busy machine a helper needs more time until it writes: each lap gives it more.
    for round in 0..200_u64 {
        if round >= 25 && written >= 3 {
            break;
        }
        let mut helper = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file::helper", "--nocapture"])
            .env(HELPER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(helper.stdout.take().unwrap()));
        while !lines.next().unwrap().unwrap().contains("ready") {}
        std::thread::sleep(Duration::from_micros(400 * (round % 25) * (1 + round / 25)));
        helper.kill().unwrap();
        helper.wait().unwrap();
        let stands = mark(&path);
        let Ok(content) = fs::read_to_string(&path) else { continue };
        let token: u64 = content.lines().next().unwrap().parse().unwrap();
        assert_eq!(content, format!("{token}\n").repeat(20_000), "it is whole");
        assert!(stands >= token, "the mark {stands} is behind the content {token}");
        assert!(token >= last, "{token} after {last}");
        last = token;
        written += 1;
    }
    assert!(last > 0, "no helper ever got to write");
}
