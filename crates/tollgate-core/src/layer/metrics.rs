//! Numbers for whoever watches: the `metrics` facade's counters, gauges and histograms.
//!
//! No lock's name is ever a label: there may be millions of them.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::Layer;
use crate::backend::{Attempt, Backend, BoxFuture, LossCause, Note};
use crate::claim::Claim;
use crate::clock::Clock;
use crate::error::Result;
use crate::fence;
use crate::grant::Grant;

const ACQUIRE: &str = "tollgate_acquire_seconds";
const WAIT: &str = "tollgate_wait_seconds";
const HOLD: &str = "tollgate_hold_seconds";
const HELD: &str = "tollgate_held";
const WAITERS: &str = "tollgate_waiters";
const CONTENDED: &str = "tollgate_contended_total";
const RENEW_FAILURES: &str = "tollgate_renew_failures_total";
const LOST: &str = "tollgate_lost_total";
const STUCK: &str = "tollgate_stuck";

/// Measures what is asked of a backend, and what becomes of its grants in this process.
pub struct Metrics {
    inner: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    backend: &'static str,
}

impl Metrics {
    /// Measures `inner`.
    pub fn new(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        describe();
        Self { backend: inner.capabilities().backend, inner, clock }
    }

    fn under_way(&self, waits: bool) -> UnderWay<'_> {
        let waiters = waits.then(|| gauge!(WAITERS, "backend" => self.backend));
        if let Some(waiters) = &waiters {
            waiters.increment(1.0);
        }
        UnderWay { metrics: self, started: self.clock.now(), waiters, told: false }
    }
}

/// What the numbers mean, for those who show them.
fn describe() {
    describe_histogram!(ACQUIRE, Unit::Seconds, "From asking for a lock to the answer, waiting included");
    describe_histogram!(WAIT, Unit::Seconds, "The same, of those alone who had to wait for somebody");
    describe_histogram!(HOLD, Unit::Seconds, "How long locks were held");
    describe_gauge!(HELD, "Locks in this process's hands");
    describe_gauge!(WAITERS, "Requests of this process that wait for a lock");
    describe_counter!(CONTENDED, "Requests that found somebody else in the way");
    describe_counter!(RENEW_FAILURES, "Renewals that failed or were not answered in time");
    describe_counter!(LOST, "Locks lost before they were released");
    describe_counter!(fence::REJECTED, "Writes refused because their token was stale");
    describe_gauge!(STUCK, "Releases and withdrawals that the engine leaves unanswered and that go on");
}

/// An acquisition whose outcome is not known yet. Dropped before it is told, it was given up.
struct UnderWay<'a> {
    metrics: &'a Metrics,
    started: tollgate_types::Moment,
    waiters: Option<metrics::Gauge>,
    told: bool,
}

impl UnderWay<'_> {
    fn tell(&mut self, outcome: &'static str, contended: bool) {
        self.told = true;
        let Metrics { backend, clock, .. } = self.metrics;
        let took = clock.now().since(self.started);
        histogram!(ACQUIRE, "backend" => *backend, "outcome" => outcome).record(took);
        if contended {
            counter!(CONTENDED, "backend" => *backend).increment(1);
            if self.waiters.is_some() {
                histogram!(WAIT, "backend" => *backend, "outcome" => outcome).record(took);
            }
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.told {
            // Whoever gives up waiting had somebody in the way, or an engine that does not answer.
            self.tell("given_up", self.waiters.is_some());
        }
        if let Some(waiters) = &self.waiters {
            waiters.decrement(1.0);
        }
    }
}

impl Layer for Metrics {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let mut under_way = self.under_way(false);
            let attempt = self.inner.try_acquire(claim).await;
            match &attempt {
                Ok(Attempt::Granted(_)) => under_way.tell("granted", false),
                Ok(Attempt::Busy(_)) => under_way.tell("busy", true),
                Err(_) => under_way.tell("failed", false),
            }
            attempt
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut under_way = self.under_way(true);
            let grant = self.inner.acquire(claim).await;
            match &grant {
                Ok(grant) => under_way.tell("granted", grant.waited),
                Err(_) => under_way.tell("failed", false),
            }
            grant
        })
    }

    fn note(&self, note: &Note<'_>) {
        let backend = self.backend;
        match note {
            Note::Held(_) => gauge!(HELD, "backend" => backend).increment(1.0),
            Note::Ended { cause, held, .. } => {
                gauge!(HELD, "backend" => backend).decrement(1.0);
                record_end(backend, *cause, *held);
            }
            Note::RenewalFailed(_) => counter!(RENEW_FAILURES, "backend" => backend).increment(1),
            Note::Stuck(_) => gauge!(STUCK, "backend" => backend).increment(1.0),
            Note::Unstuck(_) => gauge!(STUCK, "backend" => backend).decrement(1.0),
        }
        self.inner.note(note);
    }
}

fn record_end(backend: &'static str, cause: LossCause, held: Duration) {
    let outcome = if cause == LossCause::Released { "released" } else { "lost" };
    histogram!(HOLD, "backend" => backend, "outcome" => outcome).record(held);
    if cause != LossCause::Released {
        counter!(LOST, "backend" => backend, "cause" => cause.label()).increment(1);
    }
}
