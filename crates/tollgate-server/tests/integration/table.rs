//! The lock table with its clients: which request gets which answer, and when.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Details, LockName, Mode, Moment, OnDeadlock, OwnerId, Token};
use tollgate_embedded::durable::{Durability, Options, Row, Store, StoreError, Write, start};
use tollgate_server::table::{Acquire, Answer, Granted, Key, Request, Source, Table, Told};

/// A disk that is always there, and forgets.
struct NoDisk;

impl Store for NoDisk {
    fn load(&mut self) -> Result<Vec<Row>, StoreError> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: &[Write]) -> Result<(), StoreError> {
        Ok(())
    }

    fn file(&self) -> &Path {
        Path::new("nowhere")
    }
}

struct Server {
    table: Table,
    now: Moment,
    requests: u64,
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(lock: &str, owner: u128) -> Key {
    Key { name: LockName::new(lock).unwrap(), owner: OwnerId::from_bits(owner) }
}

fn acquire(lock: &str, owner: u128) -> Acquire {
    Acquire {
        key: key(lock, owner),
        mode: Mode::Exclusive,
        ttl: secs(30),
        wait: secs(60),
        round: secs(10),
        can_return: true,
        is_part: false,
        hears_of_queue: false,
        lock_delay: Duration::ZERO,
        party: None,
        on_deadlock: OnDeadlock::Timeout,
        details: Arc::new(Details::default()),
    }
}

impl Server {
    fn new(durability: Durability) -> Self {
        let options = Options { durability, token_floor: None, longest: secs(300) };
        let started = start(&mut NoDisk, &options).unwrap();
        let now = started.engine.now();
        Self { table: Table::new(started.engine), now, requests: 0 }
    }

    /// Sends a request over a connection.
    fn send(&mut self, connection: u64, request: Request) -> Source {
        self.requests += 1;
        let source = Source { connection, request: self.requests };
        self.table.request(source, request, self.now);
        source
    }

    fn acquire(&mut self, connection: u64, acquire: Acquire) -> Source {
        self.send(connection, Request::Acquire(acquire))
    }

    /// Has the disk take everything.
    fn commit(&mut self) {
        while let Some(batch) = self.table.take_batch() {
            self.table.committed(batch.commit(), self.now);
        }
    }

    /// Lets time pass, tick by tick.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.table.next_due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.table.tick(self.now);
        }
        self.now = end;
        self.table.tick(end);
    }

    /// What has been answered since the last call, after everything is stored.
    fn answers(&mut self) -> Vec<(Source, Answer)> {
        self.commit();
        self.table.take_answers()
    }

    /// The one answer, which goes to `source`.
    fn answer_to(&mut self, source: Source) -> Answer {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        let (to, answer) = answers.remove(0);
        assert_eq!(to, source);
        answer
    }

    fn granted(&mut self, source: Source) -> Granted {
        match self.answer_to(source) {
            Answer::Granted(granted) => granted,
            other => panic!("not granted: {other:?}"),
        }
    }
}

#[test]
fn a_grant_is_answered_when_it_is_stored() {
    let mut server = Server::new(Durability::Sync);
    let source = server.acquire(1, acquire("a", 1));
    assert_eq!(server.table.take_answers(), []);
    let batch = server.table.take_batch().unwrap();
    assert_eq!(server.table.take_answers(), [], "not while it is being written");
    server.table.committed(batch.commit(), server.now);
    let granted = server.granted(source);
    assert_eq!(granted.valid, secs(30) - secs(30) / 50 - Duration::from_millis(5));
}

#[test]
fn a_client_is_told_what_is_left_from_its_own_request_on() {
    let mut server = Server::new(Durability::Sync);
    let first = server.acquire(1, acquire("a", 1));
    server.granted(first);
    let second = server.acquire(2, acquire("a", 2));
    server.pass(secs(4));
    server.send(1, Request::Release(key("a", 1)));
    let answers = server.answers();
    let granted = answers.iter().find_map(|(source, answer)| match answer {
        Answer::Granted(granted) if *source == second => Some(granted.clone()),
        _ => None,
    });
    // It waited for 4 s, and the lease began then.
    assert_eq!(granted.unwrap().valid, secs(34) - secs(34) / 50 - Duration::from_millis(5));
    server.pass(secs(10));
    let again = server.acquire(3, acquire("a", 2));
    let again = server.granted(again);
    assert!(again.again);
    assert_eq!(
        again.valid,
        secs(20) - secs(20) / 50 - Duration::from_millis(5),
        "a repetition renews nothing"
    );
}

#[test]
fn a_round_ends_and_the_place_is_kept() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let first = server.acquire(2, acquire("a", 2));
    let second = server.acquire(3, acquire("a", 3));
    server.pass(secs(10));
    let mut answers = server.answers();
    answers.sort_by_key(|(source, _)| *source);
    assert_eq!(answers, [(first, Answer::Waiting { ahead: 1 }), (second, Answer::Waiting { ahead: 2 })]);
    server.pass(secs(9));
    let first = server.acquire(2, acquire("a", 2));
    // The other one does not come back: it loses its place after 10 s.
    server.pass(secs(2));
    let third = server.acquire(4, acquire("a", 4));
    server.send(1, Request::Release(key("a", 1)));
    assert!(
        server
            .answers()
            .iter()
            .any(|(source, answer)| *source == first && matches!(answer, Answer::Granted(_)))
    );
    server.send(2, Request::Release(key("a", 2)));
    assert!(
        server
            .answers()
            .iter()
            .any(|(source, answer)| *source == third && matches!(answer, Answer::Granted(_)))
    );
    assert_eq!(server.table.open_claims(), 0);
}

#[test]
fn a_wait_that_is_over_leaves_nothing_behind() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let waiter = server.acquire(2, Acquire { wait: secs(5), ..acquire("a", 2) });
    server.pass(secs(5));
    assert!(matches!(server.answer_to(waiter), Answer::Busy { ahead: 1, .. }));
    let without = server.acquire(2, Acquire { wait: Duration::ZERO, ..acquire("a", 3) });
    assert!(matches!(server.answer_to(without), Answer::Busy { .. }));
    assert_eq!(server.table.open_claims(), 0);
    assert!(server.table.inspect(&key("a", 1).name).unwrap().waiters.is_empty());
}

#[test]
fn a_repeated_acquire_displaces_the_request_before() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let before = server.acquire(2, acquire("a", 2));
    let after = server.acquire(3, acquire("a", 2));
    assert_eq!(server.answer_to(before), Answer::Moved);
    server.table.close(2, server.now);
    server.pass(secs(5));
    server.send(1, Request::Release(key("a", 1)));
    let answers = server.answers();
    assert!(
        answers.iter().any(|(source, answer)| *source == after && matches!(answer, Answer::Granted(_))),
        "{answers:?}"
    );
    let other_mode = server.acquire(2, acquire("b", 9));
    server.granted(other_mode);
    server.acquire(2, acquire("b", 10));
    let mismatch = server.acquire(2, Acquire { mode: Mode::Shared, ..acquire("b", 10) });
    assert_eq!(server.answer_to(mismatch), Answer::Mismatch);
}

#[test]
fn a_grant_whose_answer_waits_for_the_disk_goes_to_the_latest_request() {
    let mut server = Server::new(Durability::Sync);
    let before = server.acquire(1, acquire("a", 1));
    let after = server.acquire(2, acquire("a", 1));
    let answers = server.answers();
    assert_eq!(answers[0], (before, Answer::Moved));
    assert!(matches!(&answers[1], (source, Answer::Granted(_)) if *source == after));
    assert_eq!(answers.len(), 2);
}

#[test]
fn a_client_that_cannot_return_leaves_nothing_behind() {
    let mut server = Server::new(Durability::Sync);
    let anonymous = |owner| Acquire { can_return: false, ..acquire("a", owner) };
    // Once before its grant is stored, once while it waits.
    server.acquire(1, anonymous(1));
    server.table.close(1, server.now);
    let holder = server.acquire(2, acquire("a", 2));
    server.granted(holder);
    server.acquire(3, anonymous(3));
    server.table.close(3, server.now);
    assert_eq!(server.table.open_claims(), 0);
    let view = server.table.inspect(&key("a", 2).name).unwrap();
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
}

#[test]
fn a_grant_that_is_not_fetched_lasts_as_long_as_its_place() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    server.acquire(2, acquire("a", 2));
    server.table.close(2, server.now);
    server.pass(secs(4));
    server.send(1, Request::Release(key("a", 1)));
    server.answers();
    let next = server.acquire(3, Acquire { round: secs(50), ..acquire("a", 3) });
    server.pass(secs(5));
    assert_eq!(server.answers(), []);
    server.pass(secs(2));
    server.granted(next);
    let late = server.acquire(2, acquire("a", 2));
    assert_eq!(server.answers(), [], "its client comes too late, and waits at the end of the queue");
    server.send(3, Request::Release(key("a", 3)));
    let answers = server.answers();
    assert!(answers.iter().any(|(to, answer)| *to == late && matches!(answer, Answer::Granted(_))));
}

#[test]
fn a_client_that_hears_of_the_queue_is_told_at_once_that_it_waits() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let hears = |owner| Acquire { hears_of_queue: true, ..acquire("a", owner) };
    let waiter = server.acquire(2, hears(2));
    assert_eq!(server.answer_to(waiter), Answer::Queued { ahead: 1, age: None });
    let again = server.acquire(3, hears(2));
    assert_eq!(server.answers(), [(waiter, Answer::Moved), (again, Answer::Queued { ahead: 1, age: None })]);
    server.send(1, Request::Release(key("a", 1)));
    assert!(server.answers().iter().any(|(to, answer)| *to == again && matches!(answer, Answer::Granted(_))));
}

#[test]
fn a_holder_is_told_of_a_break_and_nothing_is_told_after_the_end() {
    for by_force in [false, true] {
        let mut server = Server::new(Durability::Sync);
        let holder = server.acquire(1, acquire("a", 1));
        let token = server.granted(holder).token;
        server.send(2, Request::Break { name: key("a", 1).name, token, by_force });
        server.send(1, Request::Release(key("a", 1)));
        server.answers();
        let owner = OwnerId::from_bits(1);
        assert_eq!(server.table.take_told(), [Told::Revoked(owner), Told::Over(owner)]);
    }
}

#[test]
fn details_of_a_smaller_revision_replace_nothing() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let named = |host: &str, revision| {
        Some(Arc::new(Details { host: host.to_owned(), revision, ..Details::default() }))
    };
    for (host, revision, shown) in [("new", 2, "new"), ("old", 1, "new"), ("newer", 3, "newer")] {
        let details = named(host, revision);
        let extend = server.send(1, Request::Extend { key: key("a", 1), ttl: secs(30), details });
        server.granted(extend);
        let view = server.table.inspect(&key("a", 1).name).unwrap();
        assert_eq!(view.holders[0].details.host, shown);
    }
}

#[test]
fn a_grant_that_is_fetched_in_time_lasts_in_full() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    server.acquire(2, acquire("a", 2));
    server.table.close(2, server.now);
    server.send(1, Request::Release(key("a", 1)));
    server.answers();
    server.pass(secs(6));
    let fetched = server.acquire(4, acquire("a", 2));
    let granted = server.granted(fetched);
    assert_eq!(granted.valid, secs(30) - secs(30) / 50 - Duration::from_millis(5));
    server.pass(secs(29));
    assert_eq!(server.table.inspect(&key("a", 2).name).unwrap().holders.len(), 1);
}

#[test]
fn a_late_acquire_of_a_withdrawn_claim_is_refused() {
    let mut server = Server::new(Durability::Sync);
    let withdrawn = server.send(1, Request::Withdraw(key("a", 1)));
    assert_eq!(server.answer_to(withdrawn), Answer::Withdrawn);
    let late = server.acquire(2, acquire("a", 1));
    assert_eq!(server.answer_to(late), Answer::Lost);
    server.pass(secs(61));
    let fresh = server.acquire(2, acquire("a", 1));
    server.granted(fresh);
}

#[test]
fn a_withdrawal_ends_a_claim_in_any_state() {
    let mut server = Server::new(Durability::Sync);
    // Granted, and not yet answered.
    let first = server.acquire(1, acquire("a", 1));
    server.send(9, Request::Withdraw(key("a", 1)));
    let answers = server.answers();
    assert!(answers.contains(&(first, Answer::Lost)), "{answers:?}");
    assert!(!answers.iter().any(|(_, answer)| matches!(answer, Answer::Granted(_))));
    // Granted and answered; then waiting.
    let holder = server.acquire(1, acquire("a", 2));
    server.granted(holder);
    let waiter = server.acquire(2, acquire("a", 3));
    server.send(9, Request::Withdraw(key("a", 3)));
    assert!(server.answers().contains(&(waiter, Answer::Lost)));
    server.send(9, Request::Withdraw(key("a", 2)));
    server.answers();
    assert!(server.table.inspect(&key("a", 1).name).is_none());
}

#[test]
fn a_repeated_release_is_told_from_one_of_a_lost_lock() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    for again in [false, true] {
        let released = server.send(1, Request::Release(key("a", 1)));
        assert_eq!(server.answer_to(released), Answer::Released { again });
    }
    let holder = server.acquire(1, acquire("b", 2));
    server.granted(holder);
    server.pass(secs(31));
    let lost = server.send(1, Request::Release(key("b", 2)));
    assert_eq!(server.answer_to(lost), Answer::Lost);
    let never = server.send(1, Request::Release(key("c", 3)));
    assert_eq!(server.answer_to(never), Answer::Lost);
}

#[test]
fn a_broken_lock_is_not_extended() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    let token = server.granted(holder).token;
    let name = key("a", 1).name;
    let asked = server.send(2, Request::Break { name: name.clone(), token, by_force: false });
    assert_eq!(server.answer_to(asked), Answer::Asked);
    let extended = server.send(1, Request::Extend { key: key("a", 1), ttl: secs(30), details: None });
    assert_eq!(server.answer_to(extended), Answer::Revoked);
    let broken = server.send(2, Request::Break { name: name.clone(), token, by_force: true });
    assert_eq!(server.answer_to(broken), Answer::Broken);
    let extended = server.send(1, Request::Extend { key: key("a", 1), ttl: secs(30), details: None });
    assert_eq!(server.answer_to(extended), Answer::Lost);
    let again = server.send(2, Request::Break { name, token, by_force: true });
    assert_eq!(server.answer_to(again), Answer::Lost);
}

#[test]
fn a_stale_token_is_refused_with_the_mark() {
    let mut server = Server::new(Durability::Grace);
    let admit =
        |token| Request::Admit { resource: "r".to_owned(), token: Token::new(token).unwrap(), raises: true };
    let admitted = server.send(1, admit(7));
    assert_eq!(server.table.take_answers(), [], "a mark is told when it is stored");
    assert_eq!(server.answer_to(admitted), Answer::Admitted { mark: Token::new(7).unwrap() });
    let stale = server.send(1, admit(6));
    assert_eq!(server.answer_to(stale), Answer::Stale { mark: Token::new(7).unwrap() });
}

#[test]
fn a_server_that_stops_tells_those_who_wait_and_keeps_every_grant() {
    let mut server = Server::new(Durability::Grace);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let waiter = server.acquire(2, acquire("a", 2));
    server.table.stop(server.now);
    assert_eq!(server.answer_to(waiter), Answer::NotGranting);
    let late = server.acquire(3, acquire("b", 3));
    assert_eq!(server.answer_to(late), Answer::NotGranting);
    assert_eq!(server.table.inspect(&key("a", 1).name).unwrap().holders.len(), 1);
}

/// The simulator found two holders: an extend for 3 s arrived after a later one for 9 s, and shortened the lease.
#[test]
fn a_late_extend_takes_nothing_away() {
    let mut server = Server::new(Durability::Sync);
    let holder = server.acquire(1, acquire("a", 1));
    server.granted(holder);
    let late = server.send(2, Request::Extend { key: key("a", 1), ttl: secs(3), details: None });
    assert_eq!(server.granted(late).valid, secs(30) - secs(30) / 50 - Duration::from_millis(5));
    server.pass(secs(29));
    assert_eq!(server.table.inspect(&key("a", 1).name).unwrap().holders.len(), 1);
}

/// The simulator found two holders: a late copy of an acquire came while the lease was being stored, its connection closed, and
/// the lease was cut to what a claim without a client has.
#[test]
fn a_late_repeat_of_an_answered_acquire_changes_nothing() {
    for can_return in [true, false] {
        let mut server = Server::new(Durability::Sync);
        let holder = server.acquire(1, acquire("a", 1));
        server.granted(holder);
        let longer = server.send(1, Request::Extend { key: key("a", 1), ttl: secs(60), details: None });
        server.acquire(2, Acquire { can_return, ..acquire("a", 1) });
        server.table.close(2, server.now);
        server.granted(longer);
        server.pass(secs(59));
        assert_eq!(server.table.inspect(&key("a", 1).name).unwrap().holders.len(), 1);
        assert_eq!(server.table.open_claims(), 0);
    }
}

/// A reader behind a waiting writer: the simulator found that it was granted while the writer was told to go.
#[test]
fn a_server_that_stops_grants_nothing_to_those_behind_a_waiter() {
    let mut server = Server::new(Durability::Grace);
    let reader = |owner| Acquire { mode: Mode::Shared, ..acquire("a", owner) };
    let holder = server.acquire(1, reader(9));
    server.granted(holder);
    let writer = server.acquire(2, acquire("a", 1));
    let behind = server.acquire(3, reader(2));
    server.table.stop(server.now);
    let mut answers = server.answers();
    answers.sort_by_key(|(source, _)| *source);
    assert_eq!(answers, [(writer, Answer::NotGranting), (behind, Answer::NotGranting)]);
    assert_eq!(server.table.inspect(&key("a", 1).name).unwrap().holders.len(), 1);
}

/// Random clients, connections that close and a disk that takes its time.
#[test]
fn no_request_is_answered_twice_and_none_is_forgotten() {
    for seed in 0..200_u64 {
        let mut state = seed;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % limit
        };
        let mut server = Server::new(Durability::Sync);
        let mut open = std::collections::BTreeSet::new();
        for _ in 0..300 {
            let (connection, owner) = (random(4), u128::from(random(12)));
            let lock = random(2).to_string();
            match random(10) {
                0..=3 => {
                    let wait = secs(random(3) * 7);
                    let claim = Acquire { wait, can_return: random(3) > 0, ..acquire(&lock, owner) };
                    open.insert(server.acquire(connection, claim));
                }
                4 => drop(open.insert(server.send(connection, Request::Release(key(&lock, owner))))),
                5 if random(3) == 0 => {
                    open.insert(server.send(connection, Request::Withdraw(key(&lock, owner))));
                }
                6 => {
                    server.table.close(connection, server.now);
                    open.retain(|source: &Source| source.connection != connection);
                }
                7 => server.pass(secs(random(4))),
                _ => server.commit(),
            }
            for (source, _) in server.table.take_answers() {
                assert!(open.remove(&source), "seed {seed}: {source:?} is answered though nothing was asked");
            }
        }
        // Every wait ends, and every lease.
        server.pass(secs(120));
        for (source, _) in server.answers() {
            assert!(open.remove(&source), "seed {seed}: {source:?} is answered twice");
        }
        assert!(open.is_empty(), "seed {seed}: {open:?} were never answered");
        assert_eq!(server.table.open_claims(), 0, "seed {seed}");
    }
}
