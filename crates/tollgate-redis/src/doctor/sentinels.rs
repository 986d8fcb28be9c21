//! Those who watch over a primary: whether they answer, and whether they are enough.

use std::collections::HashMap;

use redis::Cmd;
use tollgate_core::Finding;
use tollgate_core::url::Host;

use crate::endpoint::Endpoint;
use crate::sentinel::{Sentinel, once};

/// Fewer cannot outvote a single one that is cut off.
const ENOUGH: u64 = 3;

pub(super) async fn look(watched: &Sentinel, findings: &mut Vec<Finding>) {
    let mut question = Cmd::new();
    question.arg("SENTINEL").arg("MASTER").arg(&watched.service);
    for host in &watched.sentinels {
        let endpoint = Endpoint::new(host.clone(), watched.to_sentinels.clone());
        match once::<HashMap<String, String>>(&endpoint, &question).await {
            Ok(answer) => findings.push(of_answer(host, &answer)),
            Err(error) => findings.push(Finding::problem(
                format!("the sentinel {host} cannot be queried: {}", error.message()),
                "the primary is found through the other sentinels; if all of them fail, the primary is not \
                 found after a fail-over",
                "start it, or remove it from the URL",
            )),
        }
    }
}

fn of_answer(host: &Host, answer: &HashMap<String, String>) -> Finding {
    let number = |field: &str| answer.get(field).and_then(|text| text.parse::<u64>().ok());
    let all = number("num-other-sentinels").unwrap_or(0) + 1;
    let quorum = number("quorum").unwrap_or(1);
    let what = format!(
        "by the sentinel {host}, the number of sentinels is {all}, of which {quorum} must agree that the \
         primary is down"
    );
    if all >= ENOUGH && quorum > 1 {
        return Finding::fine(what);
    }
    Finding::note(
        what,
        "a single sentinel that is cut off or dead can start a fail-over alone, or prevent one",
        "run three sentinels on different machines, with a quorum of 2",
    )
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::*;

    #[test]
    fn one_sentinel_is_not_enough() {
        let host = Host { name: "a".to_owned(), port: 26379 };
        let answer = |others: &str, quorum: &str| {
            let pairs = [("num-other-sentinels", others), ("quorum", quorum)];
            of_answer(&host, &pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()).severity
        };
        assert_eq!(answer("2", "2"), Severity::Fine);
        assert_eq!(answer("0", "1"), Severity::Note);
        assert_eq!(answer("2", "1"), Severity::Note);
    }
}
