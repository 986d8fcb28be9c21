//! Servers, their leader, and how many may fail.

use tollgate_core::Finding;

use super::seen::{Inside, Seen};

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    for server in &seen.servers {
        match (&server.state, server.mode()) {
            (Err(message), _) => findings.push(Finding::problem(
                format!("{} does not answer: {message}", server.host),
                "it cannot stand in for another that fails",
                "start it, or take it out of the URL; the word srvr must be in its 4lw.commands.whitelist",
            )),
            (Ok(_), None) => findings.push(Finding::problem(
                format!("{} serves nobody: it has no leader", server.host),
                "it refuses every request",
                "start the others; see whether they reach each other",
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
            "servers in the URL stand alone, and know nothing of each other",
            "two clients that reach different ones may hold one lock at once",
            "name the servers of one ensemble, or one server",
        ));
    } else if named("leader") > 1 {
        findings.push(Finding::problem(
            "the URL names servers of more than one ensemble",
            "two clients that reach different ones may hold one lock at once",
            "name the servers of one ensemble",
        ));
    }
}

fn size(seen: &Seen, inside: &Inside) -> Finding {
    let serving = seen.servers.iter().filter(|server| server.mode().is_some()).count();
    match inside.voters {
        None | Some(1) => Finding::note(
            "it is one server",
            "its locks stand still while it is down, and are lost with its disk",
            "three servers survive the loss of one",
        ),
        Some(voters) if voters % 2 == 0 => Finding::note(
            format!("{voters} servers vote"),
            format!("no more of them may fail than of {}", voters - 1),
            "an odd number is cheaper, or survives more",
        ),
        Some(voters) if seen.servers.len() < voters => Finding::note(
            format!("{voters} servers vote, and the URL names {}", seen.servers.len()),
            "clients that know of few cannot go on when those fail",
            "name them all",
        ),
        Some(voters) => Finding::fine(format!(
            "{serving} of {voters} servers serve clients; {} may fail",
            serving.saturating_sub(voters / 2 + 1)
        )),
    }
}
