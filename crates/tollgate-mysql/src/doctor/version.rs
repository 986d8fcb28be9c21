//! Which server it is, and whether locks know it.

use tollgate_core::Finding;

use super::seen::Seen;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let (kind, wanted) = match seen.kind() {
        "MariaDB" => ("MariaDB", (10, 6)),
        _ => ("MySQL", (8, 0)),
    };
    let shown = &seen.version;
    findings.push(match numbers(shown) {
        Some(found) if found >= wanted => Finding::fine(format!("the server is {kind} {shown}")),
        _ => Finding::problem(
            format!("the server is {kind} {shown}"),
            format!("locks support {kind} {}.{} and later", wanted.0, wanted.1),
            "use a newer server",
        ),
    });
    if kind == "MySQL" {
        findings.push(Finding::note(
            "locks are tested on MariaDB, with statements that MySQL understands, and not on MySQL itself",
            "MySQL may differ in a way that was not tested",
            "test under load, and fence the resources",
        ));
    }
}

/// The first two numbers of a version, behind what old servers put before it.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut parts = version.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::*;

    #[test]
    fn old_servers_are_a_problem() {
        for (version, severity) in [
            ("10.11.6-MariaDB-0+deb12u1", Severity::Fine),
            ("5.5.5-10.3.2-MariaDB", Severity::Problem),
            ("8.0.35", Severity::Fine),
            ("5.7.44-log", Severity::Problem),
        ] {
            let mut findings = Vec::new();
            look(&Seen { version: version.to_owned(), ..Seen::default() }, &mut findings);
            assert_eq!(findings[0].severity, severity, "{version}");
        }
    }
}
