//! What is in a folder: its layout, its counters, its locks, and what does not belong there.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate_core::{Finding, LockState};

use crate::backend::is_lock_file;
use crate::counter::Counters;
use crate::error::{Result, Trouble};
use crate::folder::{LAYOUT, is_initialised};
use crate::sys::{self, Range};
use crate::view;

/// What a folder has in it; those with an ending are under construction.
const OURS: [&str; 5] = ["version", "counters", "locks", "counters.new", "version.new"];

pub(super) fn look(dir: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    match is_initialised(dir) {
        Ok(true) => findings.push(Finding::fine(format!("it says {:?}", LAYOUT.trim()))),
        Ok(false) => {
            findings.push(Finding::fine("no lock was ever taken here"));
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
    counters(dir, findings);
    locks(&dir.join("locks"), findings)
}

fn strangers(dir: &Path, ours: &[&str]) -> Result<Option<Finding>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(Trouble::at(dir))? {
        let name = entry.map_err(Trouble::at(dir))?.file_name();
        if !ours.iter().any(|known| name == *known) {
            names.push(name);
        }
    }
    Ok(foreign(dir, names))
}

fn foreign(dir: &Path, mut names: Vec<std::ffi::OsString>) -> Option<Finding> {
    names.sort();
    let first = names.first()?;
    Some(Finding::note(
        format!("{} has {} that tollgate did not make, {first:?} for one", dir.display(), files(names.len())),
        "tollgate leaves them alone",
        "move them elsewhere",
    ))
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn counters(dir: &Path, findings: &mut Vec<Finding>) {
    let path = dir.join("counters");
    let broken = |trouble: &Trouble| {
        let advice = match trouble {
            Trouble::DamagedCounter { .. } => {
                "repair the disk and the file; if it is lost for good, move the whole folder away and raise the token \
                 floor in the new one"
            }
            // It is all right, and this user or this mount is not.
            _ => "let this user write there, or examine the folder as one who takes locks in it",
        };
        Finding::problem("the token counter cannot be used", trouble.to_string(), advice)
    };
    let opened = match Counters::open(path.clone()) {
        Ok(opened) => opened,
        Err(trouble) => return findings.push(broken(&trouble)),
    };
    match opened.torn_slots() {
        Ok(0) => findings.push(Finding::fine("the token counters are readable")),
        Ok(torn) => findings.push(Finding::note(
            format!("{torn} of the 512 slots of the token counters are damaged"),
            "each has a second one, and the next token makes it good; but a power failure is the only good reason",
            "look for a failing disk if you know of none",
        )),
        Err(trouble) => findings.push(broken(&trouble)),
    }
    let asked = File::open(&path).and_then(|file| sys::is_locked(&file, Range::ALL));
    findings.push(match asked {
        Ok(_) => Finding::fine("the kernel has locks that belong to open files (F_OFD_SETLK)"),
        Err(error) => Finding::problem(
            "files here cannot be locked",
            format!("locks that belong to open files are what everything rests on: {error}"),
            "use Linux 3.15 or later, and a file system that has them",
        ),
    });
}

fn locks(dir: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let mut used = 0;
    let (mut idle, mut others) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Trouble::at(dir)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(Trouble::at(dir))?;
        if !is_lock_file(&entry.file_name()) {
            others.push(entry.file_name());
            continue;
        }
        match view::look(&entry.path()) {
            Ok(Some(state)) => {
                used += 1;
                findings.extend(stopped(&entry.path(), &state));
            }
            Ok(None) => idle.push(entry.path()),
            Err(trouble) => findings.push(unreadable(&entry.path(), &trouble)),
        }
    }
    findings.push(Finding::fine(format!("locks that are held or waited for: {used}")));
    if !idle.is_empty() {
        findings.push(Finding::note(
            format!("{} left of locks that nobody uses", files(idle.len())),
            "a process that was killed leaves its file behind; it locks nothing",
            "nothing; tollgate ls clears them away",
        ));
    }
    findings.extend(foreign(dir, others));
    Ok(())
}

fn unreadable(path: &Path, trouble: &Trouble) -> Finding {
    let why = trouble.to_string();
    match trouble {
        Trouble::Io { source, .. } if !matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
            Finding::problem(format!("{} is in the way of a lock", path.display()), why, "remove it")
        }
        Trouble::Io { .. } => Finding::problem(
            format!("{} cannot be read", path.display()),
            why,
            "let those who may use the folder read and write it",
        ),
        Trouble::Stuck { .. } => Finding::problem(
            format!("{} is kept busy", path.display()),
            why,
            "continue the process that is stopped, or kill it",
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
            tell("held", pid, "nothing expires here: the lock stays taken until the process goes on or ends")
        })
        .collect();
    let first = state.waiters.first().map(|waiter| waiter.details.pid);
    if let Some(pid) = first.filter(|pid| is_stopped_with(*pid, path)) {
        findings.push(tell(
            "waited for",
            pid,
            "when its turn comes, those behind it wait until it goes on or ends",
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
