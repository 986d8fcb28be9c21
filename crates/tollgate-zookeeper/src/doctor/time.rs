//! Sessions: how long they may last, and the tick that proofs of life rest on.

use tollgate_core::{DEFAULT_TTL, Finding};

use super::seen::{Inside, Seen};
use crate::capabilities::ttls;
use crate::config::ZooKeeperConfig;

pub(super) fn look(seen: &Seen, inside: &Inside, config: &ZooKeeperConfig, findings: &mut Vec<Finding>) {
    let tick = config.tick;
    let shortest = seen.servers.iter().filter_map(|server| server.setting("minSessionTimeout")).max();
    let range = ttls(shortest.unwrap_or_default(), inside.longest, tick);
    let ticks: Vec<_> = seen.servers.iter().filter_map(|server| server.setting("tickTime")).collect();
    findings.push(match ticks.iter().max() {
        None => Finding::note(
            format!("its servers do not tell their tickTime, and {tick:?} is assumed"),
            "a holder whose server is cut off from the leader would believe in its lock for too long if it were more",
            "compare it with zoo.cfg and say ?tick=, or put conf into 4lw.commands.whitelist",
        ),
        Some(real) if *real > tick => Finding::problem(
            format!("its tickTime is {real:?}, and {tick:?} is assumed"),
            "a holder whose server is cut off from the leader may believe in its lock for too long",
            format!("write ?tick={}ms in the URL", real.as_millis()),
        ),
        Some(real) if *real < tick => Finding::note(
            format!("its tickTime is {real:?}, and {tick:?} is assumed"),
            format!("that is safe, but a ttl must be {:?} at least", range.min),
            format!("write ?tick={}ms in the URL for shorter ones", real.as_millis()),
        ),
        Some(real) => Finding::fine(format!("its tickTime is {real:?}, as is assumed")),
    });
    findings.push(if inside.longest < range.min {
        Finding::problem(
            format!("sessions last {:?} at most, and a lock needs 6 ticks of {tick:?}", inside.longest),
            "no lock can be taken",
            "raise maxSessionTimeout, or say ?tick= if its tickTime is less",
        )
    } else if !(range.min..=range.max).contains(&DEFAULT_TTL) {
        Finding::note(
            format!("a ttl is {:?} to {:?} here", range.min, range.max),
            format!("the usual one, {DEFAULT_TTL:?}, is refused"),
            "say another ttl, or change minSessionTimeout or maxSessionTimeout",
        )
    } else {
        Finding::fine(format!("a ttl is {:?} to {:?} here", range.min, range.max))
    });
    differences(seen, findings);
    if inside.has_local_sessions {
        findings.push(Finding::note(
            "its servers give local sessions",
            "a lock needs a session that all know: the first claim makes it one, if it may",
            "leave localSessionsUpgradingEnabled=true in zoo.cfg, or set localSessionsEnabled=false",
        ));
    }
}

/// A session that goes on at another server gets that one's limits.
fn differences(seen: &Seen, findings: &mut Vec<Finding>) {
    for name in ["tickTime", "minSessionTimeout", "maxSessionTimeout"] {
        let mut told: Vec<_> = seen.servers.iter().filter_map(|server| server.setting(name)).collect();
        told.sort_unstable();
        told.dedup();
        if let [least, .., most] = told[..] {
            findings.push(Finding::problem(
                format!("{name} is {least:?} on one server and {most:?} on another"),
                "a session that goes on at another server may last shorter there, and its locks are lost then",
                format!("give all servers the same {name}"),
            ));
        }
    }
}
