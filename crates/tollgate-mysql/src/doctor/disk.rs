//! What is left of locks and tokens after a restart.

use tollgate_core::Finding;

use super::seen::Seen;

/// Whether every commit is on the disk before it is answered.
pub(super) fn is_durable(seen: &Seen) -> bool {
    seen.number("innodb_flush_log_at_trx_commit").is_none_or(|flush| flush == 1)
        && seen.setting("innodb_flush_method") != Some("nosync")
}

const FREE: &str = "a lock that was granted in the last second may be free after a power cut, and its \
                    token granted again: two holders can overlap";

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    findings.push(match seen.setting("innodb_flush_log_at_trx_commit") {
        Some("1") | None => Finding::fine(
            "every commit is on disk before it is answered (innodb_flush_log_at_trx_commit = 1)",
        ),
        Some(other) => Finding::problem(
            format!(
                "commits are answered before they are on disk (innodb_flush_log_at_trx_commit = {other})"
            ),
            FREE,
            "set innodb_flush_log_at_trx_commit = 1; fence the resources",
        ),
    });
    if seen.setting("innodb_flush_method") == Some("nosync") {
        findings.push(Finding::problem(
            "the server never waits for its disk (innodb_flush_method = nosync)",
            FREE,
            "set another innodb_flush_method",
        ));
    }
    if seen.setting("innodb_doublewrite") == Some("OFF") {
        findings.push(Finding::note(
            "torn pages cannot be repaired after a power cut (innodb_doublewrite = OFF)",
            "the lock tables may then be damaged, and no lock can be taken",
            "set innodb_doublewrite = ON, unless the disk writes pages atomically",
        ));
    }
    if seen.is_on("log_bin") {
        look_at_log(seen, findings);
    }
}

fn look_at_log(seen: &Seen, findings: &mut Vec<Finding>) {
    if seen.number("sync_binlog").is_some_and(|sync| sync != 1) {
        findings.push(Finding::note(
            format!(
                "the binary log may lack the last commits after a power cut (sync_binlog = {})",
                seen.settings["sync_binlog"]
            ),
            "the server keeps its own locks, but a replica that takes over may lack them",
            "set sync_binlog = 1 if replicas take over",
        ));
    }
    if seen.setting("binlog_format") == Some("STATEMENT") {
        findings.push(Finding::problem(
            "the binary log is statement-based (binlog_format = STATEMENT)",
            "locks need READ COMMITTED, and InnoDB refuses statement-based logging at that level",
            "set binlog_format = MIXED or ROW",
        ));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    fn worst(settings: &[(&str, &str)]) -> (Severity, String) {
        let mut findings = Vec::new();
        look(&healthy(settings), &mut findings);
        findings.into_iter().map(|finding| (finding.severity, finding.what)).max().expect("something is said")
    }

    #[test]
    fn a_disk_that_is_not_waited_for_is_a_problem() {
        assert_eq!(worst(&[]).0, Severity::Fine);
        for (name, value, severity) in [
            ("innodb_flush_log_at_trx_commit", "2", Severity::Problem),
            ("innodb_flush_log_at_trx_commit", "0", Severity::Problem),
            ("innodb_flush_method", "nosync", Severity::Problem),
            ("innodb_doublewrite", "OFF", Severity::Note),
            ("sync_binlog", "0", Severity::Note),
            ("binlog_format", "STATEMENT", Severity::Problem),
        ] {
            let (found, what) = worst(&[(name, value)]);
            assert!(found == severity && what.contains(name), "{name} = {value}: {what}");
        }
        assert!(
            is_durable(&healthy(&[])) && !is_durable(&healthy(&[("innodb_flush_log_at_trx_commit", "2")]))
        );
        assert_eq!(worst(&[("log_bin", "OFF"), ("sync_binlog", "0")]).0, Severity::Fine, "there is no log");
    }
}
