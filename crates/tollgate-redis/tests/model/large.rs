//! The model's larger worlds, as far as the time goes: `cargo xtask model`. What it is a model of is in `main.rs`.

mod check;
mod client;
mod node;
mod normal;
mod plain;
mod recovery;
mod rules;
mod sizes;
mod steps;
mod take;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use check::{Budget, Verdict, check};
use rules::Rules;
use sizes::{APART, BARE, ENDLESS, FULL, LOSS, RESTART, ROUNDS, TAKES, TIMELESS, TWO_LOST};
use world::{Redlock, Size};

/// What all of them may take together, and each of them, unless told otherwise.
const DEFAULT: Limits = Limits { minutes: 10.0, gigabytes: 8.0 };
/// Measured, with some to spare: a step in three leads to a world that is new and must be remembered.
const STEPS_PER_GIGABYTE: f64 = 7_500_000.0;

/// What was asked for.
struct Limits {
    minutes: f64,
    gigabytes: f64,
}

enum Clients {
    Two,
    Three,
}

/// All nodes may be without their data, perhaps after a recovery that only they knew of: nothing but the nodes'
/// clocks, which must have gone on since, can tell.
const ALL_LOST: Size = Size { losses: 3, lost_at_once: 3, wait: 4, ..TWO_LOST };

/// Plain takes below, at and above counters that were apart already.
const TAKES_APART: Size = Size { floors: APART.floors, proposals: &[1, 2, 3], ..FULL };

/// What is checked, the smaller first: what they do not need of their share is left to the larger.
const WORLDS: &[(Clients, &str, Size)] = &[
    (Clients::Three, "nothing but expiry", BARE),
    (Clients::Three, "renewed in rounds", ROUNDS),
    (Clients::Two, "a duplicate each, no expiry, one starts over", Size { duplicates: 1, ..ENDLESS }),
    (
        Clients::Two,
        "two nodes lost at once, no clocks",
        Size { clocks_can_be_trusted: false, margin: 6, ..TWO_LOST },
    ),
    (Clients::Two, "plain takes, two nodes lost at once", Size { proposals: TAKES.proposals, ..TWO_LOST }),
    (
        Clients::Two,
        "plain takes, a lost node, none taken for one",
        Size { normal: false, proposals: &[1], ..LOSS },
    ),
    (Clients::Two, "plain takes, both start over", Size { restarts: 2, ..TAKES }),
    (Clients::Two, "plain takes, a duplicate each, one starts over", Size { duplicates: 1, ..TAKES }),
    (Clients::Two, "plain takes, a lost node, one starts over", Size { losses: 1, ..TAKES }),
    (Clients::Two, "a lost node, one starts over", Size { losses: 1, ..RESTART }),
    (Clients::Two, "a duplicate each, one starts over", Size { duplicates: 1, ..RESTART }),
    (Clients::Two, "two losses, no clocks", Size { losses: 2, ..TIMELESS }),
    (Clients::Two, "three nodes lost at once", ALL_LOST),
    (Clients::Three, "plain takes", Size { restarts: 0, ..TAKES }),
    (Clients::Two, "plain takes, everything, counters apart", TAKES_APART),
    (Clients::Three, "one lost node", LOSS),
    (
        Clients::Two,
        "a duplicate each, renewed in rounds, one lost node",
        Size { duplicates: 1, losses: 1, ..ROUNDS },
    ),
    (
        Clients::Two,
        "everything, hints, counters apart",
        Size { floors: APART.floors, hints: APART.hints, ..FULL },
    ),
    (Clients::Three, "no expiry, one starts over", ENDLESS),
    (Clients::Three, "a duplicate each", Size { duplicates: 1, ..BARE }),
    (Clients::Three, "everything", FULL),
];

fn main() -> ExitCode {
    match Limits::read(std::env::args().skip(1)).and_then(|limits| explore_all(&limits)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("model: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing bad was found.
fn explore_all(limits: &Limits) -> Result<bool, String> {
    let until = Instant::now() + limits.time()?;
    let steps = (limits.gigabytes * STEPS_PER_GIGABYTE) as usize;
    let mut good = true;
    for (number, (clients, name, size)) in WORLDS.iter().enumerate() {
        let left = u32::try_from(WORLDS.len() - number).expect("there are few worlds");
        let time = until.saturating_duration_since(Instant::now()) / left;
        let (who, verdict) = explore(clients, *size, Budget { time, steps });
        println!("{who} clients, {name}: {verdict}");
        good &= !verdict.is_bad();
    }
    Ok(good)
}

fn explore(clients: &Clients, size: Size, budget: Budget) -> (&'static str, Verdict) {
    let rules = Rules::RIGHT;
    match clients {
        Clients::Two => ("two", check(Redlock::<2> { size, rules }, Some(budget))),
        Clients::Three => ("three", check(Redlock::<3> { size, rules }, Some(budget))),
    }
}

impl Limits {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut limits = DEFAULT;
        while let Some(option) = arguments.next() {
            let limit = match option.as_str() {
                "--minutes" => &mut limits.minutes,
                "--gigabytes" => &mut limits.gigabytes,
                _ => {
                    return Err(format!(
                        "there is no {option}; the options are --minutes N and --gigabytes N"
                    ));
                }
            };
            let number = arguments.next().and_then(|value| value.parse::<f64>().ok());
            *limit =
                number.filter(|number| *number > 0.0).ok_or(format!("{option} takes a number above zero"))?;
        }
        Ok(limits)
    }

    fn time(&self) -> Result<Duration, String> {
        let longest = Duration::from_secs(365 * 24 * 3600);
        let time = Duration::try_from_secs_f64(self.minutes * 60.0).ok().filter(|time| *time < longest);
        time.ok_or_else(|| format!("{} minutes are too many", self.minutes))
    }
}
