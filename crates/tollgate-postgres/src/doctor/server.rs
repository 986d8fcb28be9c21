//! Which server it is, whether it takes writes, and what stands in between.

use tollgate_core::Finding;
use tollgate_sql::Style;

use super::seen::Seen;

/// The oldest that has everything we use.
const OLDEST: i32 = 120_000;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    findings.push(if seen.version_number < OLDEST {
        Finding::problem(
            format!("the server is PostgreSQL {}", seen.version),
            "locks need PostgreSQL 12 or later",
            "upgrade the server",
        )
    } else {
        Finding::fine(format!("the server is PostgreSQL {}", seen.version))
    });
    if seen.in_recovery {
        findings.push(Finding::problem(
            "the server is in recovery: it is a replica, or is being restored",
            "it accepts no writes, so no lock can be taken",
            "name the primary, or all servers separated by commas: postgres://USER@ONE,OTHER/DATABASE \
             finds the server that accepts writes",
        ));
        return;
    }
    if seen.read_only {
        findings.push(Finding::problem(
            "transactions of this user are read-only (default_transaction_read_only)",
            "no lock can be taken",
            format!("alter role {} reset default_transaction_read_only", seen.rights.user),
        ));
    }
    if seen.pooled && seen.style == Style::Session {
        findings.push(Finding::problem(
            "a pooler in between, such as PgBouncer, assigns each transaction to another server process",
            "the next connection would own an advisory lock, so none can be taken",
            "connect directly, or leave out ?style=advisory: leases work through it",
        ));
    } else if seen.pooled {
        findings.push(Finding::note(
            "a pooler in between, such as PgBouncer, assigns each transaction to another server process",
            "leases work through it, but waiters poll instead of being notified; locks of ?style=advisory \
             do not work at all: the next connection would own them",
            "name a direct address with &listen_url=, for notifications; connect directly for \
             ?style=advisory",
        ));
    } else {
        findings.push(Finding::fine("each connection has its own server process"));
    }
    if seen.isolation != "read committed" && seen.pooled {
        findings.push(Finding::problem(
            format!(
                "transactions are {} by default, and there is a pooler in between",
                seen.isolation.to_uppercase()
            ),
            "locks need READ COMMITTED, and through a pooler tollgate's connections cannot set it: no lock \
             can be taken",
            "alter role … set default_transaction_isolation = 'read committed'",
        ));
    } else if seen.isolation != "read committed" {
        findings.push(Finding::note(
            format!("transactions are {} by default", seen.isolation.to_uppercase()),
            "tollgate's own connections set READ COMMITTED, but a lock within your own transaction is \
             refused above that level",
            "begin such transactions with BEGIN ISOLATION LEVEL READ COMMITTED",
        ));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    fn judged(seen: &Seen) -> Vec<Finding> {
        let mut findings = Vec::new();
        look(seen, &mut findings);
        findings
    }

    #[test]
    fn a_replica_and_an_old_server_are_problems() {
        let replica = judged(&Seen { in_recovery: true, ..healthy() });
        assert!(
            replica
                .iter()
                .any(|found| found.severity == Severity::Problem && found.what.contains("recovery"))
        );
        let old = judged(&Seen { version_number: 110_022, ..healthy() });
        assert_eq!(old[0].severity, Severity::Problem);
    }

    #[test]
    fn a_pooler_and_other_isolation_are_worth_knowing() {
        let severest = |pooled, isolation: &str| {
            let found = judged(&Seen { pooled, isolation: isolation.to_owned(), ..healthy() });
            found.iter().map(|found| found.severity).max().unwrap()
        };
        assert_eq!(severest(true, "read committed"), Severity::Note);
        assert_eq!(severest(false, "serializable"), Severity::Note);
        assert_eq!(severest(true, "serializable"), Severity::Problem, "no lock can be taken like that");
        let advisory = judged(&Seen { pooled: true, style: Style::Session, ..healthy() });
        assert_eq!(advisory[1].severity, Severity::Problem, "nor an advisory one");
    }
}
