//! Everything a process started, and everything that started: found in /proc, ended without mercy.
//!
//! The process at the root is a subreaper, so that descendants whose parents died stay below it, whatever
//! sessions and groups they made for themselves.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};

/// Sends `signal` to every living descendant of `root`.
pub(crate) fn signal_all(root: Pid, signal: Signal) {
    for pid in find(root) {
        // Through a descriptor: the number may have been given to a stranger since we looked, but not
        // between opening the descriptor and looking again.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && find(root).contains(&pid)
        {
            // It may be gone by now, which is as good.
            let _ = pidfd_send_signal(process, signal);
        }
    }
}

/// Collects children that have ended. Tells whether any is left.
///
/// No child left means no descendant left: an orphan becomes a child of the subreaper.
pub(crate) fn reap() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn find(root: Pid) -> Vec<Pid> {
    let parents = parents();
    let mut below = HashSet::from([root.as_raw_pid()]);
    // A child may be listed before its parent, so until nothing is found any more.
    loop {
        let found: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent)| below.contains(parent) && !below.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if found.is_empty() {
            break;
        }
        below.extend(found);
    }
    below.remove(&root.as_raw_pid());
    below.into_iter().filter_map(Pid::from_raw).collect()
}

/// Every living process and its parent.
fn parents() -> HashMap<i32, i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return HashMap::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            Some((pid, parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect()
}

/// The parent in a line of /proc/PID/stat, unless the process has ended already. The command's name comes
/// before it, in parentheses, and may contain anything.
fn parent(stat: &str) -> Option<i32> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent("17 (sh) S 4 17 17 0"), Some(4));
        assert_eq!(parent("17 (a) b) (c d) R 5 17 17 0"), Some(5));
        assert_eq!(parent("17 (sh) Z 4 17 17 0"), None);
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn grandchildren_are_found() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let root = Pid::from_raw(std::process::id().try_into().unwrap()).unwrap();
        let started = std::time::Instant::now();
        while find(Pid::from_child(&child)).is_empty() {
            assert!(started.elapsed().as_secs() < 10, "the grandchild was never found");
        }
        assert!(find(root).contains(&Pid::from_child(&child)));
        signal_all(Pid::from_child(&child), Signal::KILL);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
