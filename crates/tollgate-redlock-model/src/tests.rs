//! The protocol keeps its promises in every world that is small enough to be looked at whole.

use crate::check::check;
use crate::rules::Rules;
use crate::sizes::{APART, BARE, ENDLESS, FULL, LOSS, RESTART, ROUNDS, TAKES, TIMELESS, TWO_LOST};
use crate::world::{Redlock, Renewals, Size};

/// Two clients of the protocol keep its promises in every world of this size.
fn holds(size: Size, rules: Rules) {
    let verdict = check(Redlock::<2> { size, rules }, None);
    println!("{}: {verdict}", std::thread::current().name().unwrap_or_default());
    assert!(!verdict.is_bad(), "{verdict}");
}

#[test]
fn tokens_are_unique_and_rise_through_expiry_duplicates_renewals_and_a_lost_node() {
    holds(FULL, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_whatever_the_hints_are_and_the_counters_were() {
    holds(APART, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_without_clocks_if_the_margin_is_large() {
    holds(TIMELESS, Rules::RIGHT);
}

#[test]
fn the_margin_may_be_added_to_times_alone_if_a_wait_is_longer_than_counters_run() {
    let rules = Rules { margin_is_for_times_alone: true, ..Rules::RIGHT };
    holds(Size { wait: 4, floors: APART.floors, ..TIMELESS }, rules);
}

#[test]
fn tokens_are_unique_and_rise_while_grants_are_renewed_and_healed() {
    holds(Size { duplicates: 1, ..ROUNDS }, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_when_too_few_nodes_are_left_to_recover_from() {
    holds(TWO_LOST, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_start_over_with_the_same_id() {
    holds(RESTART, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_start_over_with_an_id_of_its_own() {
    holds(RESTART, Rules { attempts_have_own_ids: true, ..Rules::RIGHT });
}

#[test]
fn nothing_is_hidden_by_taking_worlds_that_are_alike_for_one() {
    holds(Size { normal: false, ..LOSS }, Rules::RIGHT);
    holds(Size { normal: false, duplicates: 1, ..BARE }, Rules::RIGHT);
    holds(Size { normal: false, ..ROUNDS }, Rules::RIGHT);
    holds(Size { normal: false, restarts: 0, ..TAKES }, Rules::RIGHT);
}

#[test]
fn one_at_a_time_holds_where_nothing_expires() {
    holds(ENDLESS, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_through_plain_takes_their_duplicates_and_a_lost_node() {
    holds(Size { restarts: 0, duplicates: 1, losses: 1, ..TAKES }, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_whatever_plain_takes_propose_and_the_counters_were() {
    holds(Size { proposals: &[1, 2, 3], ..APART }, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_go_on_to_the_scripts_with_the_id_of_its_plain_take() {
    holds(Size { renewals: Renewals::Unconditional, ..TAKES }, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_with_plain_takes_without_clocks_if_the_margin_is_large() {
    holds(Size { proposals: TAKES.proposals, ..TIMELESS }, Rules::RIGHT);
}

#[test]
fn one_at_a_time_holds_for_plain_takes_where_nothing_expires() {
    holds(Size { proposals: &[1], ..ENDLESS }, Rules::RIGHT);
}
