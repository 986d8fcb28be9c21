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
            format!("{replicas} replicas read the server's log asynchronously, after it has answered"),
            "a replica that takes over may lack the latest locks and tokens: two holders can overlap, and \
             tokens can be granted again",
            "fence the resources, or let the replicas acknowledge commits (semi-synchronous replication)",
        ));
    }
    connections(seen, findings);
}

fn writes(seen: &Seen, findings: &mut Vec<Finding>) {
    if seen.is_on("read_only") || seen.is_on("super_read_only") || seen.is_on("innodb_read_only") {
        findings.push(Finding::problem(
            "the server accepts no writes (read_only = ON): it is a replica, or was made read-only",
            "no lock can be taken, renewed or released",
            "name the primary in the URL",
        ));
    }
}

fn galera(seen: &Seen, style: Style, findings: &mut Vec<Finding>) {
    if style == Style::Session {
        findings.push(Finding::problem(
            "the server is a node of a Galera cluster (wsrep_on = ON)",
            "GET_LOCK works on one node only, so no lock can be taken with ?style=session",
            "leave out ?style=session, and send all locks to one node",
        ));
        return;
    }
    findings.push(Finding::note(
        "the server is a node of a Galera cluster (wsrep_on = ON)",
        "two nodes may grant at once, and one of them learns of the conflict only at commit: locks work, \
         but more slowly. Sequences do not increase across nodes, and GET_LOCK works on one node only",
        "send all locks to one node, use ?dialect=mysql (the default for new tables here), and never \
         ?style=session",
    ));
    if seen.tables.as_deref() == Some("mariadb") {
        findings.push(Finding::problem(
            "the lock tables draw tokens from a sequence",
            "each Galera node draws from its own part of the sequence, so that a later lock may get a \
             smaller token",
            "use tables that were created with ?dialect=mysql, under another ?table_prefix=",
        ));
    }
    if seen.status.get("wsrep_ready").is_some_and(|ready| ready != "ON") {
        findings.push(Finding::problem(
            "this node has lost its cluster (wsrep_ready = OFF)",
            "it executes no statements",
            "let it rejoin its cluster, or name another node",
        ));
    }
}

fn connections(seen: &Seen, findings: &mut Vec<Finding>) {
    let (Some(most), Some(used)) = (seen.number("max_connections"), seen.number("threads_connected")) else {
        return;
    };
    if used * 10 >= most * 8 {
        findings.push(Finding::note(
            format!("{used} of the server's {most} connections are in use (max_connections)"),
            "a client that gets no connection can take no lock and renew none",
            "raise max_connections, or let other programs use fewer",
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
