//! The rule that keeps pages in a browser away: a page must not be able to take locks from a
//! developer's own server.
//!
//! A page from elsewhere shows itself by its `Origin`. A page whose name was made to point here
//! (DNS rebinding) shows itself by the `Host` that it asks for.

use std::net::IpAddr;

use tollgate_proto::{Problem, ProblemKind};

/// The names that a request may be addressed to.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Loopback names and addresses, and these.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Whether a request for `host` (the header, with or without a port) from a page of `origin`
    /// may pass.
    pub fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), Problem> {
        let host = host.ok_or_else(|| {
            Problem::new(ProblemKind::Malformed, "the request has no Host header; send one")
        })?;
        if !self.is_known(host) {
            let detail = "the Host header names neither this machine nor a name that this server is \
                          configured to have; use the server's address, or start it with --host NAME";
            return Err(Problem::new(ProblemKind::Forbidden, detail));
        }
        self.check_origin(origin, host)
    }

    /// Whether a request from a page of `origin` may pass.
    pub fn check_origin(&self, origin: Option<&str>, host: &str) -> Result<(), Problem> {
        let Some(origin) = origin else { return Ok(()) };
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        let detail = "a page of another origin may not use this server; call it from a program, or from \
                      the server's own pages";
        Err(Problem::new(ProblemKind::Forbidden, detail))
    }

    fn is_known(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        name == "localhost"
            || address.is_some_and(|address| address.to_canonical().is_loopback())
            || self
                .names
                .iter()
                .any(|known| *known == name || address.is_some_and(|is| known.parse() == Ok(is)))
    }
}

/// `host` of `host:port`; an IPv6 address stands in brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(hosts: &Hosts, host: &str, origin: Option<&str>) -> Option<u16> {
        hosts.check(Some(host), origin).err().map(|problem| problem.status)
    }

    #[test]
    fn only_loopback_and_configured_hosts_are_served() {
        let hosts = Hosts::new(["Locks.example".to_owned(), "10.0.0.5".to_owned(), "fd00::1".to_owned()]);
        let known =
            ["localhost", "LOCALHOST:7420", "127.0.0.1:7420", "127.9.9.9", "[::1]:7420", "locks.example:1"];
        for host in known.into_iter().chain(["10.0.0.5:7420", "[fd00::1]:7420", "[::ffff:127.0.0.1]"]) {
            assert_eq!(status(&hosts, host, None), None, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.6", "", ":7420", "[::2]", "127.0.0.1.nip.io"]
        {
            assert_eq!(status(&hosts, host, None), Some(403), "{host}");
        }
        assert_eq!(hosts.check(None, None).unwrap_err().status, 400);
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let hosts = Hosts::default();
        assert_eq!(status(&hosts, "127.0.0.1:7420", Some("http://127.0.0.1:7420")), None);
        for origin in
            ["http://evil.example", "null", "", "http://127.0.0.1:3000", "file://", "http://localhost:7420"]
        {
            assert_eq!(status(&hosts, "127.0.0.1:7420", Some(origin)), Some(403), "{origin}");
        }
    }
}
