//! Servers, their leader, and how many may fail.

use tollgate_core::Finding;

use super::seen::{Inside, Seen};

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    for server in &seen.servers {
        match (&server.state, server.mode()) {
            (Err(message), _) => findings.push(Finding::problem(
                format!("{} does not answer: {message}", server.host),
                "it cannot replace another server that fails",
                "start it, or remove it from the URL; the word srvr must be in its 4lw.commands.whitelist",
            )),
            (Ok(_), None) => findings.push(Finding::problem(
                format!("{} serves no clients: it has no leader", server.host),
                "it refuses every request",
                "start the other servers; check whether they reach each other",
            )),
            (Ok(_), Some(_)) => {}
        }
    }
    leaders(seen, findings);
    if let Ok(inside) = &seen.inside {
        findings.push(size(seen, inside));
    }
}

fn leaders(seen: &Seen, findings: &mut Vec<Finding>) {
    let named = |mode: &str| seen.servers.iter().filter(|server| server.mode() == Some(mode)).count();
    if named("standalone") > 0 && seen.servers.len() > 1 {
        findings.push(Finding::problem(
            "servers in the URL run standalone, and do not share state",
            "two clients that reach different servers may hold one lock at once",
            "name the servers of one ensemble, or one server",
        ));
    } else if named("leader") > 1 {
        findings.push(Finding::problem(
            "the URL names servers of more than one ensemble",
            "two clients that reach different servers may hold one lock at once",
            "name the servers of one ensemble",
        ));
    }
}

fn size(seen: &Seen, inside: &Inside) -> Finding {
    let serving = seen.servers.iter().filter(|server| server.mode().is_some()).count();
    match inside.voters {
        None | Some(1) => Finding::note(
            "the ensemble has one server",
            "while it is down, no lock can be taken, renewed or released, and the locks are lost with its \
             disk",
            "three servers survive the loss of one",
        ),
        Some(voters) if voters % 2 == 0 => Finding::note(
            format!("{voters} servers vote"),
            format!("this ensemble survives no more failures than one of {} servers", voters - 1),
            "an odd number of servers is cheaper, or survives more failures",
        ),
        Some(voters) if seen.servers.len() < voters => Finding::note(
            format!("{voters} servers vote, and the URL names {}", seen.servers.len()),
            "a client that knows only some servers cannot continue when those fail",
            "name all servers in the URL",
        ),
        Some(voters) => Finding::fine(format!(
            "{serving} of {voters} servers serve clients; {} may fail",
            serving.saturating_sub(voters / 2 + 1)
        )),
    }
}
