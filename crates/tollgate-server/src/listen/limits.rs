//! How much of everything a client may use before it is refused.

use std::time::Duration;

/// The limits of connections. Those of messages are the protocol's.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How many connections may be open.
    pub connections: usize,
    /// How many connections one address may have open; this machine's own are not counted.
    pub connections_per_address: usize,
    /// How long a client may take for a request's head, and how long a connection may be idle.
    pub header_time: Duration,
    /// How long a client may take for a request's body.
    pub body_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 1_000,
            header_time: Duration::from_secs(60),
            body_time: Duration::from_secs(30),
        }
    }
}
