//! A model of Redlock with tokens.
mod client;
mod node;
mod normal;
mod recovery;
mod rules;
mod steps;
mod take;
mod world;

use rules::Rules;
use stateright::{Checker, Model};
use world::*;

const MAIN: Size = Size {
    floors: &[[0, 0, 0]],
    hints: &[0],
    restarts: 0,
    renewals: Renewals::Unconditional,
    duplicates: 1,
    losses: 1,
    lost_at_once: 1,
    margin: 0,
    expiry: true,
    clocks_can_be_trusted: true,
};

#[test]
fn explore() {
    let mut size = MAIN;
    let get =
        |name: &str, default: u8| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    size.restarts = get("RESTARTS", 0);
    size.renewals = [Renewals::None, Renewals::Rounds, Renewals::Unconditional][get("RENEW", 2) as usize];
    size.duplicates = get("DUPS", 1);
    size.losses = get("LOSSES", 1);
    size.lost_at_once = get("ATONCE", 1) as usize;
    size.margin = get("MARGIN", 0);
    size.expiry = get("EXPIRY", 1) == 1;
    size.clocks_can_be_trusted = get("CLOCKS", 1) == 1;
    if get("HINTS", 0) == 1 {
        size.hints = &[0, 2];
    }
    if get("HINTS", 0) == 5 {
        size.hints = &[0, 5];
    }
    if get("FLOORS", 0) == 1 {
        size.floors = &[[0, 0, 0], [0, 0, 2], [0, 1, 2], [0, 2, 2]];
    }
    if get("FLOORS", 0) == 3 {
        size.floors = &[[0, 0, 2]];
    }
    if get("FLOORS", 0) == 2 {
        size.floors = &[[0, 1, 2]];
    }
    let mut rules = Rules::default();
    match std::env::var("WRONG").unwrap_or_default().as_str() {
        "" => {}
        "nocommit" => rules.grant_needs_majority_at_token = false,
        "rise" => rules.commit_must_rise = false,
        "general" => rules.acquire_heeds_general = false,
        "run" => rules.run_id_is_checked = false,
        "retry" => rules.validity_counts_from_first_send = false,
        "tally" => rules.tally_is_the_attempts_own = false,
        "readfirst" => rules.recovery_reads_after_its_wait = false,
        "raise" => rules.recovery_raises_the_others = false,
        "losses" => rules.member_is_of_one_start = false,
        "ownids" => rules.attempts_have_own_ids = true,
        "late" => rules.release_comes_before_next_acquire = false,
        _ => panic!(),
    }
    let started = std::time::Instant::now();
    let run = |done: (usize, usize, usize, Vec<String>)| {
        println!(
            "{} unique, {} states, depth {}, {:?}\n{}",
            done.0,
            done.1,
            done.2,
            started.elapsed(),
            done.3.join("\n")
        )
    };
    macro_rules! go {
        ($n:literal) => {{
            let c = Redlock::<$n> { size, rules }
                .checker()
                .threads(2)
                .timeout(std::time::Duration::from_secs(get("SECS", 100) as u64))
                .finish_when(stateright::HasDiscoveries::AnyFailures)
                .spawn_bfs()
                .join();
            let d = c.discoveries();
            let mut lines = vec![];
            for p in c.model().properties() {
                lines.push(format!(
                    "{:60} {}",
                    p.name,
                    match d.get(p.name) {
                        Some(path) =>
                            format!("{:?}, {} steps", p.expectation, path.clone().into_actions().len()),
                        None => "-".into(),
                    }
                ));
                if p.expectation == stateright::Expectation::Always
                    && let Some(path) = d.get(p.name)
                {
                    for (s, a) in path.clone().into_vec() {
                        lines.push(format!("   {a:?}"));
                        let _ = s;
                    }
                }
            }
            run((c.unique_state_count(), c.state_count(), c.max_depth(), lines));
        }};
    }
    match get("CLIENTS", 2) {
        2 => go!(2),
        3 => go!(3),
        _ => panic!(),
    }
}
