//! Versions, and what is known to be wrong with some of them.

use tollgate_core::Finding;

use super::seen::Seen;

/// What is wrong, why that matters to locks, and in which releases it is not any more.
struct Flaw {
    what: &'static str,
    why: &'static str,
    fixed: &'static [(u32, u32, u32)],
}

const FLAWS: &[Flaw] = &[
    Flaw {
        what: "can keep a node of a session that has ended (ZOOKEEPER-2355)",
        why: "a lock whose holder died may stay held on some servers until they are restarted",
        fixed: &[(3, 4, 11), (3, 5, 4)],
    },
    Flaw {
        what: "reveals the password hashes of a node's users to all clients (CVE-2019-0201)",
        why: "an attacker that recovers a password from its hash can break locks that are restricted to \
              its owner",
        fixed: &[(3, 4, 14), (3, 5, 5)],
    },
    Flaw {
        what: "lets servers join whose authentication failed (CVE-2023-44981)",
        why: "an attacker that reaches the ensemble's ports can change every lock, if the ensemble relies \
              on SASL between its servers",
        fixed: &[(3, 7, 2), (3, 8, 3), (3, 9, 1)],
    },
    Flaw {
        what: "can lose changes on a server that rejoins its ensemble (ZOOKEEPER-4785)",
        why: "that server may show free locks as held, so that waiters leave it, or held locks as free",
        fixed: &[(3, 8, 4), (3, 9, 2)],
    },
    Flaw {
        what: "notifies clients of changes to nodes that they may not read (CVE-2024-23944)",
        why: "all clients can watch the names of locks",
        fixed: &[(3, 8, 4), (3, 9, 2)],
    },
];

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let mut versions: Vec<&str> = seen.servers.iter().filter_map(|server| server.version()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        findings.push(Finding::note(
            format!("the servers have different versions: {}", versions.join(", ")),
            "servers should differ only during an upgrade",
            "finish the upgrade",
        ));
    }
    for version in versions {
        let Some(number) = number(version) else { continue };
        if number < (3, 5, 0) {
            findings.push(Finding::problem(
                format!("ZooKeeper {version} is too old"),
                "locks need container nodes, which are removed when empty, and replies that name the \
                 transaction that created a node",
                "upgrade to 3.5 or later, preferably to a maintained release",
            ));
        }
        let flaws: Vec<&Flaw> = FLAWS.iter().filter(|flaw| has(number, flaw.fixed)).collect();
        for flaw in &flaws {
            let fixed: Vec<_> = flaw.fixed.iter().map(|(a, b, c)| format!("{a}.{b}.{c}")).collect();
            findings.push(Finding::note(
                format!("ZooKeeper {version} {}", flaw.what),
                flaw.why,
                format!("upgrade to {} or later, unless your distribution has patched it", fixed.join(", ")),
            ));
        }
        if flaws.is_empty() {
            findings.push(Finding::fine(format!("ZooKeeper {version}")));
        }
    }
}

fn number(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

/// Whether a release is before the one of its line in which something was fixed.
fn has(version: (u32, u32, u32), fixed: &[(u32, u32, u32)]) -> bool {
    let line = fixed.iter().find(|fix| (fix.0, fix.1) == (version.0, version.1));
    match (line, fixed.last()) {
        (Some(fix), _) => version < *fix,
        (None, Some(last)) => version < *last,
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_releases_with_a_fix_are_told_from_those_before() {
        let fixed = [(3, 7, 2), (3, 8, 3), (3, 9, 1)];
        for (version, affected) in [
            ("3.5.10", true),
            ("3.7.1", true),
            ("3.7.2", false),
            ("3.8.0", true),
            ("3.8.3", false),
            ("3.9.0", true),
            ("3.9.1", false),
            ("3.10.0", false),
        ] {
            assert_eq!(has(number(version).unwrap(), &fixed), affected, "{version}");
        }
        assert_eq!(number("x"), None);
    }
}
