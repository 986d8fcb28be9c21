//! Which server it is, whether it takes writes, and what stands in between.

use tollgate_core::Finding;
use tollgate_sql::Style;

use super::seen::Seen;

/// The oldest that has everything we use.
const OLDEST: i32 = 120_000;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    findings.push(if seen.version_number < OLDEST {
        Finding::problem(
            format!("it is PostgreSQL {}", seen.version),
            "what locks are made of works from PostgreSQL 12 on",
            "upgrade it",
        )
    } else {
        Finding::fine(format!("it is PostgreSQL {}", seen.version))
    });
    if seen.in_recovery {
        findings.push(Finding::problem(
            "it is in recovery: a replica, or a server that is being restored",
            "nothing can be written to it, so no lock can be taken",
            "name the primary, or all servers with commas in between: postgres://USER@ONE,OTHER/DATABASE finds the one that \
             takes writes",
        ));
        return;
    }
    if seen.read_only {
        findings.push(Finding::problem(
            "transactions of this user only read (default_transaction_read_only)",
            "no lock can be taken",
            format!("alter role {} reset default_transaction_read_only", seen.rights.user),
        ));
    }
    if seen.pooled && seen.style == Style::Session {
        findings.push(Finding::problem(
            "a pooler in between, like PgBouncer, gives each transaction another server process",
            "an advisory lock would be somebody else's in the next moment, so none can be taken",
            "connect past it, or leave out ?style=advisory: leases work through it",
        ));
    } else if seen.pooled {
        findings.push(Finding::note(
            "a pooler in between, like PgBouncer, gives each transaction another server process",
            "leases work through it, but those who wait poll instead of being told; locks of ?style=advisory do not work \
             at all: they would be somebody else's in the next moment",
            "give a way past it by &listen_url=, for notifications; connect past it for ?style=advisory",
        ));
    } else {
        findings.push(Finding::fine("each connection has a server process of its own"));
    }
    if seen.isolation != "read committed" && seen.pooled {
        findings.push(Finding::problem(
            format!("transactions are {} unless they say otherwise, and there is a pooler in between", seen.isolation.to_uppercase()),
            "locks need READ COMMITTED, and through a pooler our connections cannot say so: no lock can be taken",
            "alter role … set default_transaction_isolation = 'read committed'",
        ));
    } else if seen.isolation != "read committed" {
        findings.push(Finding::note(
            format!("transactions are {} unless they say otherwise", seen.isolation.to_uppercase()),
            "our own connections say READ COMMITTED themselves, but a lock within a transaction of yours is refused above it",
            "begin those with BEGIN ISOLATION LEVEL READ COMMITTED",
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
