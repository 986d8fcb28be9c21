//! The engine's rules, one by one, each in the smallest story that shows it.

use std::time::Duration;

use tollgate_engine::{Answer, Claim, Command, Effects, Engine, Event, Granted, Stats};
use tollgate_types::{Age, LockName, Mode, Moment, OnDeadlock, OwnerId, Party, PartyId, Token};

/// An engine and its time in milliseconds. Owners are numbers; every claim is on one lock unless said.
struct Story {
    engine: Engine<&'static str>,
    now: u64,
}

const TTL: u64 = 100;

fn name() -> LockName {
    LockName::new("orders/42").unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(after: u64) -> Moment {
    Moment::ZERO + ms(after)
}

fn claim(owner: u128, mode: Mode) -> Claim<&'static str> {
    Claim {
        name: name(),
        mode,
        owner: OwnerId::from_bits(owner),
        ttl: ms(TTL),
        wait_lease: None,
        lock_delay: Duration::ZERO,
        party: None,
        on_deadlock: OnDeadlock::Timeout,
        details: "",
    }
}

impl Story {
    fn new() -> Self {
        Self { engine: Engine::new(), now: 0 }
    }

    fn apply(&mut self, command: Command<&'static str>) -> Effects {
        let effects = self.engine.apply(command, at(self.now));
        self.engine.check_consistency();
        effects
    }

    fn acquire(&mut self, claim: Claim<&'static str>) -> Answer {
        self.apply(Command::Acquire { claim, wait: true }).answer
    }

    fn try_acquire(&mut self, claim: Claim<&'static str>) -> Answer {
        self.apply(Command::Acquire { claim, wait: false }).answer
    }

    fn extend(&mut self, owner: u128, ttl: u64) -> Answer {
        let owner = OwnerId::from_bits(owner);
        self.apply(Command::Extend { name: name(), owner, ttl: ms(ttl), details: None }).answer
    }

    fn release(&mut self, owner: u128) -> Effects {
        self.apply(Command::Release { name: name(), owner: OwnerId::from_bits(owner) })
    }

    fn withdraw(&mut self, owner: u128) -> Effects {
        self.apply(Command::Withdraw { name: name(), owner: OwnerId::from_bits(owner) })
    }

    fn tick(&mut self, after: u64) -> Vec<Event> {
        self.now += after;
        self.apply(Command::Tick).events
    }
}

/// Whom these events grant the lock.
fn granted(events: &[Event]) -> Vec<u128> {
    let grants = events.iter().filter_map(|event| match event {
        Event::Granted { owner, .. } => Some(owner.to_bits()),
        _ => None,
    });
    grants.collect()
}

fn token(answer: Answer) -> Token {
    match answer {
        Answer::Granted(Granted { token, .. }) | Answer::Released { token } => token,
        other => panic!("not granted: {other:?}"),
    }
}

fn queued(ahead: usize) -> Answer {
    Answer::Queued { ahead, age: None }
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Exclusive)));
    assert_eq!(story.acquire(claim(2, Mode::Exclusive)), queued(1));
    assert_eq!(story.acquire(claim(3, Mode::Exclusive)), queued(2));
    assert_eq!(granted(&story.release(1).events), [2]);
    assert_eq!(granted(&story.release(2).events), [3]);
    assert_eq!(granted(&story.release(3).events), []);
    assert_eq!(story.engine.stats(), Stats::default());
}

#[test]
fn a_waiting_writer_is_not_starved_by_readers() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Shared)));
    token(story.acquire(claim(2, Mode::Shared)));
    assert_eq!(story.acquire(claim(3, Mode::Exclusive)), queued(2));
    assert_eq!(story.acquire(claim(4, Mode::Shared)), queued(3));
    assert!(matches!(story.try_acquire(claim(5, Mode::Shared)), Answer::Busy { ahead: 4, .. }));
    assert_eq!(granted(&story.release(1).events), []);
    assert_eq!(granted(&story.release(2).events), [3]);
    assert_eq!(granted(&story.release(3).events), [4]);
}

#[test]
fn readers_join_as_soon_as_the_writer_between_them_gives_up() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Shared)));
    story.acquire(claim(2, Mode::Exclusive));
    story.acquire(claim(3, Mode::Shared));
    story.acquire(claim(4, Mode::Shared));
    let left = story.withdraw(2);
    assert_eq!((left.answer, granted(&left.events)), (Answer::Withdrawn, vec![3, 4]));
}

#[test]
fn a_semaphore_lets_in_as_many_as_its_limit() {
    let (two, three) = (Mode::permit(2).unwrap(), Mode::permit(3).unwrap());
    let mut story = Story::new();
    token(story.acquire(claim(1, two)));
    token(story.acquire(claim(2, two)));
    assert_eq!(story.acquire(claim(3, two)), queued(2));
    assert_eq!(story.acquire(claim(4, three)), queued(3));
    assert_eq!(granted(&story.release(2).events), [3]);
    assert_eq!(granted(&story.release(1).events), [], "another limit is another semaphore");
    assert_eq!(granted(&story.release(3).events), [4]);
}

#[test]
fn tokens_rise_over_all_names_and_outlive_them() {
    let mut story = Story::new();
    let first = token(story.acquire(claim(1, Mode::Exclusive)));
    let other = Claim { name: LockName::new("other").unwrap(), ..claim(1, Mode::Exclusive) };
    let second = token(story.acquire(other));
    story.release(1);
    let third = token(story.acquire(claim(1, Mode::Exclusive)));
    assert!(first < second && second < third);
    assert_eq!(story.engine.last_token(), Some(third));
}

#[test]
fn tokens_start_above_the_floor_and_never_go_back() {
    let floor = |number| Token::new(number).unwrap();
    let mut story = Story { engine: Engine::with_floor(floor(1000)), now: 0 };
    assert_eq!(token(story.acquire(claim(1, Mode::Shared))).get(), 1001);
    story.apply(Command::RaiseFloor { token: floor(5000) });
    assert_eq!(token(story.acquire(claim(2, Mode::Shared))).get(), 5001);
    story.apply(Command::RaiseFloor { token: floor(7) });
    assert_eq!(token(story.acquire(claim(3, Mode::Shared))).get(), 5002);
}

#[test]
fn without_tokens_nothing_is_granted_and_waiters_stay() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Exclusive)));
    story.acquire(claim(2, Mode::Exclusive));
    story.apply(Command::RaiseFloor { token: Token::MAX });
    let released = story.release(1);
    assert_eq!((released.answer, released.events), (Answer::Released { token: Token::MIN }, vec![]));
    assert_eq!(story.acquire(claim(3, Mode::Exclusive)), Answer::Exhausted);
    assert_eq!(story.engine.inspect(&name()).unwrap().waiters.len(), 1);
    assert_eq!(story.withdraw(2).answer, Answer::Withdrawn);
}

#[test]
fn a_repeated_acquire_changes_nothing() {
    let mut story = Story::new();
    let first = story.acquire(claim(1, Mode::Exclusive));
    story.acquire(claim(2, Mode::Exclusive));
    story.now = 50;
    assert_eq!(story.acquire(claim(1, Mode::Exclusive)), first, "the same token, the same deadline");
    assert_eq!(story.acquire(claim(2, Mode::Exclusive)), queued(1));
    let busy = Answer::Busy { ahead: 1, retry_after: Some(ms(50)) };
    assert_eq!(story.try_acquire(claim(2, Mode::Exclusive)), busy);
    assert_eq!(granted(&story.release(1).events), [2], "its place was kept");
}

#[test]
fn only_the_owner_extends_releases_and_withdraws() {
    let mut story = Story::new();
    let mine = token(story.acquire(claim(1, Mode::Exclusive)));
    story.acquire(claim(2, Mode::Exclusive));
    assert_eq!(story.extend(3, TTL), Answer::NotFound);
    assert_eq!(story.release(3).answer, Answer::NotFound);
    assert_eq!(story.withdraw(3).answer, Answer::NotFound);
    assert_eq!(story.release(2).answer, Answer::NotFound, "what waits cannot be released");
    assert_eq!(story.release(1).answer, Answer::Released { token: mine });
    assert_eq!(story.release(1).answer, Answer::NotFound);
}

#[test]
fn a_lease_ends_exactly_when_it_says_and_the_next_lease_counts_from_the_hand_over() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Exclusive)));
    story.acquire(claim(2, Mode::Exclusive));
    assert_eq!(story.engine.next_expiry(), Some(at(100)));
    assert_eq!(story.tick(99), []);
    story.now = 130;
    let events = story.tick(0);
    assert!(
        matches!(events[..], [Event::Expired { .. }, Event::Granted { expires, .. }] if expires == at(230))
    );
    assert_eq!(story.extend(1, TTL), Answer::NotFound, "what is lost stays lost");
}

#[test]
fn an_extend_lengthens_or_shortens_from_now() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Exclusive)));
    story.now = 50;
    assert_eq!(story.extend(1, TTL), Answer::Extended { expires: at(150) });
    assert_eq!(story.tick(99), []);
    assert_eq!(story.extend(1, 10), Answer::Extended { expires: at(159) });
    assert_eq!(story.engine.next_expiry(), Some(at(150)), "early is allowed");
    assert_eq!(story.tick(1), []);
    assert_eq!(story.engine.next_expiry(), Some(at(159)), "but a tick moves it on");
    assert_eq!(story.extend(1, 2), Answer::Extended { expires: at(152) });
    assert_eq!(story.engine.next_expiry(), Some(at(152)));
    assert_eq!(story.tick(2).len(), 1);
    assert_eq!(story.engine.stats(), Stats::default());
}

#[test]
fn a_waiter_that_went_silent_is_passed_over() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Exclusive)));
    story.acquire(Claim { wait_lease: Some(ms(40)), ..claim(2, Mode::Exclusive) });
    story.acquire(Claim { wait_lease: Some(ms(40)), ..claim(3, Mode::Exclusive) });
    story.now = 30;
    assert_eq!(story.extend(3, TTL), Answer::StillWaiting { ahead: 2, expires: Some(at(70)) });
    let silent = OwnerId::from_bits(2);
    assert_eq!(story.tick(10), [Event::Abandoned { name: name(), owner: silent }]);
    assert_eq!(granted(&story.release(1).events), [3]);
}

#[test]
fn a_waiter_whose_time_is_up_is_not_granted_by_a_late_tick() {
    let mut story = Story::new();
    token(story.acquire(claim(1, Mode::Exclusive)));
    story.acquire(Claim { wait_lease: Some(ms(150)), ..claim(2, Mode::Exclusive) });
    let events = story.tick(200);
    assert!(matches!(events[..], [Event::Expired { .. }, Event::Abandoned { .. }]), "{events:?}");
}

#[test]
fn what_is_due_happens_in_the_order_it_came_due() {
    let mut story = Story::new();
    for (owner, ttl) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
        token(story.acquire(Claim { ttl: ms(ttl), ..claim(owner, Mode::Shared) }));
    }
    let expired = story.tick(50).into_iter().map(|event| match event {
        Event::Expired { owner, .. } => owner.to_bits(),
        other => panic!("{other:?}"),
    });
    assert_eq!(expired.collect::<Vec<_>>(), [2, 4, 3, 1]);
}

#[test]
fn time_never_goes_back() {
    let mut story = Story { now: 500, ..Story::new() };
    token(story.acquire(claim(1, Mode::Exclusive)));
    story.now = 0;
    assert_eq!(story.extend(1, TTL), Answer::Extended { expires: at(600) });
}

#[test]
fn after_a_loss_the_lock_delay_keeps_everybody_out() {
    let mut story = Story::new();
    token(story.acquire(Claim { lock_delay: ms(30), ..claim(1, Mode::Exclusive) }));
    story.acquire(claim(2, Mode::Exclusive));
    assert_eq!(granted(&story.tick(100)), []);
    assert_eq!(story.engine.inspect(&name()).unwrap().delayed_until, Some(at(130)));
    assert_eq!(story.withdraw(2).answer, Answer::Withdrawn);
    let busy = Answer::Busy { ahead: 0, retry_after: Some(ms(30)) };
    assert_eq!(story.try_acquire(claim(3, Mode::Exclusive)), busy);
    assert_eq!(story.acquire(claim(4, Mode::Exclusive)), queued(0));
    assert_eq!(story.engine.next_expiry(), Some(at(130)));
    assert_eq!(granted(&story.tick(30)), [4]);
}

#[test]
fn a_lock_delay_counts_from_the_loss_and_not_from_when_it_is_noticed() {
    let mut story = Story::new();
    token(story.acquire(Claim { lock_delay: ms(30), ..claim(1, Mode::Exclusive) }));
    story.acquire(claim(2, Mode::Exclusive));
    assert_eq!(granted(&story.tick(129)), []);
    assert_eq!(granted(&story.tick(1)), [2]);
}

#[test]
fn a_release_has_no_lock_delay_and_a_revoke_has() {
    let mut story = Story::new();
    let delayed = |owner| Claim { lock_delay: ms(30), ..claim(owner, Mode::Exclusive) };
    token(story.acquire(delayed(1)));
    story.acquire(delayed(2));
    let Event::Granted { token, .. } = story.release(1).events[0] else { panic!("not granted") };
    story.acquire(claim(3, Mode::Exclusive));
    let revoked = story.apply(Command::Revoke { name: name(), token, by_force: true });
    let owner = OwnerId::from_bits(2);
    assert_eq!(revoked.answer, Answer::Revoked);
    assert_eq!(revoked.events, [Event::Revoked { name: name(), owner, token }]);
    assert_eq!(granted(&story.tick(30)), [3]);
}

#[test]
fn a_revoke_takes_exactly_the_grant_it_names() {
    let mut story = Story::new();
    let gone = token(story.acquire(claim(1, Mode::Shared)));
    let kept = token(story.acquire(claim(2, Mode::Shared)));
    assert_eq!(
        story.apply(Command::Revoke { name: name(), token: gone, by_force: true }).answer,
        Answer::Revoked
    );
    assert_eq!(
        story.apply(Command::Revoke { name: name(), token: gone, by_force: true }).answer,
        Answer::NotFound
    );
    assert_eq!(story.release(2).answer, Answer::Released { token: kept });
}

#[test]
fn a_party_keeps_its_age_while_it_has_claims() {
    let mut story = Story { now: 5, ..Story::new() };
    let party = |age| Some(Party { id: PartyId::from_bits(7), age });
    let of = |owner, age| Claim { party: party(age), ..claim(owner, Mode::Shared) };
    let age = |answer| match answer {
        Answer::Granted(granted) => granted.age,
        other => panic!("{other:?}"),
    };
    assert_eq!(age(story.acquire(of(1, None))), Some(Age(5000)));
    story.now = 6;
    assert_eq!(age(story.acquire(of(2, None))), Some(Age(5000)), "its first claim lives");
    story.release(1);
    assert_eq!(age(story.acquire(of(3, None))), Some(Age(5000)), "its second claim lives");
    assert_eq!(age(story.acquire(of(4, Some(Age(1000))))), Some(Age(1000)), "the oldest counts");
    (2..=4).for_each(|owner| drop(story.release(owner)));
    assert_eq!(age(story.acquire(of(5, None))), Some(Age(6000)));
    story.release(5);
    assert_eq!(story.engine.stats(), Stats::default());
}

#[test]
fn details_are_shown_and_replaced_and_no_owner_is() {
    let mut story = Story::new();
    token(story.acquire(Claim { details: "me", ..claim(0xabcdef, Mode::Exclusive) }));
    story.acquire(Claim { details: "you", ..claim(2, Mode::Shared) });
    let (owner, ttl) = (OwnerId::from_bits(0xabcdef), ms(TTL));
    story.apply(Command::Extend { name: name(), owner, ttl, details: Some("me, working") });
    let view = story.engine.inspect(&name()).unwrap();
    assert_eq!(*view.holders[0].details, "me, working");
    assert_eq!(*view.waiters[0].details, "you");
    assert!(!format!("{view:?}").contains("abcdef"));
    assert_eq!(story.engine.list("orders/"), [view]);
    assert_eq!(story.engine.list("order/"), []);
}

#[test]
fn a_lease_beyond_the_end_of_time_never_ends() {
    let mut story = Story::new();
    token(story.acquire(Claim { ttl: Duration::MAX, ..claim(1, Mode::Exclusive) }));
    assert_eq!(story.engine.next_expiry(), None);
    assert_eq!(story.engine.apply(Command::Tick, Moment::MAX).events, []);
}
