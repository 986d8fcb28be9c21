//! Whether it is a primary, and what a fail-over would lose.

use tollgate_core::Finding;

use super::seen::Seen;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    match seen.info("role") {
        Some("slave") => {
            let of = format!(
                "{}:{}",
                seen.info("master_host").unwrap_or("?"),
                seen.info("master_port").unwrap_or("?")
            );
            findings.push(Finding::problem(
                format!("the server is a replica of {of}"),
                "a replica accepts no writes, hence no locks; and data written there is lost",
                "connect to the primary, or write redis-sentinel://HOST/SERVICE to find it",
            ));
        }
        Some(_) => findings.push(copies(seen)),
        None => {}
    }
}

fn copies(seen: &Seen) -> Finding {
    let replicas = seen.number("connected_slaves").unwrap_or(0);
    let least = seen.setting("min-replicas-to-write").unwrap_or("0");
    let advice = "fence the resources, or use redlock:// on several independent Redis servers";
    if replicas == 0 {
        return Finding::fine("the server is a primary without replicas");
    }
    let has = if replicas == 1 {
        "the server has a replica".to_owned()
    } else {
        format!("the server has {replicas} replicas")
    };
    let why = "a replica that takes over lacks writes that had not reached it: those locks are free, and \
               two holders can overlap";
    match least {
        "0" => Finding::note(
            format!("{has}, and answers before any replica has a change (min-replicas-to-write 0)"),
            why,
            format!("set min-replicas-to-write 1, which limits their lag; {advice}"),
        ),
        least => Finding::note(
            format!("{has}, and writes only while {least} of them keep up (min-replicas-to-write {least})"),
            why,
            advice,
        ),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    #[test]
    fn a_replica_is_a_problem_and_having_some_is_worth_knowing() {
        let mut findings = Vec::new();
        look(&healthy(&[("role", "slave"), ("master_host", "b")], &[]), &mut findings);
        assert_eq!(findings[0].severity, Severity::Problem);
        assert_eq!(copies(&healthy(&[], &[])).severity, Severity::Fine);
        let with =
            |least| copies(&healthy(&[("connected_slaves", "1")], &[("min-replicas-to-write", least)]));
        assert!(with("0").advice.unwrap().contains("set min-replicas"));
        assert!(!with("1").advice.unwrap().contains("set min-replicas"));
        assert_eq!(with("1").severity, Severity::Note);
    }
}
