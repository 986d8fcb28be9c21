//! Members, their leader, and how many may fail.

use tollgate_core::Finding;

use super::seen::Seen;
use crate::wire::AlarmType;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    members(seen, findings);
    leader(seen, findings);
    alarms(seen, findings);
    restored(seen, findings);
}

fn members(seen: &Seen, findings: &mut Vec<Finding>) {
    let (voters, majority) = (seen.voters(), seen.voters() / 2 + 1);
    let answering = seen.answers().filter(|(member, _)| !member.is_learner).count();
    for member in &seen.members {
        if let Err(message) = &member.status {
            findings.push(Finding::problem(
                format!("the member {} does not answer: {message}", member.name),
                format!(
                    "{} of {voters} members may fail before no lock can be taken",
                    answering.saturating_sub(majority)
                ),
                "start it, or replace it; its address for clients must be reachable from here",
            ));
        }
    }
    findings.push(match voters {
        1 => Finding::note(
            "it has one member",
            "its locks stand still while it is down, and are lost with its disk",
            "three members survive the loss of one",
        ),
        _ if voters % 2 == 0 => Finding::note(
            format!("it has {voters} members"),
            format!("no more of them may fail than of {}", voters - 1),
            "an odd number is cheaper, or survives more",
        ),
        _ if answering < majority => Finding::problem(
            format!("{answering} of {voters} members answer, and {majority} are a majority"),
            "without a majority no lock can be taken, and those that are held are lost",
            "start the others",
        ),
        _ => Finding::fine(format!(
            "{answering} of {voters} members answer; {} may fail",
            answering - majority
        )),
    });
}

fn leader(seen: &Seen, findings: &mut Vec<Finding>) {
    let mut leaders: Vec<u64> = seen.answers().map(|(_, status)| status.leader).collect();
    leaders.sort_unstable();
    leaders.dedup();
    findings.push(match leaders[..] {
        [leader] if leader != 0 => Finding::fine("its members agree on a leader"),
        _ => Finding::problem(
            "not all of its members know of the same leader",
            "those that know of none refuse every request",
            "look again; if it stays so, see whether the members reach each other",
        ),
    });
}

fn alarms(seen: &Seen, findings: &mut Vec<Finding>) {
    let raised = match &seen.alarms {
        Ok(raised) => raised,
        Err(message) => {
            return findings.push(Finding::note(
                format!("whether etcd raises an alarm cannot be asked: {message}"),
                "a database that is full refuses every lock",
                "ask as root: etcdctl alarm list",
            ));
        }
    };
    for (member, alarm) in raised {
        findings.push(match alarm {
            AlarmType::Nospace => Finding::problem(
                format!("the database of {member} is full"),
                "etcd refuses every write but deletions: no lock can be taken, those that are held can be given back",
                "etcdctl compact, etcdctl defrag, then etcdctl alarm disarm",
            ),
            AlarmType::Corrupt => Finding::problem(
                format!("{member} has other data than the others"),
                "two clients that ask different members may both find a lock free",
                "take that member out, and have it start empty",
            ),
            AlarmType::None => continue,
        });
    }
}

/// Every revision took an entry of the log. A log that is shorter began after the data: with a backup.
fn restored(seen: &Seen, findings: &mut Vec<Finding>) {
    let shorter = seen.answers().find(|(_, status)| {
        let revision = status.header.map_or(0, |header| header.revision.unsigned_abs());
        revision > status.raft_index
    });
    if shorter.is_some() {
        findings.push(Finding::note(
            "it was restored from a backup",
            "revisions that were given after the backup are given again, and tokens are revisions: a stale holder may pass",
            "if they were not raised when it was restored (etcdutl snapshot restore --bump-revision), raise the floor of its \
             locks' tokens",
        ));
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::SeenMember;
    use super::*;
    use crate::wire::{ResponseHeader, StatusResponse};

    fn member(name: &str, leader: u64) -> SeenMember {
        let header = Some(ResponseHeader { revision: 10, ..ResponseHeader::default() });
        let status = StatusResponse { leader, header, raft_index: 20, ..StatusResponse::default() };
        SeenMember { name: name.to_owned(), is_learner: false, status: Ok(status) }
    }

    fn of(members: Vec<SeenMember>, alarms: Vec<(String, AlarmType)>) -> Vec<(Severity, String)> {
        let mut findings = Vec::new();
        look(&Seen { members, alarms: Ok(alarms), may_write: Ok(()) }, &mut findings);
        findings.into_iter().map(|finding| (finding.severity, finding.what)).collect()
    }

    fn has(findings: &[(Severity, String)], severity: Severity, words: &str) -> bool {
        findings.iter().any(|(found, what)| *found == severity && what.contains(words))
    }

    #[test]
    fn three_that_agree_are_fine() {
        let findings = of(vec![member("a", 1), member("b", 1), member("c", 1)], Vec::new());
        assert!(findings.iter().all(|(severity, _)| *severity == Severity::Fine), "{findings:?}");
        assert!(has(&findings, Severity::Fine, "1 may fail"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut gone = member("b", 1);
        gone.status = Err("nobody is there".to_owned());
        let findings =
            of(vec![member("a", 1), gone, member("c", 0)], vec![("a".to_owned(), AlarmType::Nospace)]);
        assert!(has(&findings, Severity::Problem, "b does not answer"));
        assert!(has(&findings, Severity::Problem, "leader"));
        assert!(has(&findings, Severity::Problem, "full"));
        assert!(has(&of(vec![member("a", 1)], Vec::new()), Severity::Note, "one member"));
    }

    #[test]
    fn a_log_that_is_shorter_than_its_data_began_with_a_backup() {
        let mut restored = member("a", 1);
        if let Ok(status) = &mut restored.status {
            status.raft_index = 5;
        }
        assert!(has(&of(vec![restored], Vec::new()), Severity::Note, "backup"));
    }
}
