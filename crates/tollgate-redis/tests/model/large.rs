//! The model's larger worlds, as far as the time goes: `cargo xtask model`. What it is a model of is in `main.rs`.

mod check;
mod client;
mod node;
mod normal;
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
use sizes::{APART, ENDLESS, FULL, LOSS, PLAIN, RESTART, ROUNDS, TIMELESS, TWO_LOST};
use world::{Redlock, Size};

/// How long all of them may take together, unless told otherwise.
const MINUTES: f64 = 10.0;
/// What fits into 8 GB: a step in four leads to a world that is new and must be remembered.
const STEPS: usize = 100_000_000;

enum Clients {
    Two,
    Three,
}

/// All nodes may be without their data, perhaps after a recovery that only they knew of: nothing but the nodes'
/// clocks, which must have gone on since, can tell.
const ALL_LOST: Size = Size { losses: 3, lost_at_once: 3, wait: 4, ..TWO_LOST };

/// What is checked, the smaller first: what they do not need of their share is left to the larger.
const WORLDS: &[(Clients, &str, Size)] = &[
    (Clients::Three, "nothing but expiry", PLAIN),
    (Clients::Three, "renewed in rounds", ROUNDS),
    (Clients::Two, "a duplicate each, no expiry, one starts over", Size { duplicates: 1, ..ENDLESS }),
    (
        Clients::Two,
        "two nodes lost at once, no clocks",
        Size { clocks_can_be_trusted: false, margin: 6, ..TWO_LOST },
    ),
    (Clients::Two, "a lost node, one starts over", Size { losses: 1, ..RESTART }),
    (Clients::Two, "a duplicate each, one starts over", Size { duplicates: 1, ..RESTART }),
    (Clients::Two, "two losses, no clocks", Size { losses: 2, ..TIMELESS }),
    (Clients::Two, "three nodes lost at once", ALL_LOST),
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
    (Clients::Three, "a duplicate each", Size { duplicates: 1, ..PLAIN }),
    (Clients::Three, "everything", FULL),
];

fn main() -> ExitCode {
    let minutes = match minutes(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(minutes) => minutes,
        Err(error) => {
            eprintln!("model: {error}");
            return ExitCode::from(2);
        }
    };
    let until = Instant::now() + minutes;
    let mut failed = false;
    for (number, (clients, name, size)) in WORLDS.iter().enumerate() {
        let left = u32::try_from(WORLDS.len() - number).expect("there are few worlds");
        let time = until.saturating_duration_since(Instant::now()) / left;
        let (who, verdict) = explore(clients, *size, Budget { time, steps: STEPS });
        println!("{who} clients, {name}: {verdict}");
        failed |= verdict.is_bad();
    }
    ExitCode::from(u8::from(failed))
}

fn explore(clients: &Clients, size: Size, budget: Budget) -> (&'static str, Verdict) {
    let rules = Rules::RIGHT;
    match clients {
        Clients::Two => ("two", check(Redlock::<2> { size, rules }, Some(budget))),
        Clients::Three => ("three", check(Redlock::<3> { size, rules }, Some(budget))),
    }
}

fn minutes(arguments: &[String]) -> Result<Duration, String> {
    let minutes = match arguments {
        [] => MINUTES,
        [option, value] if option == "--minutes" => {
            value.parse().map_err(|_| format!("{value:?} is no number of minutes"))?
        }
        _ => return Err("the only option is --minutes N".to_owned()),
    };
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| format!("{minutes} minutes cannot be waited for"))
}
