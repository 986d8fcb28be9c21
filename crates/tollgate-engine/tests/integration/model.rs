//! The engine against a naive model of it: the same answers, the same events, the same view, always.

mod naive;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;

use naive::{Entry, Naive};
use proptest::option;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use steps::{NAMES, Step};
use tollgate_engine::{Answer, Claim, Command, Effects, Engine, Event, Granted, LockView, Stats};
use tollgate_types::{Conflict, LockName, Mode, Moment, OnDeadlock, OwnerId, Token};

/// The model, and what it said to the last step.
#[derive(Debug, Clone)]
struct Reference {
    model: Naive,
    floor: Option<Token>,
    said: Option<Effects>,
}

impl ReferenceStateMachine for Reference {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let floors = prop_oneof![1..100_u64, Token::MAX.get() - 10..=Token::MAX.get()];
        let floor = option::weighted(0.3, floors.prop_map(|floor| Token::new(floor).unwrap()));
        floor.prop_map(|floor| Self { model: Naive::new(floor), floor, said: None }).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        steps::step(&state.model)
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.said = Some(state.model.apply(step.command.clone(), step.now));
        state
    }
}

/// The engine, and whom it gave which token.
struct Subject {
    engine: Engine<u32>,
    floor: Option<Token>,
    issued: BTreeMap<Token, OwnerId>,
}

impl Subject {
    fn issue(&mut self, token: Token, owner: OwnerId) {
        let highest = self.issued.last_key_value().map(|(token, _)| *token);
        assert!(highest.max(self.floor) < Some(token), "tokens rise strictly");
        self.issued.insert(token, owner);
    }
}

/// The effects without the circles that deadlocks name: of several the model would have to find the same.
fn untold(mut effects: Effects) -> Effects {
    let untell = |conflict: &mut Conflict| {
        if let Conflict::Cycle(cycle) = conflict {
            assert!(cycle.iter().any(|waits| waits.party.is_some()), "a circle has a party in it");
            cycle.clear();
        }
    };
    if let Answer::Deadlock { conflict, .. } = &mut effects.answer {
        untell(conflict);
    }
    for event in &mut effects.events {
        if let Event::Deadlock { conflict, .. } = event {
            untell(conflict);
        }
    }
    effects
}

struct EngineTest;

impl StateMachineTest for EngineTest {
    type SystemUnderTest = Subject;
    type Reference = Reference;

    fn init_test(reference: &Reference) -> Subject {
        let engine = reference.floor.map_or_else(Engine::new, Engine::with_floor);
        Subject { engine, floor: reference.floor, issued: BTreeMap::new() }
    }

    fn apply(mut subject: Subject, reference: &Reference, step: Step) -> Subject {
        let effects = untold(subject.engine.apply(step.command.clone(), step.now));
        assert_eq!(
            Some(&effects),
            reference.said.as_ref(),
            "the model answers owner {} differently",
            step.owner
        );
        for event in &effects.events {
            if let Event::Granted { token, owner, .. } = event {
                subject.issue(*token, *owner);
            }
        }
        match (&step.command, effects.answer) {
            (Command::Acquire { claim, .. }, Answer::Granted(Granted { token, .. })) => {
                // A repeated acquire is told a token again, but never somebody else's.
                match subject.issued.get(&token) {
                    Some(owner) => assert_eq!(*owner, claim.owner),
                    None => subject.issue(token, claim.owner),
                }
            }
            (Command::RaiseFloor { token }, _) => subject.floor = subject.floor.max(Some(*token)),
            (Command::Tick, _) => {
                let next = subject.engine.next_expiry();
                assert!(next.is_none_or(|next| next > reference.model.now), "a tick does all that is due");
            }
            _ => {}
        }
        subject
    }

    fn check_invariants(subject: &Subject, reference: &Reference) {
        let (engine, model) = (&subject.engine, &reference.model);
        engine.check_consistency();
        assert_eq!(engine.last_token(), model.last_token);
        assert_eq!(engine.next_expiry().is_some(), model.next_due().is_some());
        assert!(engine.next_expiry() <= model.next_due(), "the next expiry is never late");

        let expected = NAMES.iter().map(|name| LockName::new(name).unwrap());
        let expected: Vec<_> = expected.filter_map(|name| expected_view(model, &name)).collect();
        for view in &expected {
            assert_eq!(engine.inspect(&view.name).map(|seen| ViewCopy::from(&seen)).as_ref(), Some(view));
        }
        for prefix in ["", "a", "a/", "b", "c"] {
            let listed: Vec<_> = engine.list(prefix).iter().map(ViewCopy::from).collect();
            let expected: Vec<_> =
                expected.iter().filter(|view| view.name.as_str().starts_with(prefix)).collect();
            assert_eq!(listed.iter().collect::<Vec<_>>(), expected);
        }
        assert_eq!(engine.stats().parties, model.ages.len());
        if expected.is_empty() {
            assert_eq!(engine.stats(), Stats::default(), "an idle engine keeps nothing");
        }
    }
}

/// What a view shows, in a shape that the model can write down too.
#[derive(Debug, PartialEq)]
struct ViewCopy {
    name: LockName,
    holders: Vec<String>,
    waiters: Vec<String>,
    delayed_until: Option<Moment>,
}

impl From<&LockView<'_, u32>> for ViewCopy {
    fn from(view: &LockView<'_, u32>) -> Self {
        let holders = view.holders.iter().map(|holder| {
            let (since, expires) = (holder.since, holder.expires);
            format!("{:?}", (holder.mode, holder.token, since, expires, holder.details))
        });
        let waiters = view.waiters.iter().map(|waiter| format!("{:?}", (waiter.mode, waiter.details)));
        Self {
            name: view.name.clone(),
            holders: holders.collect(),
            waiters: waiters.collect(),
            delayed_until: view.delayed_until,
        }
    }
}

fn expected_view(model: &Naive, name: &LockName) -> Option<ViewCopy> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for Entry { claim, grant, due, .. } in model.queue(name) {
        match grant {
            Some(grant) => {
                let due = due.unwrap();
                holders.push(format!("{:?}", (claim.mode, grant.token, grant.since, due, claim.details)));
            }
            None => waiters.push(format!("{:?}", (claim.mode, claim.details))),
        }
    }
    let delayed_until = model.delays.get(name).copied();
    let idle = holders.is_empty() && waiters.is_empty() && delayed_until.is_none();
    (!idle).then(|| ViewCopy { name: name.clone(), holders, waiters, delayed_until })
}

prop_state_machine! {
    // PROPTEST_CASES makes it as thorough as one likes.
    #![proptest_config(ProptestConfig { cases: 4 * ProptestConfig::default().cases, ..Default::default() })]
    #[test]
    fn the_engine_does_what_the_model_does(sequential 1..120 => EngineTest);
}

proptest! {
    #[test]
    fn the_same_commands_at_the_same_times_have_the_same_effects(
        (_, steps, _) in Reference::sequential_strategy(1..120),
    ) {
        let (mut fresh, mut used) = (Engine::new(), used_engine());
        fresh.apply(Command::RaiseFloor { token: used.last_token().unwrap() }, Moment::ZERO);
        for Step { command, now, .. } in steps {
            prop_assert_eq!(fresh.apply(command.clone(), now), used.apply(command, now));
        }
    }
}

/// An engine that is idle but has seen much, so that its records and tables lie differently in memory.
fn used_engine() -> Engine<u32> {
    let mut engine = Engine::new();
    let names: Vec<_> = (0..100).map(|n| LockName::new(format!("old/{n}")).unwrap()).collect();
    let claims = names.iter().flat_map(|name| (0..3).map(move |n| (name.clone(), OwnerId::from_bits(n))));
    let claims: Vec<_> = claims.collect();
    for (name, owner) in claims.clone() {
        let claim = Claim {
            name,
            mode: Mode::Shared,
            owner,
            ttl: Duration::from_secs(1),
            wait_lease: None,
            lock_delay: Duration::ZERO,
            party: None,
            on_deadlock: OnDeadlock::Timeout,
            details: 0,
        };
        engine.apply(Command::Acquire { claim, wait: true }, Moment::ZERO);
    }
    // Every seventh first: the freed records are then taken again in an order of their own.
    for turn in 0..7 {
        for (name, owner) in claims.iter().skip(turn).step_by(7).cloned() {
            engine.apply(Command::Release { name, owner }, Moment::ZERO);
        }
    }
    assert_eq!(engine.stats(), Stats::default());
    engine
}
