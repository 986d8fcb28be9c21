//! The nodes of Redlock: each by itself, and whether they are independent of each other.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tollgate_core::far_clock::APART;
use tollgate_core::{BoxFuture, Checkup, Error, Finding, Result};

use super::seen::Seen;
use super::{TOKENS_TOO, access, disk, memory, together, version};
use crate::config::Servers;
use crate::endpoint::Endpoint;
use crate::redlock::{RedlockConfig, capabilities};

/// Examines the nodes of a Redlock. Asks over connections of its own and changes nothing.
///
/// # Errors
/// `InvalidArgument` if a node is not a single server. A node that does not answer is a finding, and so are too few nodes.
pub fn examine_redlock(config: &RedlockConfig) -> BoxFuture<'_, Result<Checkup>> {
    Box::pin(async move {
        let mut asked = Vec::new();
        for url in &config.nodes {
            let node = config.node(url)?;
            let Servers::One(host) = &node.servers else {
                return Err(Error::invalid(
                    "a Redlock node is one Redis server, not a cluster, and not behind sentinels",
                ));
            };
            asked.push((Endpoint::new(host.clone(), node.speech()?), node));
        }
        let looked =
            join_all(asked.iter().map(|(endpoint, node)| async move {
                (endpoint.address(), Seen::look(endpoint, node).await)
            }));
        let (mut seen, mut silent) = (Vec::new(), Vec::new());
        for (name, answer) in looked.await {
            match answer {
                Ok(node) => seen.push(node),
                Err(error) => silent.push((name, error)),
            }
        }
        let mut findings = number(asked.len(), &silent);
        findings.extend(strangers(&seen));
        findings.extend(machines(&seen, asked.len()));
        findings.extend(voters(&seen));
        findings.extend(longest_ttl(&seen, config.max_ttl));
        findings.extend(clocks(&seen));
        findings.extend(together(seen.iter().map(|node| (node.name.clone(), of_node(node))).collect()));
        let names: Vec<_> = asked.iter().map(|(endpoint, _)| endpoint.address()).collect();
        let guarantees = capabilities(config.max_ttl).guarantees;
        Ok(Checkup { subject: format!("Redlock on {}", names.join(", ")), findings, guarantees })
    })
}

/// What a node has to be by itself. What it keeps on its disk does not matter: a node that restarts waits before it
/// votes, whatever it remembers.
fn of_node(seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    version::look(seen, &mut findings);
    access::look(seen, &mut findings);
    disk::trouble(seen, &mut findings);
    memory::look(seen, &mut findings);
    findings.extend(seen.clock.iter().flat_map(|clock| clock.findings(TOKENS_TOO)));
    findings
}

/// Whether they are a majority that outlives something, and how many may still fail.
fn number(all: usize, silent: &[(String, Error)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if all < 3 || all.is_multiple_of(2) {
        findings.push(Finding::problem(
            format!("there are {all} nodes"),
            "with fewer than three nodes the loss of one is the loss of the majority, and the last of an \
             even number survives no further failure",
            "use three, five or seven",
        ));
    }
    let (answer, majority) = (all - silent.len(), all / 2 + 1);
    for (name, error) in silent {
        findings.push(Finding::problem(
            format!("{name} cannot be queried: {}", error.message()),
            match answer.checked_sub(majority) {
                Some(0) => "no other node may fail: the remaining nodes are the smallest majority".to_owned(),
                Some(more) => format!("{more} more may fail before no lock can be taken"),
                None => {
                    format!(
                        "only {answer} of {all} nodes answer, and {majority} are needed: no lock can be \
                         taken"
                    )
                }
            },
            "start it, or find out why it cannot be reached; it votes again when the longest ttl has passed",
        ));
    }
    if silent.is_empty() && findings.is_empty() {
        findings.push(Finding::fine(format!("all {all} nodes answer; {} may fail", answer - majority)));
    }
    findings
}

/// Whether each is a server of its own, with nobody who copies from it or to it.
fn strangers(seen: &[Seen]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut runs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in seen {
        if let Some(run) = node.info("run_id") {
            runs.entry(run).or_default().push(&node.name);
        }
    }
    for names in runs.values().filter(|names| names.len() > 1) {
        findings.push(Finding::problem(
            format!("{} are the same server", names.join(" and ")),
            "its vote counts several times: that server alone may be a majority",
            "name every server once",
        ));
    }
    for node in seen {
        if node.info("role") == Some("slave") {
            let of = node.info("master_host").unwrap_or("?");
            let port = node.info("master_port").unwrap_or("?");
            findings.push(Finding::problem(
                format!("{} is a replica of {of}:{port}", node.name),
                "it takes no writes and has no vote of its own",
                "make it an independent server: REPLICAOF NO ONE",
            ));
        } else if node.number("connected_slaves").is_some_and(|replicas| replicas > 0) {
            findings.push(Finding::note(
                format!("{} has replicas", node.name),
                "a replica that takes over lacks writes that had not reached it, and a majority may forget \
                 a lock",
                "remove the replicas: the other nodes are what keeps locks safe",
            ));
        }
    }
    findings
}

/// Whether one machine's failure takes the majority with it, as far as addresses tell.
fn machines(seen: &[Seen], all: usize) -> Option<Finding> {
    let mut hosts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in seen {
        hosts.entry(machine(&node.host)).or_default().push(&node.name);
    }
    let (host, names) =
        hosts.into_iter().max_by_key(|(_, names)| names.len()).filter(|(_, names)| names.len() > 1)?;
    let what = format!("{} are on one machine ({host})", names.join(", "));
    let advice = "put each node on its own machine, in its own rack or zone if possible";
    Some(if names.len() > all / 2 {
        Finding::problem(what, "if that machine fails or its clock jumps, the majority is lost", advice)
    } else {
        Finding::note(what, "if that machine fails, several votes are lost at once", advice)
    })
}

fn machine(host: &str) -> String {
    if access::is_own(host) { "this machine".to_owned() } else { host.to_lowercase() }
}

/// Whether they vote, and agree on the longest ttl.
fn voters(seen: &[Seen]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let without: Vec<_> = seen.iter().filter(|node| !node.votes).map(|node| node.name.as_str()).collect();
    if seen.iter().all(|node| node.member.is_none()) {
        if !seen.is_empty() {
            findings.push(Finding::note(
                "no node has ever voted",
                "a new node looks like one that has forgotten its locks, and does not vote until the \
                 longest ttl has passed",
                "if the nodes really are new, run `tollgate redlock-init URL` once",
            ));
        }
    } else if without.is_empty() {
        findings.push(Finding::fine("every node that answers votes"));
    } else {
        findings.push(Finding::note(
            format!("{} not vote at present", does(&without)),
            "a node that was restarted or emptied waits until every lock that it may have forgotten has \
             expired",
            "nothing, if that was recent: a client makes the node a voter when the longest ttl has passed",
        ));
    }
    findings
}

/// Whether nodes and URL agree on how long a node waits that has forgotten something.
fn longest_ttl(seen: &[Seen], ours: Duration) -> Option<Finding> {
    let theirs =
        |node: &Seen| node.member.as_deref()?.split(' ').nth(2)?.parse().ok().map(Duration::from_millis);
    let differ = seen.iter().filter_map(|node| Some((node, theirs(node).filter(|theirs| *theirs != ours)?)));
    let differ: Vec<_> = differ.map(|(node, theirs)| format!("{} {theirs:?}", node.name)).collect();
    if differ.is_empty() {
        return None;
    }
    Some(Finding::problem(
        format!("the longest ttl is {ours:?} in this URL, but differs on nodes: {}", differ.join(", ")),
        "a restarted node waits for the shorter ttl, and may forget a lock that is still held",
        "use one ?max_ttl= for all clients; to change it see the page on redlock://",
    ))
}

fn does(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "does" } else { "do" })
}

/// Whether nodes agree on the time.
fn clocks(seen: &[Seen]) -> Option<Finding> {
    let read = || seen.iter().filter_map(|node| Some((node, node.clock?)));
    let (first, earliest) = read().min_by_key(|(_, clock)| clock.ahead)?;
    let (last, latest) = read().max_by_key(|(_, clock)| clock.ahead)?;
    let apart = Duration::from_micros(latest.ahead.abs_diff(earliest.ahead));
    if apart.saturating_sub((earliest.round_trip + latest.round_trip) / 2) < APART {
        return None;
    }
    Some(Finding::note(
        format!("the clock of {} is {:.1} s ahead of that of {}", last.name, apart.as_secs_f64(), first.name),
        "each node expires leases by its own clock. A constant difference does no harm, but a correction \
         makes clocks jump: if the clocks of a majority jump forward, locks expire early",
        "synchronise all clocks with NTP or chrony",
    ))
}

#[cfg(test)]
mod tests {
    use tollgate_core::{ErrorKind, Severity};

    use super::super::seen::tests::healthy;
    use super::*;

    fn nodes() -> Vec<Seen> {
        let node = |name: &str| Seen {
            name: format!("{name}:6379"),
            host: name.to_owned(),
            member: Some(format!("{name} 5 300000")),
            votes: true,
            ..healthy(&[("run_id", name)], &[])
        };
        ["a", "b", "c"].map(node).into()
    }

    #[test]
    fn independent_nodes_are_called_so() {
        let nodes = nodes();
        assert_eq!(number(3, &[])[0].severity, Severity::Fine);
        assert_eq!(strangers(&nodes), []);
        assert_eq!(machines(&nodes, 3), None);
        assert_eq!(clocks(&nodes), None);
        assert_eq!(longest_ttl(&nodes, Duration::from_secs(300)), None);
        assert!(voters(&nodes).iter().all(|finding| finding.severity == Severity::Fine));
    }

    #[test]
    fn machines_count_by_what_their_failure_takes() {
        let on = |hosts: [&str; 5]| -> Vec<Seen> {
            hosts.map(|host| Seen { host: host.to_owned(), ..healthy(&[], &[]) }).into()
        };
        assert_eq!(machines(&on(["a", "a", "b", "c", "d"]), 5).unwrap().severity, Severity::Note);
        assert_eq!(machines(&on(["a", "a", "A", "c", "d"]), 5).unwrap().severity, Severity::Problem);
        assert_eq!(
            machines(&on(["127.0.0.1", "localhost", "::1", "c", "d"]), 5).unwrap().severity,
            Severity::Problem
        );
    }

    #[test]
    fn how_many_may_still_fail_is_said() {
        let silent = |count: usize| -> Vec<(String, Error)> {
            (0..count).map(|n| (format!("n{n}"), Error::new(ErrorKind::Unavailable, "gone"))).collect()
        };
        for (all, down, says) in
            [(5, 1, "1 more may fail"), (3, 1, "no other"), (3, 2, "no lock can be taken")]
        {
            let findings = number(all, &silent(down));
            assert!(findings[0].why.as_ref().unwrap().contains(says), "{findings:?}");
        }
        for all in [1, 2, 4] {
            assert_eq!(number(all, &[])[0].severity, Severity::Problem);
        }
    }

    #[test]
    fn nodes_that_differ_are_told_apart() {
        let mut differ = nodes();
        differ[1].member = Some("b 5 60000".to_owned());
        differ[2].clock.as_mut().unwrap().ahead = 5_000_000;
        differ[2].votes = false;
        let said = voters(&differ);
        assert!(said[0].what.contains("c:6379 does not vote"), "{said:?}");
        let longest = |seconds| longest_ttl(&differ, Duration::from_secs(seconds)).unwrap();
        assert!(longest(300).what.contains("b:6379 60s") && !longest(300).what.contains("a:6379"));
        assert!(longest(60).what.contains("a:6379 300s"));
        assert!(clocks(&differ).unwrap().what.contains("c:6379 is 5.0 s ahead"));
    }
}
