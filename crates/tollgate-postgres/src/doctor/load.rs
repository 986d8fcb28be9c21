//! Whether there is room for more connections, and whether rows that are no longer needed are cleaned up.

use std::time::Duration;

use tollgate_core::Finding;

use super::seen::Load;

/// From when on a transaction is in the way of cleaning up.
const LONG: Duration = Duration::from_secs(600);
/// From when on the tables are larger than locks need.
const LARGE: i64 = 256 << 20;

pub(super) fn look(load: &Load, findings: &mut Vec<Finding>) {
    findings.push(connections(load));
    if !load.cleans_up {
        findings.push(Finding::problem(
            "autovacuum is off",
            "each acquired lock leaves a dead row; without vacuuming, the tables grow and locks become \
             slower every hour",
            "alter system set autovacuum = on; alter system set track_counts = on; then select pg_reload_conf()",
        ));
    }
    if let Some(oldest) = load.oldest.as_ref().filter(|oldest| oldest.age >= LONG) {
        findings.push(Finding::note(
            format!(
                "a transaction has been open for {} minutes ({})",
                oldest.age.as_secs() / 60,
                oldest.state
            ),
            "until it ends, rows deleted since it began cannot be vacuumed: tables grow, the lock tables \
             first, and locks become slower",
            format!(
                "end it, with select pg_terminate_backend({}) if necessary; \
                 idle_in_transaction_session_timeout ends abandoned transactions",
                oldest.process
            ),
        ));
    }
    for (count, what, advice) in [
        (
            load.old_prepared,
            "prepared transactions are neither committed nor rolled back",
            "see pg_prepared_xacts, and rollback prepared",
        ),
        (
            load.dead_slots,
            "replication slots retain old rows, and no replica reads from them",
            "see pg_replication_slots, and pg_drop_replication_slot",
        ),
    ] {
        if count > 0 {
            findings.push(Finding::note(
                format!("{count} {what}"),
                "rows deleted since then cannot be vacuumed: tables grow, the lock tables first",
                advice,
            ));
        }
    }
    if load.table_bytes > LARGE {
        findings.push(Finding::note(
            format!("the lock tables take {} MiB", load.table_bytes >> 20),
            "that is more than a hundred thousand locks need, so rows are not vacuumed as fast as they are \
             created",
            "see the findings above for what retains them, and vacuum the tables",
        ));
    }
}

fn connections(load: &Load) -> Finding {
    let Load { connections, max_connections, .. } = load;
    let what = format!("{connections} of {max_connections} connections are in use");
    if connections * 10 < max_connections * 9 {
        return Finding::fine(what);
    }
    Finding::problem(
        what,
        "when all are in use, a new client can take no lock, and a client whose connection breaks may lose \
         its locks",
        "raise max_connections, let programs keep fewer connections, or put PgBouncer in between: leases \
         work through it",
    )
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::Oldest;
    use super::super::seen::tests::healthy;
    use super::*;

    fn judged(change: impl FnOnce(&mut Load)) -> Vec<Finding> {
        let mut load = healthy().load;
        change(&mut load);
        let mut findings = Vec::new();
        look(&load, &mut findings);
        findings
    }

    #[test]
    fn what_keeps_rows_from_being_cleaned_up_is_told() {
        let minutes =
            |age: u64| Some(Oldest { age: Duration::from_secs(age * 60), process: 77, state: "idle".into() });
        assert_eq!(judged(|load| load.oldest = minutes(9)).len(), 1);
        let long = judged(|load| load.oldest = minutes(11));
        assert!(
            long[1].advice.as_deref().unwrap_or_default().contains("pg_terminate_backend(77)"),
            "{long:?}"
        );
        assert_eq!(judged(|load| load.cleans_up = false)[1].severity, Severity::Problem);
        assert_eq!(judged(|load| (load.old_prepared, load.dead_slots) = (1, 2)).len(), 3);
        assert_eq!(judged(|load| load.table_bytes = 1 << 30).len(), 2);
    }

    #[test]
    fn connections_that_are_nearly_used_up_are_a_problem() {
        assert_eq!(judged(|load| load.connections = 89)[0].severity, Severity::Fine);
        assert_eq!(judged(|load| load.connections = 90)[0].severity, Severity::Problem);
    }
}
