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
            format!("the servers do not report their tickTime, and {tick:?} is assumed"),
            "if it is longer, a holder whose server is cut off from the leader relies on its lock for too \
             long",
            "compare it with zoo.cfg and set ?tick=, or add conf to 4lw.commands.whitelist",
        ),
        Some(real) if *real > tick => Finding::problem(
            format!("the servers' tickTime is {real:?}, and {tick:?} is assumed"),
            "a holder whose server is cut off from the leader may rely on its lock for too long",
            format!("write ?tick={}ms in the URL", real.as_millis()),
        ),
        Some(real) if *real < tick => Finding::note(
            format!("the servers' tickTime is {real:?}, and {tick:?} is assumed"),
            format!("that is safe, but a ttl must be at least {:?}", range.min),
            format!("write ?tick={}ms in the URL to allow shorter ones", real.as_millis()),
        ),
        Some(real) => Finding::fine(format!("the servers' tickTime is {real:?}, as assumed")),
    });
    findings.push(if inside.longest < range.min {
        Finding::problem(
            format!("sessions last {:?} at most, and a lock needs 6 ticks of {tick:?}", inside.longest),
            "no lock can be taken",
            "raise maxSessionTimeout, or set ?tick= if the servers' tickTime is shorter",
        )
    } else if !(range.min..=range.max).contains(&DEFAULT_TTL) {
        Finding::note(
            format!("this ZooKeeper allows a ttl of {:?} to {:?}", range.min, range.max),
            format!("the default ttl, {DEFAULT_TTL:?}, is refused"),
            "set another ttl, or change minSessionTimeout or maxSessionTimeout",
        )
    } else {
        Finding::fine(format!("this ZooKeeper allows a ttl of {:?} to {:?}", range.min, range.max))
    });
    differences(seen, findings);
    if inside.has_local_sessions {
        findings.push(Finding::note(
            "the servers use local sessions",
            "a lock needs a global session: the first claim upgrades the session, if the servers allow it",
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
                "a session that moves to another server may be shorter there, and its locks are lost then",
                format!("give all servers the same {name}"),
            ));
        }
    }
}
