//! What is on a disk, or on another server, when a lock is called held.

use tollgate_core::Finding;
use tollgate_sql::Style;

use super::seen::Seen;

/// Whether whatever was answered is still there after a crash.
pub(super) fn survives_a_crash(seen: &Seen) -> bool {
    let durability = &seen.durability;
    // Tokens of advisory locks go far ahead after a crash, whatever was on the disk.
    let waits = seen.style == Style::Session || durability.synchronous_commit != "off";
    durability.fsync && durability.full_page_writes && waits
}

/// Whether whatever was answered is on a replica, too.
pub(super) fn survives_a_fail_over(seen: &Seen) -> bool {
    let waits = matches!(seen.durability.synchronous_commit.as_str(), "on" | "remote_apply");
    survives_a_crash(seen) && waits && !seen.durability.synchronous_standbys.is_empty()
}

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    disk(seen, findings);
    replicas(seen, findings);
}

fn disk(seen: &Seen, findings: &mut Vec<Finding>) {
    let durability = &seen.durability;
    if !durability.fsync || !durability.full_page_writes {
        let setting = if durability.fsync { "full_page_writes" } else { "fsync" };
        findings.push(Finding::problem(
            format!("{setting} is off"),
            "a crash of the server's machine may damage all its data, locks and tokens included: two \
             holders can overlap, and tokens can be granted again",
            format!("alter system set {setting} = on; then select pg_reload_conf()"),
        ));
    }
    if durability.synchronous_commit == "off" && seen.style == Style::Lease {
        findings.push(Finding::problem(
            "synchronous_commit is off",
            "a commit is answered before it is on disk: after a crash the latest locks are forgotten while \
             their holders still rely on them, and their tokens are granted again",
            format!("alter role {} set synchronous_commit = on, and connect again", seen.rights.user),
        ));
    }
    if survives_a_crash(seen) {
        findings.push(Finding::fine(match seen.style {
            Style::Lease => "locks and tokens are on disk before a grant is reported",
            Style::Session => "tokens keep increasing after a crash",
        }));
    }
}

fn replicas(seen: &Seen, findings: &mut Vec<Finding>) {
    let durability = &seen.durability;
    let (replicas, names) = (durability.replicas, durability.synchronous_standbys.as_str());
    match (replicas, names) {
        (0, "") => findings
            .push(Finding::fine("the server has no replicas: none can take over without the latest commits")),
        (0, names) => findings.push(Finding::problem(
            format!("synchronous_standby_names is {names:?}, and no replica is connected"),
            "each commit waits for one, so no lock can be taken or renewed",
            "start a replica, or alter system set synchronous_standby_names = '' and select pg_reload_conf()",
        )),
        (replicas, "") => findings.push(Finding::note(
            format!("connected replicas: {replicas}; no commit waits for them"),
            "a replica that takes over may lack the latest locks and tokens: two holders can overlap, and \
             tokens can be granted again",
            "name replicas in synchronous_standby_names, or fence the resources in the same database: a \
             fail-over then loses both together",
        )),
        (replicas, names) if survives_a_fail_over(seen) => findings.push(Finding::fine(format!(
            "commits wait for replicas (synchronous_standby_names is {names:?}, {replicas} are connected); \
             let only one of those take over"
        ))),
        (_, names) => findings.push(Finding::note(
            format!(
                "synchronous_standby_names is {names:?}, but synchronous_commit is {:?}",
                durability.synchronous_commit
            ),
            "a commit does not wait until a replica has it on disk: a replica that takes over may lack the \
             latest locks",
            format!("alter role {} set synchronous_commit = on, and connect again", seen.rights.user),
        )),
    }
    if durability.synchronous_replicas > 0 && durability.synchronous_commit == "remote_apply" {
        findings.push(Finding::note(
            "synchronous_commit is remote_apply",
            "each commit waits until a replica has applied it, which locks do not need: locks become slower",
            format!("alter role {} set synchronous_commit = on, and connect again", seen.rights.user),
        ));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::super::seen::{Durability, Seen};
    use super::*;

    fn worst(change: impl FnOnce(&mut Durability)) -> (Severity, String) {
        let mut seen: Seen = healthy();
        change(&mut seen.durability);
        let mut findings = Vec::new();
        look(&seen, &mut findings);
        let worst = findings.into_iter().max_by_key(|finding| finding.severity).expect("something is said");
        (worst.severity, worst.what)
    }

    type Case = (fn(&mut Durability), Severity, &'static str);

    #[test]
    fn what_a_crash_or_a_fail_over_forgets_is_told() {
        let cases: [Case; 7] = [
            (|_| {}, Severity::Fine, "disk"),
            (|d| d.fsync = false, Severity::Problem, "fsync is off"),
            (|d| d.full_page_writes = false, Severity::Problem, "full_page_writes"),
            (|d| d.synchronous_commit = "off".into(), Severity::Problem, "synchronous_commit is off"),
            (|d| d.replicas = 2, Severity::Note, "connected replicas: 2"),
            (|d| d.synchronous_standbys = "*".into(), Severity::Problem, "no replica is connected"),
            (
                |d| {
                    d.replicas = 1;
                    d.synchronous_standbys = "*".into();
                    d.synchronous_commit = "local".into();
                },
                Severity::Note,
                "\"local\"",
            ),
        ];
        for (change, severity, words) in cases {
            let (found, what) = worst(change);
            assert_eq!(found, severity, "{what}");
            assert!(severity == Severity::Fine || what.contains(words), "{what}");
        }
    }
}
