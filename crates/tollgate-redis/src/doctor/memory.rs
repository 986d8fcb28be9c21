//! Whether the server forgets keys when it is full, or takes no more.

use tollgate_core::Finding;

use super::seen::Seen;

/// Nearly full is so many hundredths.
const NEARLY: u64 = 90;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let (Some(limit), Some(policy)) = (seen.number("maxmemory"), seen.info("maxmemory_policy")) else {
        return;
    };
    findings.push(eviction(limit, policy));
    findings.extend(room(limit, policy, seen.number("used_memory").unwrap_or(0)));
    let evicted = seen.number("evicted_keys").unwrap_or(0);
    if evicted > 0 {
        findings.push(Finding::note(
            format!("the server has evicted {evicted} keys since it started"),
            "locks, waiters and fence marks may have been among them",
            "set maxmemory-policy noeviction, or use a separate Redis for locks",
        ));
    }
}

/// Every lock has a ttl, so that the policies which spare keys without one do not spare locks.
fn eviction(limit: u64, policy: &str) -> Finding {
    let why = "an evicted lock is free while it still has a holder: two holders can overlap";
    let advice = "set maxmemory-policy noeviction, or use a separate Redis for locks";
    match (policy, limit) {
        ("noeviction", _) => Finding::fine("the server never evicts keys (maxmemory-policy noeviction)"),
        (policy, 0) => Finding::note(
            format!(
                "the server would evict locks if it had a limit (maxmemory-policy {policy}, maxmemory 0)"
            ),
            why,
            advice,
        ),
        (policy, _) => Finding::problem(
            format!(
                "the server evicts locks when its memory is full (maxmemory-policy {policy}, maxmemory \
                 {limit})"
            ),
            why,
            advice,
        ),
    }
}

fn room(limit: u64, policy: &str, used: u64) -> Option<Finding> {
    let hundredths = used.saturating_mul(100).checked_div(limit)?;
    if policy != "noeviction" || hundredths < NEARLY {
        return None;
    }
    let what = format!("{hundredths} % of the server's memory is used (maxmemory {limit})");
    let why = "when the memory is full, no lock can be taken";
    let advice = "raise maxmemory, remove unneeded data, or use a separate Redis for locks";
    Some(if hundredths >= 100 {
        Finding::problem(what, why, advice)
    } else {
        Finding::note(what, why, advice)
    })
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::*;

    #[test]
    fn every_policy_but_one_evicts_locks() {
        for policy in ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-random"] {
            assert_eq!(eviction(1 << 20, policy).severity, Severity::Problem, "{policy}");
            assert_eq!(eviction(0, policy).severity, Severity::Note, "{policy}");
        }
        assert_eq!(eviction(1 << 20, "noeviction").severity, Severity::Fine);
    }

    #[test]
    fn a_full_memory_is_a_problem_and_a_nearly_full_one_is_not() {
        assert_eq!(room(1000, "noeviction", 100), None);
        assert_eq!(room(1000, "noeviction", 950).unwrap().severity, Severity::Note);
        assert_eq!(room(1000, "noeviction", 1000).unwrap().severity, Severity::Problem);
        assert_eq!(room(0, "noeviction", 1000), None, "no limit");
        assert_eq!(room(1000, "allkeys-lru", 1000), None, "it evicts, which is said already");
    }
}
