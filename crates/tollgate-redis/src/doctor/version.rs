//! Which server it is, whether it is new enough, and what is known to be wrong with it.

use tollgate_core::Finding;

use super::holes;
use super::seen::Seen;
use crate::links::OLDEST;

/// A version as Redis writes it.
pub(super) type Version = (u32, u32, u32);

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    if seen.info.is_none() {
        findings.push(Finding::note(
            "the server's INFO cannot be read: this user may not call it",
            "its version, disk, memory and replicas are not examined",
            "allow +info for the examination, or examine as another user",
        ));
        return;
    }
    // Others call themselves a Redis that they are compatible with, and have holes of their own.
    let relatives =
        [("valkey_version", "Valkey"), ("dragonfly_version", "Dragonfly"), ("garnet_version", "Garnet")];
    let relative = relatives.iter().find_map(|(field, name)| Some((name, seen.info(field)?)));
    if let Some((name, version)) = relative {
        findings.push(Finding::fine(format!("the server is {name} {version}")));
        return;
    }
    let said = seen.info("redis_version").unwrap_or_default();
    let Some(version) = parse(said) else {
        findings.push(Finding::fine(format!("the server's version is {said:?}")));
        return;
    };
    if (version.0, version.1) < OLDEST {
        findings.push(Finding::problem(
            format!("the server is Redis {said}"),
            "locks need commands of version 6.2, and tollgate refuses an older one",
            "upgrade to a maintained release",
        ));
        return;
    }
    findings.push(Finding::fine(format!("the server is Redis {said}")));
    if seen.info("server_name").is_none_or(|name| name == "redis") {
        findings.extend(holes::of(version, said));
    }
}

fn parse(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    fn found(info: &[(&str, &str)]) -> Vec<Finding> {
        let mut findings = Vec::new();
        look(&healthy(info, &[]), &mut findings);
        findings
    }

    #[test]
    fn a_version_is_judged_and_a_relative_is_not_accused() {
        assert_eq!(found(&[])[0].severity, Severity::Fine);
        assert_eq!(found(&[("redis_version", "6.0.16")])[0].severity, Severity::Problem);
        assert_eq!(found(&[("redis_version", "7.0.15")])[1].severity, Severity::Note);
        for relative in [("valkey_version", "8.1.3"), ("server_name", "valkey")] {
            let valkey = found(&[("redis_version", "7.2.4"), relative]);
            assert!(valkey.iter().all(|finding| finding.severity == Severity::Fine), "{valkey:?}");
        }
        assert_eq!(found(&[("redis_version", "unstable")])[0].severity, Severity::Fine);
    }
}
