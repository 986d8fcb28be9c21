//! All descendants of a process: found in /proc, and killed.
//!
//! The process at the root is a subreaper, so that descendants whose parents died become its
//! children, whatever sessions and groups they made for themselves. Whether a descendant is left is
//! not decided here but by `wait`: a process without children has no descendants.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};

/// How long one call kills new descendants before it returns.
const ROUND: Duration = Duration::from_millis(100);

/// Sends `signal` to every descendant of `root`. Returns a descendant that belongs to another user,
/// if there is one: it cannot be signalled.
pub(crate) fn signal_all(root: Pid, signal: Signal) -> Option<i32> {
    signal_unseen(root, signal, &mut HashSet::new()).refused
}

/// Kills every descendant of `root`, including those that are started meanwhile, until no new one
/// is found. To be repeated until `wait` says that none is left. Returns a descendant that belongs
/// to another user, and so cannot be killed.
pub(crate) fn kill_all(root: Pid) -> Option<i32> {
    let until = Instant::now() + ROUND;
    let (mut seen, mut refused) = (HashSet::new(), None);
    loop {
        let round = signal_unseen(root, Signal::KILL, &mut seen);
        refused = refused.or(round.refused);
        if !round.found || Instant::now() >= until {
            return refused;
        }
    }
}

/// The result of one round of signals.
struct Round {
    /// Whether there was a process that had not been seen before.
    found: bool,
    /// A process that may not be signalled.
    refused: Option<i32>,
}

/// Reaps children that have ended. Says whether any is left.
pub(crate) fn reap() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Signals the descendants that are not in `seen` yet.
///
/// Zombies are signalled too: a process whose first thread has ended looks like a zombie while its
/// other threads run.
fn signal_unseen(root: Pid, signal: Signal, seen: &mut HashSet<i32>) -> Round {
    let tree = Tree::look();
    let mut open = vec![root.as_raw_pid()];
    let mut visited = HashSet::new();
    let mut round = Round { found: false, refused: None };
    while let Some(parent) = open.pop() {
        if !visited.insert(parent) {
            continue;
        }
        for child in tree.children(parent) {
            open.push(child);
            if seen.insert(child) {
                round.found = true;
                if !signal_child(child, parent, root, signal) {
                    // The first one is an ancestor of the others. It is the one to report: its
                    // children come and go.
                    round.refused.get_or_insert(child);
                }
            }
        }
    }
    round
}

/// Signals `pid` through a descriptor, if the process behind it is still a child of `parent`, or of
/// `root` because the parent has died: the pid may have been reused since /proc was read. Returns
/// `false` if this user may not signal it.
fn signal_child(pid: i32, parent: i32, root: Pid, signal: Signal) -> bool {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return true;
    };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if parent_in(&stat).is_some_and(|now| now == parent || now == root.as_raw_pid()) {
        // A process that is already gone needs no signal; a zombie ends when it is reaped.
        return pidfd_send_signal(process, signal) != Err(rustix::io::Errno::PERM) || is_zombie(&stat);
    }
    true
}

/// The children of each process.
enum Tree {
    /// The kernel lists the children of a process: it is asked for the processes that matter.
    Listed,
    /// The kernel does not, so the parent of every process was read.
    Parents(HashMap<i32, Vec<i32>>),
}

impl Tree {
    fn look() -> Self {
        if std::fs::exists("/proc/self/task").unwrap_or(false)
            && std::fs::exists(own_children()).unwrap_or(false)
        {
            return Self::Listed;
        }
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in numbers_in("/proc") {
            if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat"))
                && let Some(parent) = parent_in(&stat)
            {
                children.entry(parent).or_default().push(pid);
            }
        }
        Self::Parents(children)
    }

    fn children(&self, parent: i32) -> Vec<i32> {
        match self {
            Self::Parents(children) => children.get(&parent).cloned().unwrap_or_default(),
            Self::Listed => numbers_in(&format!("/proc/{parent}/task"))
                .filter_map(|thread| {
                    std::fs::read_to_string(format!("/proc/{parent}/task/{thread}/children")).ok()
                })
                .flat_map(|children| {
                    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
                })
                .collect(),
        }
    }
}

fn own_children() -> String {
    let pid = std::process::id();
    format!("/proc/{pid}/task/{pid}/children")
}

fn numbers_in(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The parent in a line of /proc/PID/stat. The command's name comes before it, in parentheses, and
/// may contain anything.
fn parent_in(stat: &str) -> Option<i32> {
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether a line of /proc/PID/stat is that of a zombie.
fn is_zombie(stat: &str) -> bool {
    stat.rfind(')').is_some_and(|end| stat[end + 1..].trim_start().starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("17 (sh) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in("17 (a) b) (c d) R 5 17 17 0"), Some(5));
        assert_eq!(parent_in("17 (sh) Z 4 17 17 0"), Some(4));
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn both_ways_of_looking_find_grandchildren() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let root = Pid::from_child(&child);
        let started = Instant::now();
        while Tree::look().children(root.as_raw_pid()).is_empty() {
            assert!(started.elapsed().as_secs() < 10, "the grandchild was never found");
        }
        let mut parents: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in numbers_in("/proc") {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            parent_in(&stat).into_iter().for_each(|parent| parents.entry(parent).or_default().push(pid));
        }
        let root_pid = root.as_raw_pid();
        assert_eq!(Tree::Parents(parents).children(root_pid), Tree::look().children(root_pid));
        kill_all(root);
        assert!(!child.wait().unwrap().success() || Tree::look().children(root_pid).is_empty());
    }
}
