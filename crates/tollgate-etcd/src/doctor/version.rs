//! Versions, and what is known to be wrong with some of them.

use tollgate_core::Finding;

use super::seen::Seen;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let mut versions: Vec<&str> = seen.answers().map(|(_, status)| status.now.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        findings.push(Finding::note(
            format!("its members have different versions: {}", versions.join(", ")),
            "they should only while they are upgraded",
            "finish the upgrade",
        ));
    }
    for version in &versions {
        match revokes_live_leases(version) {
            Some(fixed) if seen.voters() > 1 => findings.push(Finding::problem(
                format!("etcd {version} can end leases that are alive"),
                "a leader that was stuck, for example on a slow disk, ends leases that its successor keeps (etcd issue 15247): \
                 holders lose their locks, and learn it only with their next keep-alive",
                format!("upgrade to {fixed} or later, or fence what the locks protect"),
            )),
            _ => findings.push(Finding::fine(format!("etcd {version}"))),
        }
    }
}

/// The release in which a stuck leader no longer ends live leases, if `version` is before it.
fn revokes_live_leases(version: &str) -> Option<&'static str> {
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
            assert_eq!(revokes_live_leases(version), fixed, "{version}");
        }
    }
}
