//! Deadlock policies, each in the smallest story that shows it.

use std::time::Duration;

use tollgate_engine::{Answer, Claim, Command, Effects, Engine, Event};
use tollgate_types::OnDeadlock::{Detect, Timeout, WaitDie, WoundWait};
use tollgate_types::{Conflict, LockName, Mode, Moment, OnDeadlock, OwnerId, Party, PartyId, Waits};

/// Parties are numbers, the smaller the older: each claims for the first time at the moment of its number.
#[derive(Default)]
struct Story {
    engine: Engine<()>,
}

fn claim(party: u128, name: &str, mode: Mode, on_deadlock: OnDeadlock) -> Claim<()> {
    Claim {
        name: LockName::new(name).unwrap(),
        mode,
        owner: OwnerId::from_bits(party),
        ttl: Duration::from_secs(100),
        wait_lease: None,
        lock_delay: Duration::ZERO,
        party: Some(Party { id: PartyId::from_bits(party), age: Some(tollgate_types::Age(party as u64)) }),
        on_deadlock,
        details: (),
    }
}

impl Story {
    fn take(&mut self, claim: Claim<()>) -> Effects {
        let effects = self.engine.apply(Command::Acquire { claim, wait: true }, Moment::ZERO);
        self.engine.check_consistency();
        effects
    }

    fn wants(&mut self, party: u128, name: &str, on_deadlock: OnDeadlock) -> Effects {
        self.take(claim(party, name, Mode::Exclusive, on_deadlock))
    }

    fn release(&mut self, party: u128, name: &str) -> Vec<u128> {
        let (name, owner) = (LockName::new(name).unwrap(), OwnerId::from_bits(party));
        let events = self.engine.apply(Command::Release { name, owner }, Moment::ZERO).events;
        events.iter().filter_map(granted).collect()
    }
}

fn granted(event: &Event) -> Option<u128> {
    match event {
        Event::Granted { owner, .. } => Some(owner.to_bits()),
        _ => None,
    }
}

/// Who was told of a deadlock, with the circle as (party, lock).
fn victims(effects: &Effects) -> Vec<(u128, Vec<(u128, String)>)> {
    let told = |cycle: &[Waits]| {
        cycle.iter().map(|waits| (waits.party.unwrap().to_bits(), waits.name.to_string())).collect()
    };
    let events = effects.events.iter().filter_map(|event| match event {
        Event::Deadlock { owner, conflict: Conflict::Cycle(cycle), .. } => {
            Some((owner.to_bits(), told(cycle)))
        }
        _ => None,
    });
    events.collect()
}

fn is_granted(effects: &Effects) -> bool {
    matches!(effects.answer, Answer::Granted(_))
}

fn waits(effects: &Effects) -> bool {
    matches!(effects.answer, Answer::Queued { .. }) && effects.events.is_empty()
}

#[test]
fn the_youngest_in_a_circle_is_told_the_whole_circle() {
    let mut story = Story::default();
    for (party, name) in [(1, "a"), (2, "b"), (3, "c")] {
        assert!(is_granted(&story.wants(party, name, Detect)));
    }
    assert!(waits(&story.wants(3, "a", Detect)));
    assert!(waits(&story.wants(1, "b", Detect)));
    let closed = story.wants(2, "c", Detect);
    let circle = [(3, "a"), (1, "b"), (2, "c")].map(|(party, name)| (party, name.to_owned()));
    assert_eq!(victims(&closed), [(3, circle.to_vec())]);
    assert!(matches!(closed.answer, Answer::Queued { .. }), "it was not the youngest");
    assert_eq!(story.release(3, "c"), [2]);
}

#[test]
fn whoever_does_not_want_to_know_is_left_waiting() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(1, "a", Detect)) && is_granted(&story.wants(2, "b", Timeout)));
    assert!(waits(&story.wants(2, "a", Timeout)));
    let closed = story.wants(1, "b", Detect);
    assert!(matches!(closed.answer, Answer::Deadlock { conflict: Conflict::Cycle(_), .. }), "{closed:?}");
}

#[test]
fn a_circle_is_found_too_when_somebody_closes_it_who_does_not_care() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(1, "a", Timeout)) && is_granted(&story.wants(2, "b", Detect)));
    assert!(waits(&story.wants(2, "a", Detect)));
    assert_eq!(victims(&story.wants(1, "b", Timeout)).len(), 1);
}

#[test]
fn a_permit_that_may_come_free_is_no_deadlock() {
    let mut story = Story::default();
    let two = Mode::permit(2).unwrap();
    assert!(is_granted(&story.take(claim(1, "pool", two, Detect))));
    assert!(is_granted(&story.take(claim(2, "pool", two, Detect))));
    assert!(is_granted(&story.wants(3, "a", Detect)));
    assert!(waits(&story.take(claim(3, "pool", two, Detect))));
    assert!(waits(&story.wants(1, "a", Detect)), "the second permit may come free");
    let closed = story.wants(2, "a", Detect);
    assert_eq!(victims(&closed)[0].0, 3, "and now it cannot");
}

#[test]
fn one_who_waits_with_two_claims_is_stuck_when_the_last_way_out_is_gone() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(1, "a", Detect)) && is_granted(&story.wants(2, "b", Detect)));
    assert!(is_granted(&story.wants(9, "free", Detect)));
    assert!(waits(&story.wants(1, "free", Detect)));
    assert!(waits(&story.wants(1, "b", Detect)));
    assert!(waits(&story.wants(2, "a", Detect)), "the first may get in elsewhere, and go on");
    let (name, owner) = (LockName::new("free").unwrap(), OwnerId::from_bits(1));
    let given_up = story.engine.apply(Command::Withdraw { name, owner }, Moment::ZERO);
    assert_eq!(victims(&given_up).len(), 1);
}

#[test]
fn readers_who_both_want_to_write_are_a_circle() {
    let mut story = Story::default();
    let shared = |party| claim(party, "a", Mode::Shared, Detect);
    assert!(is_granted(&story.take(shared(1))) && is_granted(&story.take(shared(2))));
    let writes =
        |party| Claim { owner: OwnerId::from_bits(party + 10), ..claim(party, "a", Mode::Exclusive, Detect) };
    let own = story.take(writes(1));
    assert!(matches!(own.answer, Answer::Deadlock { .. }), "it would wait for its own reading: {own:?}");
}

#[test]
fn by_wait_die_only_the_older_wait_also_for_those_who_wait() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(5, "a", WaitDie)));
    assert!(waits(&story.wants(2, "a", WaitDie)));
    let refused = story.wants(3, "a", WaitDie).answer;
    assert!(
        matches!(&refused, Answer::Deadlock { conflict: Conflict::Elder(elder), age: Some(_) } if elder.to_bits() == 2),
        "{refused:?}"
    );
    assert!(waits(&story.wants(1, "a", WaitDie)));
    assert_eq!(story.release(5, "a"), [2], "nobody jumps the queue");
}

#[test]
fn by_wound_wait_the_younger_lose_the_lock_or_their_place_and_nobody_jumps_the_queue() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(2, "a", WoundWait)));
    assert!(waits(&story.wants(4, "a", WoundWait)) && waits(&story.wants(5, "a", WoundWait)));
    let third = story.wants(3, "a", WoundWait);
    assert_eq!(third.events.len(), 2, "both younger ones leave: {third:?}");
    assert!(matches!(third.answer, Answer::Queued { ahead: 1, .. }), "and it waits for the older: {third:?}");
    let first = story.wants(1, "a", WoundWait);
    assert!(matches!(first.events[..], [Event::Revoked { .. }, Event::Deadlock { .. }]), "{first:?}");
    assert!(is_granted(&first), "nobody is left ahead");
}

#[test]
fn by_wound_wait_a_lock_delay_holds() {
    let mut story = Story::default();
    let lock_delay = Duration::from_secs(1);
    assert!(is_granted(&story.take(Claim { lock_delay, ..claim(2, "a", Mode::Exclusive, WoundWait) })));
    let first = story.wants(1, "a", WoundWait);
    assert!(matches!(first.answer, Answer::Queued { ahead: 0, .. }), "{first:?}");
    let due = story.engine.next_expiry().unwrap();
    assert_eq!(
        story.engine.apply(Command::Tick, due).events.iter().filter_map(granted).collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn nobody_is_wounded_who_has_another_policy() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(2, "a", Timeout)));
    assert!(waits(&story.wants(1, "a", WoundWait)));
}

#[test]
fn a_claim_that_gets_in_because_it_closed_two_circles_is_told_so_in_the_answer() {
    let mut story = Story::default();
    assert!(is_granted(&story.wants(1, "a", Detect)) && is_granted(&story.wants(9, "b", Detect)));
    assert!(is_granted(&story.take(claim(2, "l", Mode::Shared, Detect))));
    assert!(waits(&story.wants(9, "l", Detect)) && waits(&story.wants(9, "a", Detect)));
    assert!(waits(&story.wants(2, "b", Detect)), "the first may leave");
    let closed = story.take(claim(1, "l", Mode::Shared, Detect));
    assert_eq!(victims(&closed).iter().map(|victim| victim.0).collect::<Vec<_>>(), [9, 9]);
    assert!(is_granted(&closed), "{closed:?}");
    assert!(!closed.events.iter().any(|event| granted(event) == Some(1)), "it is told once");
}

/// Everybody holds a lock of its own and wants the same other one: no circle.
#[test]
fn a_crowd_without_a_circle_is_looked_through_and_left_alone() {
    let mut story = Story::default();
    let crowd = 1000;
    for party in 1..=crowd {
        let own = Command::Acquire {
            claim: claim(party, &format!("own/{party}"), Mode::Exclusive, Detect),
            wait: true,
        };
        story.engine.apply(own, Moment::ZERO);
        let hot = Command::Acquire { claim: claim(party, "hot", Mode::Exclusive, Detect), wait: true };
        let effects = story.engine.apply(hot, Moment::ZERO);
        assert!(effects.events.is_empty());
    }
    assert_eq!(story.engine.stats().waiters as u128, crowd - 1);
}

#[test]
fn of_a_semaphores_holders_only_the_youngest_makes_way() {
    let mut story = Story::default();
    let three = Mode::permit(3).unwrap();
    for party in [4, 9, 5] {
        assert!(is_granted(&story.take(claim(party, "pool", three, WoundWait))));
    }
    let oldest = story.take(claim(1, "pool", three, WoundWait));
    assert!(is_granted(&oldest));
    assert!(
        matches!(&oldest.events[..], [Event::Revoked { owner, .. }] if owner.to_bits() == 9),
        "{oldest:?}"
    );
}

#[test]
fn a_claim_that_states_an_older_age_does_not_wound_its_own_party() {
    let mut story = Story::default();
    let two = Mode::permit(2).unwrap();
    assert!(is_granted(&story.take(claim(2, "pool", two, WoundWait))));
    assert!(is_granted(&story.take(claim(5, "pool", two, WoundWait))));
    let mut second = claim(5, "pool", two, WoundWait);
    second.owner = OwnerId::from_bits(55);
    second.party = second.party.map(|party| Party { age: Some(tollgate_types::Age(1)), ..party });
    let taken = story.take(second);
    assert!(is_granted(&taken), "{taken:?}");
    let revoked = taken.events.iter().find_map(|event| match event {
        Event::Revoked { owner, .. } => Some(owner.to_bits()),
        _ => None,
    });
    assert_eq!(revoked, Some(2), "the younger party loses its permit, not the claim's own party");
}
