//! Who else has the data: replicas, a primary above this server, other nodes of a cluster; and how many clients fit in.

use tollgate_core::Finding;
use tollgate_sql::Style;

use super::seen::Seen;

pub(super) fn look(seen: &Seen, style: Style, findings: &mut Vec<Finding>) {
    writes(seen, findings);
    if seen.is_on("wsrep_on") {
        galera(seen, style, findings);
    }
    if let Some(replicas) = seen.replicas.filter(|replicas| *replicas > 0) {
        findings.push(Finding::note(
            format!("{replicas} replicas read its log, some time after it has answered"),
            "a replica that takes over may not know the last locks and tokens: two can be in at once, and tokens can be given \
             again",
            "fence what the locks protect, or have the replicas confirm commits (semi-synchronous replication)",
        ));
    }
    connections(seen, findings);
}

fn writes(seen: &Seen, findings: &mut Vec<Finding>) {
    if seen.is_on("read_only") || seen.is_on("super_read_only") || seen.is_on("innodb_read_only") {
        findings.push(Finding::problem(
            "it takes no writes (read_only = ON): it is a replica, or somebody made it so",
            "no lock can be taken, renewed or given back",
            "name the primary in the URL",
        ));
    }
}

fn galera(seen: &Seen, style: Style, findings: &mut Vec<Finding>) {
    if style == Style::Session {
        findings.push(Finding::problem(
            "it is a node of a Galera cluster (wsrep_on = ON)",
            "GET_LOCK is only one node's, so no lock can be taken with ?style=session",
            "leave out ?style=session, and send all locks to one node",
        ));
        return;
    }
    findings.push(Finding::note(
        "it is a node of a Galera cluster (wsrep_on = ON)",
        "two nodes may decide at once, and one is told so only when it commits: locks go on, but more slowly. Sequences do not \
         rise there across nodes, and GET_LOCK is only one node's",
        "send all locks to one node, use ?dialect=mysql (which new tables here get by themselves), and never ?style=session",
    ));
    if seen.tables.as_deref() == Some("mariadb") {
        findings.push(Finding::problem(
            "its tables of locks draw tokens from a sequence",
            "each node of Galera draws from a part of its own, so that a later lock may get a smaller token",
            "use tables that were made with ?dialect=mysql, under another ?table_prefix=",
        ));
    }
    if seen.status.get("wsrep_ready").is_some_and(|ready| ready != "ON") {
        findings.push(Finding::problem(
            "this node has lost its cluster (wsrep_ready = OFF)",
            "it takes no statements",
            "bring it back into its cluster, or name another node",
        ));
    }
}

fn connections(seen: &Seen, findings: &mut Vec<Finding>) {
    let (Some(most), Some(used)) = (seen.number("max_connections"), seen.number("threads_connected")) else {
        return;
    };
    if used * 10 >= most * 8 {
        findings.push(Finding::note(
            format!("{used} of its {most} connections are in use (max_connections)"),
            "who finds none left can take no lock, and renews none",
            "raise max_connections, or have others use fewer",
        ));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    fn said(seen: &Seen) -> Vec<(Severity, String)> {
        of(seen, Style::Lease)
    }

    fn of(seen: &Seen, style: Style) -> Vec<(Severity, String)> {
        let mut findings = Vec::new();
        look(seen, style, &mut findings);
        findings.into_iter().map(|finding| (finding.severity, finding.what)).collect()
    }

    #[test]
    fn a_server_alone_has_nothing_to_say() {
        assert_eq!(said(&healthy(&[])), []);
        assert_eq!(said(&healthy(&[("read_only", "ON")]))[0].0, Severity::Problem);
        assert_eq!(said(&Seen { replicas: Some(2), ..healthy(&[]) })[0].0, Severity::Note);
        assert_eq!(said(&healthy(&[("threads_connected", "140")]))[0].0, Severity::Note);
    }

    #[test]
    fn on_galera_a_sequence_is_a_problem() {
        let galera = healthy(&[("wsrep_on", "ON")]);
        assert_eq!(said(&galera)[1].0, Severity::Problem);
        assert_eq!(of(&galera, Style::Session)[0].0, Severity::Problem, "and so is GET_LOCK");
        assert_eq!(said(&Seen { tables: Some("mysql".to_owned()), ..galera }).len(), 1);
    }
}
