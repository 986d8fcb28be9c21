//! What a round takes: time, processor time, and what passes on the wire.

use std::time::{Duration, Instant};

use crate::machine::cpu_seconds;
use crate::meter::{Meter, Traffic, Wire};

/// Made before the clients are, started when all of them are there.
pub(crate) struct Stopwatch<'a> {
    meter: Option<&'a dyn Meter>,
    connections_before: u64,
}

/// A stopwatch that runs.
pub(crate) struct Running<'a> {
    stopwatch: Stopwatch<'a>,
    since: Instant,
    cpu_before: f64,
    traffic_before: Traffic,
}

/// What was spent while it ran.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) elapsed: Duration,
    /// Of this process, in seconds.
    pub(crate) cpu: f64,
    /// Connections, and the traffic before and after, where somebody counted.
    pub(crate) traffic: Option<(u64, Traffic, Traffic)>,
}

impl<'a> Stopwatch<'a> {
    pub(crate) fn new(meter: Option<&'a dyn Meter>) -> Self {
        Self { meter, connections_before: meter.map_or(0, |meter| meter.traffic().connections) }
    }

    pub(crate) fn start(self) -> Running<'a> {
        let traffic_before = self.meter.map(Meter::traffic).unwrap_or_default();
        Running { stopwatch: self, traffic_before, cpu_before: cpu_seconds(), since: Instant::now() }
    }
}

impl Running<'_> {
    /// When it was started.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn stop(self) -> Spent {
        let (elapsed, cpu) = (self.since.elapsed(), cpu_seconds() - self.cpu_before);
        let traffic = self.stopwatch.meter.map(|meter| {
            let now = meter.traffic();
            (now.connections - self.stopwatch.connections_before, self.traffic_before, now)
        });
        Spent { elapsed, cpu, traffic }
    }
}

impl Spent {
    /// What each of `number` locks cost on the wire.
    pub(crate) fn wire(&self, number: u64) -> Option<Wire> {
        let (connections, before, after) = self.traffic?;
        Wire::of(connections, before, after, number)
    }
}
