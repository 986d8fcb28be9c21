//! A model of Redlock with tokens.

mod check;
mod client;
mod node;
mod normal;
mod recovery;
mod rules;
mod sizes;
mod steps;
mod take;
mod variants;
mod world;

use check::check;
use rules::Rules;
use sizes::{APART, ENDLESS, FULL, RESTART, ROUNDS, TIMELESS, TWO_LOST};
use world::{Redlock, Size};

/// Two clients of the protocol keep its promises in every world of this size.
fn holds(size: Size, rules: Rules) {
    let verdict = check(Redlock::<2> { size, rules }, None);
    println!("{verdict}");
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
fn an_acquisition_may_start_over_with_the_same_id_though_a_node_is_lost() {
    holds(Size { losses: 1, ..RESTART }, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_start_over_with_an_id_of_its_own() {
    holds(RESTART, Rules { attempts_have_own_ids: true, ..Rules::RIGHT });
}

#[test]
fn one_at_a_time_holds_where_nothing_expires() {
    holds(ENDLESS, Rules::RIGHT);
}
