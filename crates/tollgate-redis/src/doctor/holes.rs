//! Known holes of Redis that those can use who share a server with locks, and the releases that closed them.

use tollgate_core::Finding;

use super::version::Version;

/// Holes that were closed together.
struct Hole {
    names: &'static str,
    what: &'static str,
    /// The release of each branch that closed them.
    closed: &'static [Version],
    /// Branches that have them and got no release any more.
    left: &'static [(u32, u32)],
}

/// The newest first. Only what the announcements of the releases say; a branch that is in neither list is not judged.
const HOLES: &[Hole] = &[
    Hole {
        names: "the flaws in RESTORE of July 2026",
        what: "code execution by a user who may RESTORE",
        closed: &[(6, 2, 23), (7, 2, 15), (7, 4, 10), (8, 2, 8), (8, 4, 5), (8, 6, 5), (8, 8, 1)],
        left: &[(7, 0)],
    },
    Hole {
        names: "CVE-2026-23479, CVE-2026-25243, CVE-2026-23631",
        what: "code execution by a user who is logged in",
        closed: &[(7, 4, 9), (8, 2, 6), (8, 4, 3), (8, 6, 3)],
        left: &[],
    },
    Hole {
        names: "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819",
        what: "code execution by a Lua script, and scripts that act as another user",
        closed: &[(6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)],
        left: &[(7, 0)],
    },
    Hole {
        names: "CVE-2025-32023, CVE-2025-48367",
        what: "memory corruption by HyperLogLog commands, and a stop by connections that fail",
        closed: &[(6, 2, 19), (7, 2, 10), (7, 4, 5), (8, 0, 3)],
        left: &[(7, 0)],
    },
    Hole {
        names: "CVE-2025-21605",
        what: "memory exhaustion by clients that are not logged in",
        closed: &[(6, 2, 18), (7, 2, 8), (7, 4, 3)],
        left: &[(7, 0)],
    },
    Hole {
        names: "CVE-2024-46981",
        what: "code execution by a Lua script",
        closed: &[(6, 2, 17), (7, 2, 7), (7, 4, 2)],
        left: &[(7, 0)],
    },
    Hole {
        names: "CVE-2024-31449, CVE-2024-31228",
        what: "code execution by a Lua script, and a crash by a long pattern",
        closed: &[(6, 2, 16), (7, 2, 6), (7, 4, 1)],
        left: &[(7, 0)],
    },
];

impl Hole {
    /// The release to go to; `None` if this version does not have it, as far as is known.
    fn way_out(&self, version: Version) -> Option<Version> {
        let branch = (version.0, version.1);
        match self.closed.iter().find(|closed| (closed.0, closed.1) == branch) {
            Some(closed) => (version < *closed).then_some(*closed),
            None if self.left.contains(&branch) => {
                self.closed.iter().find(|closed| (closed.0, closed.1) > branch).copied()
            }
            None => None,
        }
    }
}

/// What is known to be wrong with a version, in one finding.
pub(super) fn of(version: Version, said: &str) -> Option<Finding> {
    let open: Vec<_> = HOLES.iter().filter_map(|hole| Some((hole, hole.way_out(version)?))).collect();
    let (worst, _) = open.first()?;
    let newest = open.iter().map(|(_, release)| *release).max()?;
    let names: Vec<_> = open.iter().map(|(hole, _)| hole.names).collect();
    let newest = format!("{}.{}.{}", newest.0, newest.1, newest.2);
    Some(Finding::note(
        format!(
            "Redis {said} has known vulnerabilities, unless your distribution has patched them: {}",
            names.join(", ")
        ),
        format!(
            "the worst: {}; an attacker that controls the server can take any lock and forge any token",
            worst.what
        ),
        format!("upgrade to {newest} or later, or check whether your distribution's package has the fixes"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(version: Version) -> String {
        of(version, "x")
            .map(|finding| format!("{} {}", finding.what, finding.advice.unwrap()))
            .unwrap_or_default()
    }

    #[test]
    fn a_hole_is_named_until_the_release_of_its_branch() {
        assert!(said((7, 4, 5)).contains("CVE-2025-49844") && said((7, 4, 5)).contains("7.4.10"));
        assert!(!said((7, 4, 6)).contains("CVE-2025-49844"));
        assert!(!said((7, 4, 5)).contains("CVE-2025-32023"));
        assert_eq!(said((7, 4, 10)), "");
        assert_eq!(said((8, 8, 1)), "");
        assert_eq!(said((8, 10, 0)), "", "a branch that is not known is not judged");
        assert!(said((7, 0, 15)).contains("7.2.15"), "a branch without fixes has a way out, too");
        assert!(said((8, 2, 1)).contains("CVE-2025-46817") && !said((8, 2, 1)).contains("CVE-2024"));
    }
}
