//! Members, their leader, and how many may fail.

use tollgate_core::{ErrorKind, Finding};

use super::seen::Seen;
use crate::restored::Mark;
use crate::wire::AlarmType;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    members(seen, findings);
    leader(seen, findings);
    alarms(seen, findings);
    restored(seen, findings);
}

fn members(seen: &Seen, findings: &mut Vec<Finding>) {
    let (voters, answering, majority) = (seen.voters(), seen.answering(), seen.majority());
    for member in &seen.members {
        if let Err(message) = &member.status {
            findings.push(Finding::problem(
                format!("the member {} does not answer: {message}", member.name),
                match answering.checked_sub(majority) {
                    None => "without a majority no lock can be taken".to_owned(),
                    Some(0) => "if one more fails, no lock can be taken".to_owned(),
                    Some(more) => format!("{more} more may fail before no lock can be taken"),
                },
                "start the member, or replace it; its client address must be reachable from this machine",
            ));
        }
    }
    findings.push(match voters {
        _ if answering < majority => Finding::problem(
            format!("{answering} of {voters} members answer, and {majority} are needed for a majority"),
            "without a majority no lock can be taken, and held locks are lost",
            "start the other members; if they are lost for good, restore etcd from a backup",
        ),
        1 => Finding::note(
            "the cluster has one member",
            "while it is down, no lock can be taken, renewed or released, and the locks are lost with its \
             disk",
            "three members survive the loss of one",
        ),
        _ if voters % 2 == 0 => Finding::note(
            format!("{answering} of {voters} members answer; {} may fail", answering - majority),
            format!("a cluster of {voters} members survives no more failures than one of {}", voters - 1),
            "an odd number of members is cheaper, or survives more failures",
        ),
        _ => Finding::fine(format!(
            "{answering} of {voters} members answer; {} may fail",
            answering - majority
        )),
    });
}

fn leader(seen: &Seen, findings: &mut Vec<Finding>) {
    let mut leaders: Vec<u64> = seen.answers().map(|(_, status)| status.now.leader).collect();
    leaders.sort_unstable();
    leaders.dedup();
    findings.push(match leaders[..] {
        [leader] if leader != 0 => Finding::fine("all members agree on a leader"),
        // Nothing but a majority helps.
        _ if seen.answering() < seen.majority() => return,
        _ => Finding::problem(
            "not all members know the same leader",
            "members that know no leader refuse every request",
            "run the doctor again; if this persists, check whether the members reach each other",
        ),
    });
}

fn alarms(seen: &Seen, findings: &mut Vec<Finding>) {
    let raised = match &seen.alarms {
        Ok(raised) => raised,
        // What that comes of is said elsewhere.
        Err(error) if error.kind() != ErrorKind::Denied => return,
        Err(error) => {
            return findings.push(Finding::note(
                format!("this user may not list etcd's alarms: {}", error.message()),
                "etcd refuses every lock once a member's database is full",
                "list the alarms as root: etcdctl alarm list",
            ));
        }
    };
    for (member, alarm) in raised {
        match alarm {
            AlarmType::Corrupt => findings.push(Finding::problem(
                format!("the data of {member} differs from that of the other members"),
                "two clients that ask different members may both find a lock free",
                "remove that member, and add it again with an empty data directory",
            )),
            // How full they are is looked at elsewhere.
            AlarmType::Nospace | AlarmType::None => {}
        }
    }
}

/// A log that is shorter than its data began with a backup; when it has caught up, the mark still tells.
fn restored(seen: &Seen, findings: &mut Vec<Finding>) {
    let behind = seen.answers().map(|(_, status)| status.behind).max().unwrap_or(0);
    let known = seen.mark.map_or(0, |mark| mark.behind);
    if behind.max(known) == 0 {
        return;
    }
    if seen.mark.is_some_and(|mark| mark.seen) && behind <= known {
        return findings.push(Finding::fine(
            "the cluster was restored from a backup, and an operator has acknowledged it",
        ));
    }
    let mark = Mark { behind: behind.max(known), seen: true };
    findings.push(Finding::note(
        "the cluster was restored from a backup",
        "revisions that were assigned after the backup are assigned again, and tokens are revisions: a \
         stale holder may pass a fence",
        format!(
            "unless revisions were raised during the restore (etcdutl snapshot restore --bump-revision), \
             raise the tokens of its locks (docs/backends/etcd.md says how); then acknowledge this \
             finding: etcdctl put $'{}\\x01restored' '{}'",
            seen.prefix,
            serde_json::json!(mark)
        ),
    ));
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::{SeenMember, SeenStatus};
    use super::super::space;
    use super::*;
    use crate::wire::StatusResponse;

    fn member(name: &str, leader: u64) -> SeenMember {
        let now =
            StatusResponse { leader, db_size: 2 << 20, db_size_in_use: 1 << 20, ..StatusResponse::default() };
        SeenMember { name: name.to_owned(), is_learner: false, status: Ok(SeenStatus { now, behind: 0 }) }
    }

    fn gone(name: &str) -> SeenMember {
        SeenMember { status: Err("nobody is there".to_owned()), ..member(name, 0) }
    }

    fn seen(members: Vec<SeenMember>) -> Seen {
        let (alarms, may_write, prefix) = (Ok(Vec::new()), Ok(()), "/locks/".to_owned());
        Seen { members, alarms, may_write, mark: None, prefix }
    }

    fn found(seen: &Seen) -> Vec<Finding> {
        let mut findings = Vec::new();
        look(seen, &mut findings);
        space::look(seen, &mut findings);
        findings
    }

    fn has(findings: &[Finding], severity: Severity, words: &str) -> bool {
        findings.iter().any(|finding| finding.severity == severity && finding.what.contains(words))
    }

    #[test]
    fn three_that_agree_are_fine() {
        let findings = found(&seen(vec![member("a", 1), member("b", 1), member("c", 1)]));
        assert!(findings.iter().all(|finding| finding.severity == Severity::Fine), "{findings:?}");
        assert!(has(&findings, Severity::Fine, "1 may fail"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let findings = found(&seen(vec![member("a", 1), gone("b"), member("c", 0)]));
        assert!(has(&findings, Severity::Problem, "b does not answer"));
        assert!(has(&findings, Severity::Problem, "leader"));
        assert!(has(&found(&seen(vec![member("a", 1)])), Severity::Note, "one member"));
    }

    #[test]
    fn a_majority_that_is_lost_is_a_problem_however_many_voters_there_are() {
        for (members, words) in [
            (vec![member("a", 0), gone("b"), gone("c")], "1 of 3"),
            (vec![member("a", 0), member("b", 0), gone("c"), gone("d")], "2 of 4"),
            (vec![member("a", 0), gone("b")], "1 of 2"),
        ] {
            let findings = found(&seen(members));
            assert!(has(&findings, Severity::Problem, words), "{findings:?}");
            assert!(!has(&findings, Severity::Problem, "same leader"), "nothing but a majority helps");
        }
    }

    #[test]
    fn an_even_number_of_voters_is_noted_and_a_learner_is_none() {
        let four = || ["a", "b", "c", "d"].map(|name| member(name, 1));
        let findings = found(&seen(Vec::from(four())));
        assert!(has(&findings, Severity::Note, "4 of 4 members answer; 1 may fail"), "{findings:?}");
        let mut learning = Vec::from(four());
        learning[3].is_learner = true;
        let findings = found(&seen(learning));
        assert!(has(&findings, Severity::Fine, "3 of 3 members answer; 1 may fail"), "{findings:?}");
    }

    #[test]
    fn a_database_that_is_full_is_told_with_its_size_and_without_a_share() {
        let full = Seen {
            alarms: Ok(vec![("a".to_owned(), AlarmType::Nospace)]),
            ..seen(vec![member("a", 1), member("b", 1)])
        };
        let findings = found(&full);
        assert!(has(&findings, Severity::Problem, "of a is full: it takes 2.0 MiB"), "{findings:?}");
        assert!(has(&findings, Severity::Fine, "of b takes 2.0 MiB"), "{findings:?}");
        assert!(!findings.iter().any(|finding| finding.what.contains('%')), "{findings:?}");
    }

    #[test]
    fn a_backup_is_remembered_until_somebody_has_seen_to_it() {
        let of = |behind, mark| {
            let mut restored = seen(vec![member("a", 1)]);
            if let Ok(status) = &mut restored.members[0].status {
                status.behind = behind;
            }
            found(&Seen { mark, ..restored })
        };
        let mark = |behind, seen| Some(Mark { behind, seen });
        for (behind, mark) in [(7, None), (0, mark(7, false)), (3, mark(7, false)), (9, mark(7, true))] {
            assert!(has(&of(behind, mark), Severity::Note, "backup"), "{behind} {mark:?}");
        }
        assert!(has(&of(3, mark(7, true)), Severity::Fine, "acknowledged it"));
        assert!(!of(0, None).iter().any(|finding| finding.what.contains("backup")));
    }
}
