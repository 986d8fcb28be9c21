//! What was measured: one line per workload and contender.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine::Machine;
use crate::meter::Wire;
use crate::stopwatch::Spent;

/// How long things took, in nanoseconds.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("bounds and digits are in range"))
    }

    pub(crate) fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0.add(other.0).expect("both have the same bounds");
    }

    fn micros(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }
}

/// Who got in how often.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Fairness {
    /// The most passages of a client by the fewest of one; `None` if somebody starved.
    pub most_by_fewest: Option<f64>,
    /// How many of a hundred passages went to the one who had just left.
    pub same_again_percent: f64,
}

impl Fairness {
    pub(crate) fn of(grants: &[u64], same_again: u64) -> Self {
        let (most, fewest) = (grants.iter().max().unwrap_or(&0), grants.iter().min().unwrap_or(&0));
        let total: u64 = grants.iter().sum();
        Self {
            most_by_fewest: (*fewest > 0).then(|| *most as f64 / *fewest as f64),
            same_again_percent: if total == 0 { 0.0 } else { 100.0 * same_again as f64 / total as f64 },
        }
    }
}

/// What one round of one workload came to.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Measured {
    /// Locks taken and given back in a second.
    pub per_second: Option<f64>,
    /// How long half of them took at most, in microseconds: a cycle, or from a release to the next grant.
    pub p50_us: Option<f64>,
    /// The same of 99 in a hundred.
    pub p99_us: Option<f64>,
    /// Processor time of this process for each, in microseconds.
    pub cpu_us: Option<f64>,
    /// Who got in how often.
    pub fairness: Option<Fairness>,
    /// Memory of this process for each lock, in bytes.
    pub bytes_per_lock: Option<f64>,
    /// What each cost on the wire, by a round in which somebody counted.
    pub wire: Option<Wire>,
}

impl Measured {
    pub(crate) fn cycles(latencies: Latencies, spent: Spent) -> Self {
        let number = latencies.0.len();
        Self::hand_overs(number, spent, latencies)
    }

    pub(crate) fn hand_overs(number: u64, spent: Spent, latencies: Latencies) -> Self {
        Self {
            per_second: Some(number as f64 / spent.elapsed.as_secs_f64()),
            p50_us: latencies.micros(0.5),
            p99_us: latencies.micros(0.99),
            cpu_us: (number > 0).then(|| spent.cpu * 1e6 / number as f64),
            wire: spent.wire(number),
            ..Self::default()
        }
    }

    pub(crate) fn with_fairness(self, fairness: Fairness) -> Self {
        Self { fairness: Some(fairness), ..self }
    }

    pub(crate) fn footprint(bytes: f64) -> Self {
        Self { bytes_per_lock: Some(bytes), ..Self::default() }
    }

    /// The median of several timed rounds, each number by itself. What somebody could not do in one round it could
    /// not do.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |number: fn(&Self) -> Option<f64>| {
            let numbers: Option<Vec<f64>> = rounds.iter().map(number).collect();
            numbers.and_then(middle)
        };
        let fairness = rounds.iter().map(|round| round.fairness).collect::<Option<Vec<_>>>();
        Self {
            per_second: of(|round| round.per_second),
            p50_us: of(|round| round.p50_us),
            p99_us: of(|round| round.p99_us),
            cpu_us: of(|round| round.cpu_us),
            bytes_per_lock: of(|round| round.bytes_per_lock),
            wire: None,
            fairness: fairness.filter(|rounds| !rounds.is_empty()).map(|rounds| Fairness {
                most_by_fewest: rounds
                    .iter()
                    .map(|round| round.most_by_fewest)
                    .collect::<Option<Vec<_>>>()
                    .and_then(middle),
                same_again_percent: middle(rounds.iter().map(|round| round.same_again_percent).collect())
                    .unwrap_or(0.0),
            }),
        }
    }
}

fn middle(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// One workload of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What was done.
    pub workload: String,
    /// By whom.
    pub contender: String,
    /// The median of its rounds.
    #[serde(flatten)]
    pub measured: Measured,
    /// Passages in a second by those of the first contender: 0.5 is half as fast.
    pub ratio: Option<f64>,
    /// How many rounds.
    pub rounds: usize,
}

/// Everything that was measured in one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// How long each round took, in seconds.
    pub round_seconds: f64,
    /// What.
    pub lines: Vec<Line>,
    /// What a reader has to know beside.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: f64) -> Measured {
        Measured { per_second: Some(per_second), ..Measured::default() }
    }

    #[test]
    fn the_middle_round_counts() {
        let rounds = [rate(5.0), rate(1.0), rate(100.0)];
        assert_eq!(Measured::median(&rounds).per_second, Some(5.0));
        let one_failed = [rate(5.0), Measured::default(), rate(100.0)];
        assert_eq!(Measured::median(&one_failed).per_second, None);
    }

    #[test]
    fn who_starves_is_said_to() {
        assert_eq!(Fairness::of(&[4, 2], 3).most_by_fewest, Some(2.0));
        assert_eq!(Fairness::of(&[4, 2], 3).same_again_percent, 50.0);
        assert_eq!(Fairness::of(&[4, 0], 0).most_by_fewest, None);
    }

    #[test]
    fn latencies_are_told_in_microseconds() {
        let mut latencies = Latencies::new();
        for millis in 1..=100 {
            latencies.record(Duration::from_millis(millis));
        }
        let measured = Measured::cycles(
            latencies,
            Spent { elapsed: Duration::from_secs(1), cpu: 0.5, ..Spent::default() },
        );
        assert_eq!(measured.per_second, Some(100.0));
        assert!((measured.p50_us.unwrap() - 50_000.0).abs() < 100.0);
        assert!((measured.p99_us.unwrap() - 99_000.0).abs() < 100.0);
        assert_eq!(measured.cpu_us, Some(5000.0));
    }
}
