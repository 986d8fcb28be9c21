//! What passes on the wire between clients and their engine.

use serde::Serialize;

/// Counts what passes between the clients of one contender and their engine.
pub trait Meter: Send + Sync {
    /// What has passed since it began to count.
    fn traffic(&self) -> Traffic;
}

/// What has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that clients opened.
    pub connections: u64,
    /// What clients asked for.
    pub requests: u64,
    /// Bytes from clients.
    pub bytes_out: u64,
    /// Bytes from the engine.
    pub bytes_back: u64,
}

/// What one lock, taken and given back, costs on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wire {
    /// How many connections all clients had together.
    pub connections: u64,
    /// Requests for each lock.
    pub requests: f64,
    /// Bytes from clients for each.
    pub bytes_out: f64,
    /// Bytes from the engine for each.
    pub bytes_back: f64,
}

impl Wire {
    /// What `number` locks cost between two readings, over `connections`; `None` if there was no lock.
    pub(crate) fn of(connections: u64, before: Traffic, after: Traffic, number: u64) -> Option<Self> {
        let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / number as f64;
        (number > 0).then(|| Self {
            connections,
            requests: each(before.requests, after.requests),
            bytes_out: each(before.bytes_out, after.bytes_out),
            bytes_back: each(before.bytes_back, after.bytes_back),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_before_the_clock_started_is_not_counted() {
        let before = Traffic { connections: 4, requests: 10, bytes_out: 1000, bytes_back: 500 };
        let after = Traffic { connections: 4, requests: 30, bytes_out: 1400, bytes_back: 600 };
        let wire = Wire { connections: 4, requests: 2.0, bytes_out: 40.0, bytes_back: 10.0 };
        assert_eq!(Wire::of(4, before, after, 10), Some(wire));
        assert_eq!(Wire::of(4, before, after, 0), None);
    }
}
