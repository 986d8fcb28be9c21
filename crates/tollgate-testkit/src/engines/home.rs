//! The temporary folder an engine lives in, and who lives there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::spawner;

/// How often a process is looked at that should be gone.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A folder that other users can enter. Dropping it kills whoever works there and removes it; the guardian
/// does the same if this program cannot.
pub(super) struct Home {
    folder: TempDir,
}

impl Home {
    pub(super) fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tollgate-engine-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()?;
        spawner::entrust(folder.path())?;
        Ok(Self { folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        evict(self.path());
    }
}

/// Kills every process that works in `folder` and waits until none is left. An engine's processes cannot all
/// be found by group or session (PostgreSQL gives every child a session of its own), but all work there.
pub(super) fn evict(folder: &Path) {
    loop {
        let residents = residents(folder);
        if residents.is_empty() {
            return;
        }
        for resident in residents {
            // It may be gone already.
            let _ = kill_process(resident, Signal::KILL);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The processes that work in `folder` or below. Those that are dead and not yet buried work nowhere.
pub(super) fn residents(folder: &Path) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read_link(proc(*pid).join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .filter_map(Pid::from_raw)
        .collect()
}

/// The state letter of a process, as `ps` shows it; none if it is gone.
pub(super) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(proc(pid.as_raw_nonzero().get()).join("stat")).ok()?;
    // The name before it may contain anything, also parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// How much memory a process has in use, in bytes; none if it is gone.
pub(super) fn resident_memory(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(proc(pid.as_raw_nonzero().get()).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn proc(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}
