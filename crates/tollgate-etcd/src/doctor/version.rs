//! Versions, and what is known to be wrong with some of them.

use tollgate_core::Finding;

use super::seen::Seen;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let mut versions: Vec<&str> = seen.answers().map(|(_, status)| status.now.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        findings.push(Finding::note(
            format!("the members have different versions: {}", versions.join(", ")),
            "members should differ only during an upgrade",
            "finish the upgrade",
        ));
    }
    findings.extend(versions.iter().map(|version| finding(version, seen.voters())));
}

fn finding(version: &str, voters: usize) -> Finding {
    let Some(fixed) = trusts_a_deposed_leader(version) else {
        return Finding::fine(format!("etcd {version}"));
    };
    let what = format!("etcd {version} can end leases that are still alive");
    let why = "a leader that was stuck, for example on a slow disk, ends leases that its successor keeps, \
               and answers keep-alives for leases that its successor ends (etcd issue 15247). Tollgate \
               counts a keep-alive only once a majority has confirmed the leader, so no two holders \
               overlap, but a holder can lose its lock";
    if voters > 1 {
        return Finding::problem(what, why, format!("upgrade to {fixed} or later"));
    }
    Finding::note(
        what,
        format!(
            "a cluster of one member is not affected, because that member always leads; with several, {why}"
        ),
        format!("upgrade to {fixed} or later before you add members"),
    )
}

/// The release in which a stuck leader neither ends live leases nor answers keep-alives, if `version` is
/// before it.
fn trusts_a_deposed_leader(version: &str) -> Option<&'static str> {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let number = (numbers.next()?, numbers.next()?, numbers.next()?);
    match number {
        (3, 4, patch) if patch >= 31 => None,
        (3, 5, patch) if patch >= 13 => None,
        (3, minor, _) if minor >= 6 => None,
        (major, ..) if major > 3 => None,
        (3, 5, _) => Some("3.5.13"),
        _ => Some("3.4.31"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Severity;

    #[test]
    fn a_version_that_trusts_a_deposed_leader_is_named_on_a_single_member_too() {
        for (version, voters, severity) in [
            ("3.4.23", 1, Severity::Note),
            ("3.4.23", 3, Severity::Problem),
            ("3.5.13", 1, Severity::Fine),
            ("3.5.13", 3, Severity::Fine),
        ] {
            let found = finding(version, voters);
            assert_eq!(found.severity, severity, "{version} with {voters} members");
            assert!(found.what.contains(version), "{}", found.what);
        }
    }

    #[test]
    fn the_releases_with_the_fix_are_told_from_those_before() {
        for (version, fixed) in [
            ("3.4.23", Some("3.4.31")),
            ("3.4.31", None),
            ("3.5.12", Some("3.5.13")),
            ("3.5.13", None),
            ("3.6.0-rc.1", None),
            ("4.0.0", None),
        ] {
            assert_eq!(trusts_a_deposed_leader(version), fixed, "{version}");
        }
    }
}
