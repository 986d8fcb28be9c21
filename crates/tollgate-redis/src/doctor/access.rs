//! Who can reach the server, and whether this user may do what locks need.

use tollgate_core::Finding;

use super::seen::Seen;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    if !seen.denied.is_empty() {
        findings.push(Finding::problem(
            format!("this user may not {} on the keys and channels of locks", seen.denied.join(", ")),
            "taking, renewing or handing over a lock fails",
            "allow +@scripting +@pubsub +@read +@write +@connection, the keys ~PREFIX* and ~{PREFIX*, and &tg:*",
        ));
    }
    findings.extend(overheard(seen));
    if seen.settings.is_none() {
        findings.push(Finding::note(
            "the server's settings cannot be read: CONFIG GET is not allowed, or its provider has removed \
             it",
            "how often the server writes to its disk, and which clients can reach it, is not examined",
            "ask the provider for appendfsync, save and min-replicas-to-write, or examine as a user that \
             has +config|get",
        ));
        return;
    }
    findings.extend(reachable(seen));
    findings.extend(idle(seen));
    if seen.setting("lua-time-limit") == Some("0") {
        findings.push(Finding::note(
            "a script may run forever (lua-time-limit 0, or busy-reply-threshold)",
            "while a script runs, no client is answered and no lock is renewed, and the script cannot be \
             ended",
            "set it to its default, 5000",
        ));
    }
}

/// Whether others on the way can read the password.
fn overheard(seen: &Seen) -> Option<Finding> {
    if seen.open || seen.encrypted || is_own(&seen.host) {
        return None;
    }
    Some(Finding::note(
        "the password crosses the network unencrypted",
        "an attacker that can read the traffic can take any lock",
        "enable TLS in Redis and write rediss:// instead of redis://",
    ))
}

/// Whether an address is this machine's alone.
pub(super) fn is_own(address: &str) -> bool {
    matches!(address, "::1" | "localhost") || address.starts_with("127.")
}

/// Whether anybody can come in.
fn reachable(seen: &Seen) -> Option<Finding> {
    let no_password = seen.open && seen.setting("requirepass") == Some("");
    let unprotected = seen.setting("protected-mode") == Some("no");
    let bind = seen.setting("bind")?;
    let own = |address: &str| is_own(address.trim_start_matches('-'));
    if !no_password || !unprotected || (!bind.is_empty() && bind.split_whitespace().all(own)) {
        return None;
    }
    Some(Finding::problem(
        format!(
            "the server accepts every client that reaches it: no password, protected-mode no, and it \
             listens on {bind:?}"
        ),
        "any host on its networks can take any lock, delete it, or run scripts on the server",
        "set a password (requirepass, or ACL SETUSER), and bind the server to addresses that only your \
         hosts reach",
    ))
}

/// Whether connections are closed that nobody uses for a while.
fn idle(seen: &Seen) -> Option<Finding> {
    let seconds = seen.setting("timeout").filter(|seconds| *seconds != "0")?;
    Some(Finding::note(
        format!("the server closes connections that were idle for {seconds} s (timeout {seconds})"),
        "the first request after a pause has to reconnect, and takes longer",
        "set timeout 0 and leave dead clients to tcp-keepalive",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::seen::tests::healthy;
    use super::*;

    #[test]
    fn a_password_is_overheard_only_on_a_network_and_in_the_clear() {
        let far = Seen { open: false, ..healthy(&[], &[]) };
        assert!(overheard(&far).is_some());
        assert!(overheard(&Seen { encrypted: true, ..far.clone() }).is_none());
        assert!(overheard(&Seen { host: "127.0.0.1".to_owned(), ..far.clone() }).is_none());
        assert!(overheard(&Seen { open: true, ..far }).is_none());
    }

    #[test]
    fn only_a_server_that_lets_anybody_in_is_called_so() {
        let wide = [("protected-mode", "no"), ("bind", "* -::*")];
        assert!(reachable(&healthy(&[], &wide)).is_some());
        assert!(reachable(&healthy(&[], &[("protected-mode", "no"), ("bind", "")])).is_some());
        assert!(reachable(&healthy(&[], &[("protected-mode", "no"), ("bind", "127.0.0.1 -::1")])).is_none());
        assert!(reachable(&healthy(&[], &wide[1..])).is_none(), "protected-mode is on");
        let behind_a_password = Seen { open: false, ..healthy(&[], &wide) };
        assert!(reachable(&behind_a_password).is_none());
        assert!(reachable(&healthy(&[], &[wide[0], wide[1], ("requirepass", "x")])).is_none());
    }
}
