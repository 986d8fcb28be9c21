//! What is in a folder: its layout, its counters, its locks, and what does not belong there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_core::{Finding, LockState};

use crate::backend::is_lock_file;
use crate::counter::Counters;
use crate::dir::{Dir, FilePath, is_temporary};
use crate::error::{Result, Trouble};
use crate::folder::{LAYOUT, is_initialised};
use crate::lockfile;
use crate::sys::{self, Range};
use crate::view;

/// What a folder has in it. An older version made those with an ending.
const OURS: [&str; 6] = ["version", "counters", "locks", "marks", "counters.new", "version.new"];

pub(super) fn look(dir: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let folder = Arc::new(Dir::open(dir)?);
    for name in ["locks", "marks"] {
        if let Some(problem) = in_the_way(&folder, name)? {
            findings.push(problem);
            return Ok(());
        }
    }
    match is_initialised(&folder) {
        Ok(true) => findings.push(Finding::fine(format!("the folder's layout is {:?}", LAYOUT.trim()))),
        Ok(false) => {
            findings.push(Finding::fine("no lock was ever taken in this folder"));
            findings.extend(strangers(dir, &OURS)?);
            return Ok(());
        }
        Err(trouble @ Trouble::Layout { .. }) => {
            let advice = "use the tollgate that wrote it or a newer one, or another folder";
            findings.push(Finding::problem("the folder has another layout", trouble.to_string(), advice));
            return Ok(());
        }
        Err(trouble) => return Err(trouble),
    }
    findings.extend(strangers(dir, &OURS)?);
    counters(&folder, findings);
    match folder.sub("locks")? {
        Some(locks) => look_at_locks(&Arc::new(locks), findings),
        None => Ok(()),
    }
}

/// What is in the place of a folder of ours, a link for one.
fn in_the_way(folder: &Dir, name: &str) -> Result<Option<Finding>> {
    match folder.sub(name) {
        Ok(_) => Ok(None),
        Err(trouble @ Trouble::InTheWay { .. }) => Ok(Some(Finding::problem(
            trouble.to_string(),
            "tollgate refuses to use it: files would be created and removed wherever it leads",
            "find out where it comes from, and remove it",
        ))),
        Err(trouble) => Err(trouble),
    }
}

fn strangers(dir: &Path, ours: &[&str]) -> Result<Option<Finding>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(Trouble::at(dir))? {
        let name = entry.map_err(Trouble::at(dir))?.file_name();
        if !ours.iter().any(|known| name == *known) && !is_temporary(&name) {
            names.push(name);
        }
    }
    Ok(foreign(dir, names))
}

fn foreign(dir: &Path, mut names: Vec<std::ffi::OsString>) -> Option<Finding> {
    names.sort();
    let first = names.first()?;
    Some(Finding::note(
        format!(
            "{} has {} that tollgate did not create, for example {first:?}",
            dir.display(),
            files(names.len())
        ),
        "tollgate ignores them",
        "move them to another folder",
    ))
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn counters(folder: &Arc<Dir>, findings: &mut Vec<Finding>) {
    let broken = |trouble: &Trouble| {
        let advice = match trouble {
            Trouble::DamagedCounter { .. } => {
                "repair the disk and the file; if it is lost for good, move the whole folder away and \
                 raise the token floor in the new one"
            }
            // It is all right, and this user or this mount is not.
            _ => "let this user write there, or examine the folder as a user that takes locks in it",
        };
        Finding::problem("the token counter cannot be used", trouble.to_string(), advice)
    };
    let opened = match Counters::open(&FilePath::new(folder, "counters")) {
        Ok(opened) => opened,
        Err(trouble) => return findings.push(broken(&trouble)),
    };
    match opened.torn_slots() {
        Ok(0) => findings.push(Finding::fine("the token counters are readable")),
        Ok(torn) => findings.push(Finding::note(
            format!("{torn} of the 512 slots of the token counters are damaged"),
            "each slot has a spare, and the next token repairs the damage; but the only harmless cause is \
             a power failure",
            "if there was no power failure, check the disk",
        )),
        Err(trouble) => findings.push(broken(&trouble)),
    }
    let asked = sys::is_locked(opened.file(), Range::ALL);
    findings.push(match asked {
        Ok(_) => Finding::fine("the kernel supports locks that belong to open files (F_OFD_SETLK)"),
        Err(error) => Finding::problem(
            "files here cannot be locked",
            format!("every lock of this backend is a lock that belongs to an open file: {error}"),
            "use Linux 3.15 or later, and a file system that supports them",
        ),
    });
}

fn look_at_locks(locks: &Arc<Dir>, findings: &mut Vec<Finding>) -> Result<()> {
    let mut used = 0;
    let (mut idle, mut others) = (Vec::new(), Vec::new());
    for name in locks.names()? {
        let name = name.map_err(Trouble::at(locks.path()))?;
        if !is_lock_file(&name) {
            others.push(name);
            continue;
        }
        let file = FilePath::new(locks, name);
        match view::look(&file) {
            Ok(Some(state)) => {
                used += 1;
                findings.extend(stopped(file.path(), &state));
            }
            Ok(None) if lockfile::is_foreign(&file) => others.push(file.name().to_owned()),
            Ok(None) => idle.push(file),
            Err(trouble) => findings.push(unreadable(file.path(), &trouble)),
        }
    }
    findings.push(Finding::fine(format!("locks that are held or waited for: {used}")));
    if !idle.is_empty() {
        findings.push(Finding::note(
            format!("{} left of locks that are not in use", files(idle.len())),
            "a killed process leaves its file behind; the file locks nothing",
            "nothing; tollgate ls removes them",
        ));
    }
    findings.extend(foreign(locks.path(), others));
    Ok(())
}

fn unreadable(path: &Path, trouble: &Trouble) -> Finding {
    let why = trouble.to_string();
    match trouble {
        Trouble::Io { source, .. } if !matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
            Finding::problem(
                format!("{} occupies the path of a lock's file", path.display()),
                why,
                "remove it",
            )
        }
        Trouble::Io { .. } => Finding::problem(
            format!("{} cannot be read", path.display()),
            why,
            "let the users of the folder read and write it",
        ),
        Trouble::Stuck { .. } => Finding::problem(
            format!("{} is locked by a stopped process", path.display()),
            why,
            "continue the stopped process, or kill it",
        ),
        _ => Finding::problem(
            format!("{} is damaged while in use", path.display()),
            why,
            "stop the processes that use this lock and delete the file",
        ),
    }
}

/// Holders that are stopped, and the first waiter if it is: they hold the others up.
fn stopped(path: &Path, state: &LockState) -> Vec<Finding> {
    let tell = |what: &str, pid: u32, why: &str| {
        Finding::note(
            format!("the lock {:?} is {what} by process {pid}, which is stopped", state.name),
            why.to_owned(),
            format!("kill -CONT {pid}, or kill -KILL {pid}"),
        )
    };
    let holders = state.holders.iter().map(|holder| holder.details.pid);
    let mut findings: Vec<Finding> = holders
        .filter(|pid| is_stopped_with(*pid, path))
        .map(|pid| {
            tell(
                "held",
                pid,
                "the file backend expires nothing: the lock stays taken until the process continues or ends",
            )
        })
        .collect();
    let first = state.waiters.first().map(|waiter| waiter.details.pid);
    if let Some(pid) = first.filter(|pid| is_stopped_with(*pid, path)) {
        findings.push(tell(
            "waited for",
            pid,
            "when this waiter is first in the queue, the waiters behind it wait until it continues or ends",
        ));
    }
    findings
}

/// Whether the process `pid` is stopped and has the file at `path` open: the number may be another one's, or
/// belong to another container.
fn is_stopped_with(pid: u32, path: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    if !matches!(state, Some("T" | "t")) {
        return false;
    }
    let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let wanted = file(path);
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    wanted.is_some() && open.map(|entry| file(&entry.path())).any(|found| found == wanted)
}
