//! Random commands: few names, few owners, short times, so that they meet.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_engine::{Claim, Command};
use tollgate_types::{Age, LockName, Mode, Moment, OnDeadlock, OwnerId, Party, PartyId, Token};

use super::naive::Naive;

pub(crate) const NAMES: [&str; 4] = ["a", "a/b", "ab", "b"];

/// One command and its time. The owner is repeated because an owner id does not print itself.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) command: Command<u32>,
    pub(crate) owner: u128,
    pub(crate) now: Moment,
}

/// A step that may follow when the engine stands as `model` does.
pub(crate) fn step(model: &Naive) -> BoxedStrategy<Step> {
    (command(model), now(model.now)).prop_map(|((command, owner), now)| Step { command, owner, now }).boxed()
}

/// Mostly the same time or a little later, sometimes much later, sometimes earlier.
fn now(last: Moment) -> impl Strategy<Value = Moment> {
    let us = Duration::from_micros;
    prop_oneof![
        5 => Just(last),
        4 => (1..4_u64).prop_map(move |later| last + us(later)),
        1 => (1..30_u64).prop_map(move |later| last + us(later)),
        1 => (1..20_u64).prop_map(move |earlier| last - us(earlier)),
    ]
}

fn command(model: &Naive) -> impl Strategy<Value = (Command<u32>, u128)> + use<> {
    let known = |(name, owner): (LockName, u128)| (name, OwnerId::from_bits(owner), owner);
    let whom = whom(model).prop_map(known);
    prop_oneof![
        10 => (claim(), any::<bool>()).prop_map(|((claim, owner), wait)| {
            (Command::Acquire { claim, wait }, owner)
        }),
        4 => (whom.clone(), time(), option::of(any::<u32>())).prop_map(|((name, owner, bits), ttl, details)| {
            (Command::Extend { name, owner, ttl, details }, bits)
        }),
        4 => whom.clone().prop_map(|(name, owner, bits)| (Command::Release { name, owner }, bits)),
        3 => whom.prop_map(|(name, owner, bits)| (Command::Withdraw { name, owner }, bits)),
        2 => (grant(model), any::<bool>())
            .prop_map(|((name, token), by_force)| (Command::Revoke { name, token, by_force }, 0)),
        2 => Just((Command::Tick, 0)),
        1 => floor(model).prop_map(|token| (Command::RaiseFloor { token }, 0)),
    ]
}

fn claim() -> impl Strategy<Value = (Claim<u32>, u128)> {
    let lock_delay = prop_oneof![3 => Just(Duration::ZERO), 1 => time()];
    let (lease, party) = (option::of(time()), option::weighted(0.6, party()));
    (name(), mode(), 0..8_u128, time(), lease, lock_delay, party, on_deadlock(), any::<u32>()).prop_map(
        |(name, mode, bits, ttl, wait_lease, lock_delay, party, on_deadlock, details)| {
            let owner = OwnerId::from_bits(bits);
            (Claim { name, mode, owner, ttl, wait_lease, lock_delay, party, on_deadlock, details }, bits)
        },
    )
}

fn name() -> impl Strategy<Value = LockName> + Clone {
    // The first name is the busy one.
    prop_oneof![Just(NAMES[0]), select(&NAMES[..])].prop_map(|name| LockName::new(name).unwrap())
}

fn mode() -> impl Strategy<Value = Mode> {
    let permit = |limit| Mode::permit(limit).unwrap();
    select(vec![Mode::Exclusive, Mode::Shared, Mode::Shared, permit(1), permit(2), permit(3)])
}

fn on_deadlock() -> impl Strategy<Value = OnDeadlock> {
    use OnDeadlock::{Detect, Timeout, WaitDie, WoundWait};
    select(vec![Timeout, Timeout, Detect, Detect, Detect, WaitDie, WoundWait])
}

/// From nothing at all to longer than any test, so that some leases are never seen to end.
fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![9 => (0..12_u64).prop_map(Duration::from_micros), 1 => Just(Duration::from_secs(3600))]
}

fn party() -> impl Strategy<Value = Party> {
    let age = option::weighted(0.3, (0..20_u64).prop_map(Age));
    (0..3_u128, age).prop_map(|(id, age)| Party { id: PartyId::from_bits(id), age })
}

/// Mostly a claim that is there.
fn whom(model: &Naive) -> BoxedStrategy<(LockName, u128)> {
    let there = model.claims.iter().map(|entry| (entry.claim.name.clone(), entry.claim.owner.to_bits()));
    let there: Vec<_> = there.collect();
    let anybody = (name(), 0..8_u128);
    if there.is_empty() { anybody.boxed() } else { prop_oneof![1 => anybody, 4 => select(there)].boxed() }
}

/// Mostly a grant that is there.
fn grant(model: &Naive) -> BoxedStrategy<(LockName, Token)> {
    let there = model.claims.iter().filter_map(|entry| Some((entry.claim.name.clone(), entry.grant?.token)));
    let there: Vec<_> = there.collect();
    let any = (name(), (1..20_u64).prop_map(|number| Token::new(number).unwrap()));
    if there.is_empty() { any.boxed() } else { prop_oneof![1 => any, 4 => select(there)].boxed() }
}

/// Around the last token, so that it raises or does nothing, and now and then uses up all that is left.
fn floor(model: &Naive) -> impl Strategy<Value = Token> + use<> {
    let last = model.last_token.map_or(0, Token::get);
    (0..8_u64).prop_map(move |more| Token::new((last + more).saturating_sub(4)).unwrap_or(Token::MIN))
}
