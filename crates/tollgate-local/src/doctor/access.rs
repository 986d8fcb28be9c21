//! Who can take locks in a folder, and whether the files in it agree.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tollgate_core::Finding;

use crate::backend::is_lock_file;
use crate::dir::file_mode;
use crate::error::{Result, Trouble};
use crate::sys;

const STICKY: u32 = 0o1000;

/// `nearest` is `dir`, or the folder it would be made in.
pub(super) fn look(dir: &Path, nearest: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    if sys::check_writable(nearest).is_err() {
        findings.push(Finding::problem(
            format!("this user may not write to {}", nearest.display()),
            "taking a lock creates and changes files there",
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
    if let Ok(found) = std::fs::symlink_metadata(&locks)
        && found.is_dir()
    {
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
        who.push("all other users".to_owned());
    }
    format!("locks can be taken by {} (mode {:04o})", who.join(", "), mode & 0o7777)
}

fn unprotected(path: &Path, folder: &Metadata) -> Option<Finding> {
    let mode = folder.mode();
    (mode & 0o002 != 0 && mode & STICKY == 0).then(|| {
        Finding::problem(
            format!("all users can delete files in {} (mode {:04o})", path.display(), mode & 0o7777),
            "a user that deletes or replaces a lock's file lets a second holder in, and can put a symbolic \
             link in its place",
            format!("chmod +t {0}, as /tmp has it, or chmod o-w {0}", path.display()),
        )
    })
}

/// What is made in a folder gets the folder's permissions, so that all users of the folder can use it. A file
/// gets no permission to read without that to write.
fn mismatch(path: &Path, found: &Metadata, folder: &Metadata) -> Option<Finding> {
    const WHY: &str = "some users of the folder cannot take locks in it";
    if found.is_symlink() {
        // It has no permissions of its own, and is looked at elsewhere.
        return None;
    }
    let is = found.mode() & 0o7777;
    let should = if found.is_dir() { folder.mode() & 0o7777 } else { file_mode(folder.mode()) };
    let too_few = should & 0o777 & !is != 0;
    let too_many = found.is_file() && is & 0o666 & !should != 0;
    if too_few || too_many {
        return Some(Finding::problem(
            format!("{} has mode {is:04o}, and the folder's mode implies {should:04o}", path.display()),
            if too_few {
                WHY
            } else {
                "a user that can open this file can block all locks, even without writing"
            },
            format!("chmod {should:04o} {}", path.display()),
        ));
    }
    let for_group_alone = folder.mode() & 0o022 == 0o020;
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
                "chgrp {} {}, and chmod g+s the folder so that new files inherit its group",
                folder.gid(),
                path.display()
            ),
        )
    })
}
