//! Numbers for whoever watches: the `metrics` facade's counters, gauges and histograms.
//!
//! No lock's name is ever a label: there may be millions of them.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use super::Layer;
use super::series::Series;
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
    series: AllSeries,
}

/// How an acquisition ends.
#[derive(Clone, Copy)]
enum Outcome {
    Granted,
    Busy,
    Failed,
    GivenUp,
}

/// By their order.
const OUTCOMES: [&str; 4] = ["granted", "busy", "failed", "given_up"];

struct AllSeries {
    acquire: [Series; 4],
    wait: [Series; 4],
    hold_released: Series,
    hold_lost: Series,
    held: Series,
    waiters: Series,
    contended: Series,
    renew_failures: Series,
    stuck: Series,
}

impl AllSeries {
    fn new(backend: &'static str) -> Self {
        let by_outcome =
            |name: &'static str| OUTCOMES.map(|outcome| Series::of(name, backend, "outcome", outcome));
        Self {
            acquire: by_outcome(ACQUIRE),
            wait: by_outcome(WAIT),
            hold_released: Series::of(HOLD, backend, "outcome", "released"),
            hold_lost: Series::of(HOLD, backend, "outcome", "lost"),
            held: Series::new(HELD, backend),
            waiters: Series::new(WAITERS, backend),
            contended: Series::new(CONTENDED, backend),
            renew_failures: Series::new(RENEW_FAILURES, backend),
            stuck: Series::new(STUCK, backend),
        }
    }
}

impl Metrics {
    /// Measures `inner`.
    pub fn new(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        describe();
        let backend = inner.capabilities().backend;
        Self { backend, series: AllSeries::new(backend), inner, clock }
    }

    fn record_end(&self, cause: LossCause, held: Duration) {
        if cause == LossCause::Released {
            return self.series.hold_released.histogram().record(held);
        }
        self.series.hold_lost.histogram().record(held);
        Series::of(LOST, self.backend, "cause", cause.label()).counter().increment(1);
    }

    fn under_way<'a>(&'a self, claim: &'a Claim, waits: bool) -> UnderWay<'a> {
        let waiters = waits.then(|| self.series.waiters.gauge());
        if let Some(waiters) = &waiters {
            waiters.increment(1.0);
        }
        UnderWay { metrics: self, claim, started: self.clock.now(), waiters, told: false }
    }
}

/// What the numbers mean, for those who show them.
fn describe() {
    describe_histogram!(
        ACQUIRE,
        Unit::Seconds,
        "Time from the request for a lock to its outcome, waiting included"
    );
    describe_histogram!(
        WAIT,
        Unit::Seconds,
        "Time from the request for a lock to its outcome, counting only requests that had to wait"
    );
    describe_histogram!(HOLD, Unit::Seconds, "Time that locks were held");
    describe_gauge!(HELD, "Locks held by this process");
    describe_gauge!(WAITERS, "Requests of this process that wait for a lock");
    describe_counter!(CONTENDED, "Requests that found a conflicting claim ahead of them");
    describe_counter!(RENEW_FAILURES, "Renewals that failed or were not answered in time");
    describe_counter!(LOST, "Locks lost before they were released");
    describe_counter!(fence::REJECTED, "Writes refused because their token was stale");
    describe_gauge!(
        STUCK,
        "Releases and withdrawals that the engine has not answered and that are being repeated"
    );
}

/// An acquisition whose outcome is not known yet. Dropped before it is told, it was given up.
struct UnderWay<'a> {
    metrics: &'a Metrics,
    claim: &'a Claim,
    started: tollgate_types::Moment,
    waiters: Option<metrics::Gauge>,
    told: bool,
}

impl UnderWay<'_> {
    fn tell(&mut self, outcome: Outcome, contended: bool) {
        self.told = true;
        let Metrics { series, clock, .. } = self.metrics;
        let took = clock.now().since(self.started);
        series.acquire[outcome as usize].histogram().record(took);
        if contended {
            series.contended.counter().increment(1);
            if self.waiters.is_some() {
                series.wait[outcome as usize].histogram().record(took);
            }
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.told {
            let status = &self.claim.wait_status;
            // What a wait that is over came to is told by a note, once the engine has answered the withdrawal or has not.
            if !status.is_over() {
                self.tell(Outcome::GivenUp, status.is_queued());
            }
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
            let mut under_way = self.under_way(claim, false);
            let attempt = self.inner.try_acquire(claim).await;
            match &attempt {
                Ok(Attempt::Granted(_)) => under_way.tell(Outcome::Granted, false),
                Ok(Attempt::Busy(_)) => under_way.tell(Outcome::Busy, true),
                Err(_) => under_way.tell(Outcome::Failed, false),
            }
            attempt
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut under_way = self.under_way(claim, true);
            let grant = self.inner.acquire(claim).await;
            match &grant {
                Ok(grant) => under_way.tell(Outcome::Granted, grant.waited),
                Err(_) => under_way.tell(Outcome::Failed, false),
            }
            grant
        })
    }

    fn note(&self, note: &Note<'_>) {
        let series = &self.series;
        match note {
            Note::Held(_) => series.held.gauge().increment(1.0),
            Note::Ended { cause, held, .. } => {
                series.held.gauge().decrement(1.0);
                self.record_end(*cause, *held);
            }
            Note::WaitOver { waited, answered } => {
                let outcome = if *answered { Outcome::GivenUp } else { Outcome::Failed };
                series.acquire[outcome as usize].histogram().record(*waited);
                if *answered {
                    series.contended.counter().increment(1);
                    series.wait[outcome as usize].histogram().record(*waited);
                }
            }
            Note::RenewalFailed(_) => series.renew_failures.counter().increment(1),
            Note::Stuck(_) => series.stuck.gauge().increment(1.0),
            Note::Unstuck(_) => series.stuck.gauge().decrement(1.0),
        }
        self.inner.note(note);
    }
}
