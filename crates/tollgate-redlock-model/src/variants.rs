//! Protocols that leave out one rule. The checker must find out each of them, or it would find nothing at all.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::check::{check, threads};
use crate::rules::Rules;
use crate::sizes::{BARE, ENDLESS, LOSS, RESTART, TAKES, TIMELESS};
use crate::steps::{Request, Step};
use crate::world::{EXCLUSIVE, ORDERED, Redlock, Size, UNIQUE, World};

/// A way to break a promise.
struct Crime {
    steps: Vec<Step>,
}

impl Crime {
    fn has(&self, which: impl Fn(&Step) -> bool) -> bool {
        self.steps.iter().any(which)
    }

    fn is_recovered_from_a_loss(&self) -> bool {
        self.has(|step| matches!(step, Step::Lose { .. }))
            && self.has(|step| matches!(step, Step::Join { .. }))
    }
}

/// Two clients by the wrong `rules` break `promise`, by steps that the right rules do not allow.
fn breaks(promise: &'static str, rules: Rules, size: Size) -> Crime {
    let wrong = Redlock::<2> { size, rules };
    let path = counterexample(wrong, promise).expect("the wrong protocol breaks its promise");
    let worlds = path.into_vec();
    let steps: Vec<Step> = worlds.iter().filter_map(|(_, step)| *step).collect();
    assert!(goes(&wrong, &worlds), "the counterexample can be replayed");
    assert!(!goes(&Redlock { size, ..RIGHT }, &worlds), "the right protocol would do the same: {steps:#?}");
    assert!(matches!(steps.last(), Some(Step::Grant { .. })), "it is broken by a grant: {steps:#?}");
    println!("{promise:?} is broken in {} steps", steps.len());
    Crime { steps }
}

const RIGHT: Redlock<2> = Redlock { size: BARE, rules: Rules::RIGHT };

/// The way to a world where `promise` does not hold.
fn counterexample(model: Redlock<2>, promise: &'static str) -> Option<Path<World<2>, Step>> {
    let wanted = HasDiscoveries::AllOf(BTreeSet::from([promise]));
    model.checker().threads(threads()).finish_when(wanted).spawn_bfs().join().discovery(promise)
}

/// The model can go this way.
fn goes(model: &Redlock<2>, way: &[(World<2>, Option<Step>)]) -> bool {
    way.windows(2).all(|pair| {
        let [(from, Some(step)), (to, _)] = pair else { return false };
        let mut possible = Vec::new();
        model.actions(from, &mut possible);
        possible.contains(step) && model.next_state(from, *step).as_ref() == Some(to)
    })
}

#[test]
fn a_grant_without_a_commit_gives_one_token_twice() {
    let rules = Rules { grant_needs_majority_at_token: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, BARE);
    assert!(!crime.has(|step| matches!(step, Step::Commit { .. })));
}

#[test]
fn a_commit_at_or_below_the_floor_gives_one_token_twice() {
    let rules = Rules { commit_must_rise: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, BARE);
    assert!(crime.has(|step| matches!(step, Step::Arrive { request: Request::Commit { .. }, .. })));
}

#[test]
fn an_acquire_that_ignores_g_forgets_what_the_lost_node_gave() {
    let rules = Rules { acquire_heeds_general: false, ..Rules::RIGHT };
    assert!(breaks(ORDERED, rules, LOSS).is_recovered_from_a_loss());
}

#[test]
fn a_node_that_votes_again_with_old_data_gives_old_tokens() {
    let rules = Rules { run_id_is_checked: false, ..Rules::RIGHT };
    let crime = breaks(ORDERED, rules, LOSS);
    assert!(crime.has(|step| matches!(step, Step::Lose { .. })));
    assert!(!crime.has(|step| matches!(step, Step::Join { .. })), "nobody noticed that it must be recovered");
}

#[test]
fn validity_counted_from_a_retry_outlives_the_wait_of_a_recovery() {
    let rules = Rules { validity_counts_from_first_send: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, Size { duplicates: 1, ..LOSS });
    assert!(crime.is_recovered_from_a_loss() && crime.has(|step| matches!(step, Step::Retry { .. })));
}

#[test]
fn votes_of_an_earlier_attempt_outlive_the_wait_of_a_recovery() {
    let rules = Rules { tally_is_the_attempts_own: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, Size { losses: 1, ..RESTART });
    assert!(crime.is_recovered_from_a_loss() && crime.has(|step| matches!(step, Step::StartOver { .. })));
}

#[test]
fn a_recovery_that_reads_before_its_wait_misses_a_grant() {
    let rules = Rules { recovery_reads_after_its_wait: false, ..Rules::RIGHT };
    let crime = breaks(ORDERED, rules, LOSS);
    let position = |which: fn(&Step) -> bool| crime.steps.iter().position(which);
    let read = position(|step| matches!(step, Step::Read { .. }));
    assert!(
        crime.is_recovered_from_a_loss() && read < position(|step| matches!(step, Step::WaitIsOver { .. }))
    );
}

#[test]
fn a_recovery_that_does_not_raise_the_others_lets_the_next_one_start_too_low() {
    let rules = Rules { recovery_raises_the_others: false, ..Rules::RIGHT };
    let size = Size { losses: 2, ..TIMELESS };
    let crime = breaks(UNIQUE, rules, size);
    assert_eq!(crime.steps.iter().filter(|step| matches!(step, Step::Join { .. })).count(), 2);
}

#[test]
fn a_late_member_lets_a_node_vote_that_was_lost_again() {
    let rules = Rules { member_is_of_one_start: false, ..Rules::RIGHT };
    let crime = breaks(ORDERED, rules, Size { losses: 2, ..LOSS });
    assert!(crime.has(|step| matches!(step, Step::JoinLate { .. })));
}

#[test]
fn a_release_that_comes_after_the_next_attempt_lets_two_in() {
    let rules = Rules { release_comes_before_next_acquire: false, ..Rules::RIGHT };
    let crime = breaks(EXCLUSIVE, rules, ENDLESS);
    assert!(crime.has(|step| matches!(step, Step::Arrive { request: Request::Release { .. }, .. })));
}

/// Not a rule but what the rules rest on: clocks, or else the margin.
#[test]
fn without_clocks_a_margin_smaller_than_the_counters_are_apart_is_too_small() {
    let size = Size { floors: &[[0, 0, 2]], margin: 1, ..TIMELESS };
    let verdict = check(Redlock::<2> { size, ..RIGHT }, None);
    assert!(verdict.broken.iter().any(|(promise, _)| *promise == UNIQUE), "{verdict}");
}

/// Raising the others is for clocks that cannot be trusted: with those that can it is not needed.
#[test]
fn with_clocks_a_recovery_need_not_raise_the_others() {
    let rules = Rules { recovery_raises_the_others: false, ..Rules::RIGHT };
    let verdict = check(Redlock::<2> { size: Size { losses: 2, ..LOSS }, rules }, None);
    println!("{verdict}");
    assert!(!verdict.is_bad(), "{verdict}");
}

#[test]
fn a_plain_take_that_does_not_ask_what_zadd_said_gives_one_token_twice() {
    let rules = Rules { plain_vote_asks_what_zadd_said: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, Size { restarts: 0, ..TAKES });
    assert!(crime.has(|step| matches!(step, Step::StartPlainly { .. })));
}

#[test]
fn a_plain_take_that_ignores_g_forgets_what_the_lost_node_gave() {
    let rules = Rules { plain_vote_heeds_general: false, ..Rules::RIGHT };
    let crime = breaks(ORDERED, rules, Size { restarts: 0, losses: 1, ..TAKES });
    assert!(crime.is_recovered_from_a_loss() && crime.has(|step| matches!(step, Step::StartPlainly { .. })));
}

#[test]
fn scripts_that_trust_a_plain_lock_of_their_own_id_give_one_token_twice() {
    let rules = Rules { scripts_distrust_plain_locks: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, TAKES);
    assert!(crime.has(|step| matches!(step, Step::StartOver { .. })), "its plain take had failed");
}

/// Whose SET says nil raises F all the same, above the token of the lock that is there.
#[test]
fn a_commit_that_lowers_f_gives_one_token_twice() {
    let rules = Rules { commit_never_lowers: false, ..Rules::RIGHT };
    let crime = breaks(UNIQUE, rules, Size { floors: &[[0, 0, 1]], proposals: &[3], ..TAKES });
    assert!(crime.has(|step| matches!(step, Step::Arrive { request: Request::Commit { .. }, .. })));
}
