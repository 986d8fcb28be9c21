//! Who can take locks in a folder, and whether the files in it agree.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tollgate_core::Finding;

use crate::backend::is_lock_file;
use crate::error::{Result, Trouble};
use crate::folder::FILE;
use crate::sys;

const STICKY: u32 = 0o1000;

/// `nearest` is `dir`, or the folder it would be made in.
pub(super) fn look(dir: &Path, nearest: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    if sys::check_writable(nearest).is_err() {
        findings.push(Finding::problem(
            format!("this user may not write to {}", nearest.display()),
            "taking a lock makes and changes files there",
            "let this user write there, or choose another folder with file:DIR",
        ));
    }
    if dir != nearest {
        return Ok(());
    }
    let folder = std::fs::metadata(dir).map_err(Trouble::at(dir))?;
    findings.push(Finding::fine(who(&folder)));
    let locks = dir.join("locks");
    findings.extend(unprotected(dir, &folder));
    if let Ok(found) = std::fs::symlink_metadata(&locks) {
        findings.extend(unprotected(&locks, &found));
    }
    // What is missing is looked at elsewhere, and a lock's file may be gone at any moment.
    let misfit = |path: &Path| mismatch(path, &std::fs::symlink_metadata(path).ok()?, &folder);
    findings.extend(
        [dir.join("version"), dir.join("counters"), locks.clone()].iter().filter_map(|path| misfit(path)),
    );
    let files = std::fs::read_dir(&locks).into_iter().flatten().flatten();
    let mut files = files.filter(|file| is_lock_file(&file.file_name())).map(|file| file.path());
    // One is as good as all.
    findings.extend(files.find_map(|path| misfit(&path)));
    Ok(())
}

fn who(folder: &Metadata) -> String {
    let mode = folder.mode();
    let mut who = vec![format!("user {}", folder.uid())];
    if mode & 0o030 == 0o030 {
        who.push(format!("group {}", folder.gid()));
    }
    if mode & 0o003 == 0o003 {
        who.push("everybody else".to_owned());
    }
    format!("locks can be taken by {} (mode {:04o})", who.join(", "), mode & 0o7777)
}

fn unprotected(path: &Path, folder: &Metadata) -> Option<Finding> {
    let mode = folder.mode();
    (mode & 0o002 != 0 && mode & STICKY == 0).then(|| {
        Finding::problem(
            format!("everybody can delete files in {} (mode {:04o})", path.display(), mode & 0o7777),
            "whoever deletes or replaces a lock's file lets a second one in, and can put a link in its place",
            format!("chmod +t {0}, as /tmp has it, or chmod o-w {0}", path.display()),
        )
    })
}

/// What is made in a folder gets the folder's permissions, so that all who may use it can.
fn mismatch(path: &Path, found: &Metadata, folder: &Metadata) -> Option<Finding> {
    const WHY: &str = "some who may use the folder cannot take locks in it";
    let (rights, all) = if found.is_dir() { (0o777, 0o7777) } else { (FILE, FILE) };
    let (is, should) = (found.mode(), folder.mode());
    if should & rights & !is != 0 {
        let (is, should) = (is & all, should & all);
        return Some(Finding::problem(
            format!("{} has mode {is:04o}, and the folder would give it {should:04o}", path.display()),
            WHY,
            format!("chmod {should:04o} {}", path.display()),
        ));
    }
    let for_group_alone = should & 0o022 == 0o020;
    (for_group_alone && found.gid() != folder.gid()).then(|| {
        Finding::problem(
            format!(
                "{} belongs to group {}, and the folder to group {}",
                path.display(),
                found.gid(),
                folder.gid()
            ),
            WHY,
            format!(
                "chgrp {} {}, and chmod g+s the folder so that it stays so",
                folder.gid(),
                path.display()
            ),
        )
    })
}
