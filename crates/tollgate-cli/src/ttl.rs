//! `tollgate ttl`: compute how long a ttl should be.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tollgate::{DEFAULT_TTL, Error, Result};

use crate::exit::Exit;
use crate::tell;

/// Compute how long a ttl should be.
///
/// Computes both formulas in common use, says what each means and when to use it, and what to pass
/// to tollgate. Contacts no engine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TtlArgs {
    /// How long the work takes that the lock protects.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
    op: Duration,

    /// How long a round trip to the engine takes at worst.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = tollgate::parse_duration)]
    latency: Duration,

    /// How far clocks drift apart while the lock is held.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = tollgate::parse_duration)]
    drift: Duration,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate ttl --op 5s --latency 100ms --drift 50ms
  tollgate ttl --op 2h --json";

pub(crate) fn run(args: &TtlArgs) -> Result<Exit> {
    let advice = Advice::new(args.op, args.latency, args.drift).ok_or_else(|| {
        Error::invalid("these durations are too long: no engine accepts a ttl of more than 365 days")
    })?;
    let text = if args.json { format!("{}\n", advice.json()) } else { advice.text(args) };
    tell::answer(&text)?;
    Ok(Exit::OK)
}

/// The longest ttl that an engine accepts.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Advice {
    /// 2 × (work + latency + drift).
    twice_all: Duration,
    /// 3 × work + latency.
    thrice_work: Duration,
    /// The ttl for a lock that is not renewed.
    unrenewed: Duration,
    /// The ttl for a lock that is renewed.
    renewed: Duration,
}

impl Advice {
    /// A renewal fails after a sixth of the ttl, so its reply must have come by then.
    const RENEWALS: u32 = 6;

    /// `None` if no engine accepts a ttl that is long enough for a renewal.
    fn new(work: Duration, latency: Duration, drift: Duration) -> Option<Self> {
        let twice_all = work.checked_add(latency)?.checked_add(drift)?.checked_mul(2)?;
        let thrice_work = work.checked_mul(3)?.checked_add(latency)?;
        let unrenewed = whole_seconds(twice_all.max(thrice_work))?;
        let least = whole_seconds(latency.checked_add(drift)?.checked_mul(Self::RENEWALS)?)?;
        // The ttl of a renewed lock need not outlast the work: a longer one only delays waiters
        // after a crash.
        let renewed = Some(unrenewed.min(DEFAULT_TTL).max(least)).filter(|ttl| *ttl <= LONGEST_TTL)?;
        Some(Self { twice_all, thrice_work, unrenewed, renewed })
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "twice_everything_ms": millis(self.twice_all),
            "thrice_the_work_ms": millis(self.thrice_work),
            "renewed_ttl_ms": millis(self.renewed),
            "unrenewed_ttl_ms": millis(self.unrenewed),
        })
    }

    fn text(&self, args: &TtlArgs) -> String {
        let [work, latency, drift] = [args.op, args.latency, args.drift].map(exact);
        let [twice, thrice, renewed, unrenewed, pause] =
            [self.twice_all, self.thrice_work, self.renewed, self.unrenewed, survived(self.renewed)]
                .map(exact);
        let acquire = if self.unrenewed > LONGEST_TTL {
            format!(
                "none: {unrenewed} is more than the 365 days that engines accept; let tollgate run renew the lock"
            )
        } else {
            format!("tollgate acquire --ttl {unrenewed}")
        };
        format!(
            "\
2 x (work + latency + drift) = 2 x ({work} + {latency} + {drift}) = {twice}
  Twice the time that everything takes without trouble; the other half is for pauses. Use it
  when you know how long the work takes, and clocks or the network may vary.

3 x work + latency = 3 x {work} + {latency} = {thrice}
  The work may take three times as long as you expect. Use it when the time of the work
  varies. It ignores clocks: for short work on a slow network the first result is longer.

Both are for a lock that is not renewed, as tollgate acquire takes it. The longer one is
safer:

  {acquire}

tollgate run and the library renew a lock every third of its ttl. Then the ttl does not
depend on how long the work takes. It is how long waiters wait after the machine of a holder
crashed, and it bounds the longest pause that a holder survives (here at least {pause}):

  tollgate run --ttl {renewed}

No ttl protects against a longer pause: only a resource that checks tokens does.
On file: no lock expires, and the lock of a dead holder is free at once, whatever the ttl.
"
        )
    }
}

/// The longest pause that a holder survives: a grant that was renewed a third of the ttl ago is
/// valid for almost two thirds more.
fn survived(ttl: Duration) -> Duration {
    let pause = ttl * 3 / 5;
    if pause.as_secs() > 1 { Duration::from_secs(pause.as_secs()) } else { pause }
}

/// Rounded up; at least one.
fn whole_seconds(duration: Duration) -> Option<Duration> {
    let up = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().checked_add(up).map(|seconds| Duration::from_secs(seconds.max(1)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as it can be passed back to tollgate.
fn exact(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let units = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let mut text: String =
        units.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    let (millis, rest) = (nanos / 1_000_000, nanos % 1_000_000);
    match (millis, rest) {
        (0, 0) => {}
        (_, 0) => text.push_str(&format!("{millis}ms")),
        // Written out: a sum whose parts are rounded does not add up.
        _ => text.push_str(&format!("{}ms", format!("{millis}.{rest:06}").trim_end_matches('0'))),
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn both_formulas_are_what_people_know_them_to_be() {
        let advice = Advice::new(MS * 5000, MS * 100, MS * 50).unwrap();
        assert_eq!(advice.twice_all, MS * 10_300);
        assert_eq!(advice.thrice_work, MS * 15_100);
        assert_eq!((advice.unrenewed, advice.renewed), (MS * 16_000, MS * 16_000));
    }

    #[test]
    fn a_renewed_lock_need_not_outlast_the_work_but_a_renewal() {
        let long = Advice::new(Duration::from_secs(7200), MS * 100, MS * 50).unwrap();
        assert_eq!((long.unrenewed, long.renewed), (Duration::from_secs(21_601), DEFAULT_TTL));
        let slow = Advice::new(MS * 10, Duration::from_secs(10), MS * 50).unwrap();
        assert_eq!(slow.renewed, Duration::from_secs(61));
        assert_eq!(Advice::new(Duration::MAX, MS, MS), None);
    }

    #[test]
    fn a_ttl_that_no_engine_takes_is_not_advised() {
        let day = Duration::from_secs(24 * 3600);
        let advised = |op| {
            let args = TtlArgs { op, latency: MS * 100, drift: MS * 50, json: false };
            Advice::new(op, args.latency, args.drift).map(|advice| advice.text(&args)).unwrap()
        };
        assert!(advised(day).contains("tollgate acquire --ttl 72h1s"), "{}", advised(day));
        let long = advised(day * 200);
        assert!(!long.contains("acquire --ttl") && long.contains("365 days"), "{long}");
        assert!(long.contains("tollgate run --ttl 30s"), "{long}");
        assert_eq!(Advice::new(MS, day * 100, MS), None);
        let short = advised(MS / 2);
        assert!(short.contains("2 x (0.5ms + 100ms + 50ms) = 301ms"), "{short}");
    }

    #[test]
    fn what_is_advised_can_be_passed_back() {
        for duration in [
            MS / 2,
            MS * 7 / 2,
            MS / 1_000_000,
            MS,
            MS * 61_000,
            Duration::from_secs(3_723),
            MS * 3_600_001,
            Duration::ZERO,
        ] {
            assert_eq!(tollgate::parse_duration(&exact(duration)), Ok(duration));
        }
    }
}
