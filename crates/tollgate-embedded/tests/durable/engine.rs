//! What answers depend on, and what a start finds.

use std::sync::mpsc::channel;

use tollgate_core::{Age, Party, PartyId, Token};
use tollgate_embedded::durable::{Committer, Durability, RedbStore, StoreError, Table, Write, start};
use tollgate_embedded::durable::{Started, Store};
use tollgate_engine::{Answer, Command, Event};

use crate::support::*;

const SYNC: Durability = Durability::Sync;
const GRACE: Durability = Durability::Grace;

fn revoke(lock: &str, token: Token, by_force: bool) -> Command<String> {
    Command::Revoke { name: name(lock), token, by_force }
}

#[test]
fn no_answer_leaves_before_its_batch() {
    let mut server = Server::new(SYNC);
    let first = server.acquire(claim("a", 1, secs(10)));
    let commit = first.after.expect("a grant is stored first");
    assert!(!server.engine.is_durable(&name("a"), owner(1)), "a grant that is not stored is not shown");
    assert_eq!(server.acquire(claim("a", 1, secs(10))).after, Some(commit), "nor is its repetition answered");
    let batch = server.engine.take_batch().unwrap();
    assert_eq!(server.acquire(claim("a", 1, secs(10))).after, Some(commit), "nor while it is being written");
    let second = server.acquire(claim("b", 2, secs(10)));
    assert!(second.after > Some(commit), "what comes meanwhile is for the next commit");
    assert!(server.engine.take_batch().is_none(), "one batch is written at a time");
    server.store.commit(&batch.writes()).unwrap();
    server.engine.committed(batch.commit());
    assert_eq!(server.acquire(claim("a", 1, secs(10))).after, None);
    assert!(
        server.engine.is_durable(&name("a"), owner(1)) && !server.engine.is_durable(&name("b"), owner(2))
    );
}

#[test]
fn busy_waiting_and_renewals_wait_for_no_disk() {
    let mut server = Server::new(SYNC);
    server.acquire(claim("a", 1, secs(10)));
    server.commit();
    assert_eq!(server.acquire(claim("a", 2, secs(10))).after, None);
    let busy = server.apply(Command::Acquire { claim: claim("a", 3, secs(10)), wait: false });
    assert!(matches!(
        busy,
        tollgate_embedded::durable::Applied { answer: Answer::Busy { .. }, after: None, .. }
    ));
    assert_eq!(server.extend("a", 1, secs(10)).after, None);
    assert!(server.engine.take_batch().is_none(), "none of it is stored");
    assert!(server.extend("a", 1, secs(11)).after.is_some(), "a longer lease is");
}

#[test]
fn a_hand_over_is_told_when_both_grants_are_stored() {
    let mut server = Server::new(SYNC);
    server.acquire(claim("a", 1, secs(10)));
    server.commit();
    server.acquire(claim("a", 2, secs(10)));
    let released = server.release("a", 1);
    let commit = released.after.expect("the next holder's grant depends on the release");
    let [(Event::Granted { .. }, after)] = &released.events[..] else { panic!("{released:?}") };
    assert_eq!(*after, Some(commit));
}

#[test]
fn a_release_is_answered_early_only_if_its_loss_costs_little() {
    let mut server = Server::new(SYNC);
    for (lock, ttl, is_early) in [("a", secs(60), true), ("b", secs(61), false)] {
        server.acquire(claim(lock, 1, ttl));
        server.commit();
        assert_eq!(server.release(lock, 1).after.is_none(), is_early, "{ttl:?}");
    }
    server.commit();
    let mut reader = claim("c", 1, secs(10));
    reader.mode = tollgate_core::Mode::Shared;
    server.acquire(reader.clone());
    server.acquire(tollgate_engine::Claim { owner: owner(2), ..reader });
    server.acquire(claim("c", 3, secs(10)));
    server.commit();
    assert!(server.release("c", 1).after.is_some(), "a writer waits");
}

#[test]
fn a_crash_forgets_no_stored_grant_and_every_lease_begins_again() {
    let mut server = Server::new(SYNC);
    let held = token(&server.acquire(claim("a", 1, secs(10))));
    server.commit();
    let lost = token(&server.acquire(claim("b", 2, secs(10))));
    let mut server = server.crash(SYNC);
    assert_eq!(server.wait, None);
    assert_eq!(server.tokens("a"), [held]);
    assert_eq!(server.tokens("b"), [], "an answer that never left was never given");
    server.pass(secs(9));
    assert_eq!(server.tokens("a"), [held], "the lease began again in full");
    assert!(matches!(server.extend("a", 1, secs(10)).answer, Answer::Extended { .. }));
    server.pass(secs(11));
    assert_eq!(server.tokens("a"), []);
    assert!(token(&server.acquire(claim("b", 3, secs(10)))) > lost.max(held));
}

#[test]
fn a_longer_lease_survives_a_crash_and_a_shorter_one_is_not_believed() {
    let mut server = Server::new(SYNC);
    server.acquire(claim("a", 1, secs(10)));
    server.extend("a", 1, secs(100));
    server.commit();
    server.extend("a", 1, secs(5));
    server.commit();
    let mut server = server.crash(SYNC);
    server.pass(secs(99));
    assert_eq!(server.tokens("a").len(), 1);
}

#[test]
fn tokens_rise_over_every_crash() {
    for durability in [SYNC, GRACE] {
        let mut server = Server::new(durability);
        let mut last = None;
        for round in 0..50 {
            server.engine.end_wait(server.now);
            for lock in 0..3 {
                let granted = server.acquire(claim(&format!("{round}/{lock}"), 1, secs(10)));
                // Only what is stored may be answered: those that a crash forgets may be given again.
                if round % 3 != 0 {
                    server.commit();
                }
                if granted.after.is_none() || round % 3 != 0 {
                    assert!(Some(token(&granted)) > last, "{durability:?}, round {round}");
                    last = Some(token(&granted));
                }
            }
            server = server.crash(durability);
        }
    }
}

#[test]
fn grace_waits_for_what_may_be_held() {
    let mut server = Server::new(GRACE);
    let first = server.acquire(claim("a", 1, secs(10)));
    assert!(first.after.is_some(), "the bound is raised before it is first exceeded");
    server.commit();
    let second = server.acquire(claim("b", 2, secs(10)));
    assert_eq!(second.after, None, "no commit for each grant");
    let mut delayed = claim("c", 3, secs(20));
    delayed.lock_delay = secs(30);
    assert!(server.acquire(delayed).after.is_some(), "a lock-delay counts, too");
    server.commit();
    let mut server = server.crash(GRACE);
    assert_eq!(server.wait, Some(secs(50)));
    assert_eq!(server.acquire(claim("d", 4, secs(10))).answer, Answer::NotGranting);
    // Another crash meanwhile waits as long again.
    let mut server = server.crash(GRACE);
    assert_eq!(server.wait, Some(secs(50)));
    server.pass(secs(50));
    server.engine.end_wait(server.now);
    assert!(token(&server.acquire(claim("b", 5, secs(10)))) > token(&second));
}

#[test]
fn the_bound_of_what_may_be_held_sinks() {
    let mut server = Server::new(GRACE);
    server.acquire(claim("long", 1, secs(200)));
    server.release("long", 1);
    for _ in 0..70 {
        server.pass(secs(10));
        server.acquire(claim("short", 2, secs(15)));
        server.commit();
    }
    let server = server.crash(GRACE);
    assert_eq!(server.wait, Some(secs(15)));
}

#[test]
fn the_bound_never_sinks_below_a_lease_that_is_renewed() {
    let mut server = Server::new(GRACE);
    server.acquire(claim("long", 1, secs(100)));
    for _ in 0..100 {
        server.pass(secs(33));
        assert!(matches!(server.extend("long", 1, secs(100)).answer, Answer::Extended { .. }));
        server.acquire(claim("short", 2, secs(1)));
        server.commit();
        let store = server.store.rows.lock().unwrap().clone();
        let copy = MemoryStore { rows: std::sync::Arc::new(store.into()), ..MemoryStore::default() };
        assert_eq!(Server::start(copy, &options(GRACE)).wait, Some(secs(100)));
    }
}

#[test]
fn a_clean_stop_of_grace_keeps_every_grant_once() {
    let mut server = Server::new(GRACE);
    let held = token(&server.acquire(claim("a", 1, secs(10))));
    server.commit();
    let server = server.stop_and_start(GRACE);
    assert_eq!((server.wait, server.tokens("a")), (None, vec![held]));
    // The mark of the clean stop was removed before anything was granted.
    let server = server.crash(GRACE);
    assert_eq!((server.wait, server.tokens("a")), (Some(secs(10)), vec![]));
    // A stop during the wait is no clean one.
    let server = server.stop_and_start(GRACE);
    assert_eq!(server.wait, Some(secs(10)));
}

#[test]
fn the_durability_can_be_changed() {
    let mut server = Server::new(SYNC);
    let held = token(&server.acquire(claim("a", 1, secs(10))));
    server.commit();
    let server = server.crash(GRACE);
    assert_eq!((server.wait, server.tokens("a")), (None, vec![held]));
    let mut server = server.crash(SYNC);
    assert_eq!((server.wait, server.tokens("a")), (Some(secs(10)), vec![]), "grace had no row of it");
    server.pass(secs(10));
    server.engine.end_wait(server.now);
    let next = token(&server.acquire(claim("a", 2, secs(10))));
    server.commit();
    let server = server.crash(SYNC);
    assert_eq!((server.wait, server.tokens("a")), (None, vec![next]));
}

#[test]
fn a_start_commits_before_it_grants() {
    let mut server = Server::new(SYNC);
    server.acquire(claim("a", 1, secs(10)));
    server.commit();
    for durability in [SYNC, GRACE, SYNC] {
        let before = *server.store.commits.lock().unwrap();
        server = server.crash(durability);
        assert_eq!(*server.store.commits.lock().unwrap(), before + 1);
    }
    let mut store = server.store.clone();
    *store.is_broken.lock().unwrap() = true;
    assert!(matches!(start::<String>(&mut store, &options(SYNC)), Err(StoreError::Io { .. })));
}

#[test]
fn a_broken_lock_stays_broken_and_a_revoked_one_stays_revoked() {
    let mut server = Server::new(SYNC);
    let asked = token(&server.acquire(claim("asked", 1, secs(10))));
    let forced = token(&server.acquire(claim("forced", 1, secs(10))));
    server.commit();
    assert!(server.apply(revoke("asked", asked, false)).after.is_some());
    let applied = server.apply(revoke("forced", forced, true));
    assert!(applied.after.is_some() && applied.events.iter().all(|(_, after)| after.is_some()));
    server.commit();
    let mut server = server.crash(SYNC);
    assert_eq!(server.tokens("forced"), []);
    assert_eq!(server.tokens("asked"), [asked]);
    assert_eq!(server.extend("asked", 1, secs(10)).answer, Answer::AskedToLeave);
}

#[test]
fn a_lock_delay_survives_a_crash() {
    let mut server = Server::new(SYNC);
    let mut delayed = claim("a", 1, secs(10));
    delayed.lock_delay = secs(30);
    server.acquire(delayed);
    server.commit();
    server.pass(secs(11));
    server.commit();
    let mut server = server.crash(SYNC);
    assert!(matches!(server.acquire(claim("a", 2, secs(10))).answer, Answer::Queued { .. }));
    server.pass(secs(28));
    assert_eq!(server.tokens("a"), []);
    server.pass(secs(2));
    assert_eq!(server.tokens("a").len(), 1, "the lock-delay began again at most");
    server.commit();
    let rows = server.store.rows.lock().unwrap();
    assert!(!rows.keys().any(|(table, _)| *table == Table::Delays), "and its row is gone");
}

#[test]
fn a_grant_that_expired_and_is_taken_again_in_one_step_is_stored() {
    let mut server = Server::new(SYNC);
    let first = token(&server.acquire(claim("a", 1, secs(10))));
    server.commit();
    server.now = server.now + secs(11);
    let again = server.acquire(claim("a", 1, secs(10)));
    assert!(token(&again) > first && again.after.is_some());
    server.commit();
    assert_eq!(server.crash(SYNC).tokens("a"), [token(&again)]);
}

#[test]
fn parties_keep_the_order_of_their_ages() {
    let mut server = Server::new(SYNC);
    let mut ages = Vec::<Age>::new();
    for number in 0..6 {
        let mut claim = claim(&format!("{number}"), 1, secs(10));
        claim.party = Some(Party { id: PartyId::from_bits(number), age: None });
        let applied = server.acquire(claim);
        let Answer::Granted(granted) = applied.answer else { panic!("{applied:?}") };
        ages.push(granted.age.unwrap());
        server.commit();
        server.pass(secs(1));
        if number % 2 == 1 {
            server = server.crash(SYNC);
        }
    }
    assert!(ages.is_sorted() && ages[0] < ages[5], "{ages:?}");
}

#[test]
fn marks_never_fall() {
    let number = |n| Token::new(n).unwrap();
    for durability in [SYNC, GRACE] {
        let mut server = Server::new(durability);
        let (mark, after) = server.engine.admit("r", number(7), true).unwrap();
        assert_eq!(mark, number(7));
        assert_eq!(
            server.engine.admit("r", number(7), true),
            Ok((mark, after)),
            "equal passes, when it is stored"
        );
        assert!(after.is_some());
        server.commit();
        assert_eq!(server.engine.admit("r", number(7), true), Ok((mark, None)));
        let mut server = server.crash(durability);
        assert_eq!(server.engine.admit("r", number(6), true), Err(number(7)));
        assert_eq!(
            server.engine.admit("r", number(9), false),
            Ok((number(7), None)),
            "a reader raises nothing"
        );
        assert!(server.engine.admit("r", number(8), true).is_ok());
    }
}

#[test]
fn a_restored_backup_waits_and_goes_on_above_the_floor() {
    let floor = Token::new(1 << 40).unwrap();
    let mut server = Server::new(SYNC);
    server.acquire(claim("a", 1, secs(10)));
    server.engine.admit("r", Token::MIN, true).unwrap();
    server.commit();
    let options = tollgate_embedded::durable::Options { token_floor: Some(floor), ..options(SYNC) };
    let mut server = Server::start(server.store, &options);
    assert_eq!(server.wait, Some(secs(300)), "as long as any grant may last");
    assert_eq!(server.tokens("a"), [], "the backup's holders may have lost their locks long ago");
    assert!(matches!(server.extend("a", 1, secs(10)).answer, Answer::NotFound));
    assert_eq!(server.engine.admit("r", Token::MIN, true), Err(floor));
    assert_eq!(server.engine.admit("new", Token::MIN, true), Err(floor));
    server.pass(secs(300));
    server.engine.end_wait(server.now);
    let held = token(&server.acquire(claim("a", 2, secs(10))));
    assert!(held > floor);
    server.commit();
    // The same option again, as a service's configuration has it, changes nothing.
    let server = Server::start(server.store, &options);
    assert_eq!((server.wait, server.tokens("a")), (None, vec![held]));
}

#[test]
fn what_was_not_written_here_is_refused_with_what_to_do() {
    let mut server = Server::new(SYNC);
    server.acquire(claim("a", 1, secs(10)));
    server.commit();
    let rows = server.store.rows.lock().unwrap().clone();
    let refuse = |change: &dyn Fn(&mut Rows)| {
        let mut rows = rows.clone();
        change(&mut rows);
        let mut store = MemoryStore { rows: std::sync::Arc::new(rows.into()), ..MemoryStore::default() };
        start::<String>(&mut store, &options(SYNC)).err().expect("it is refused").to_string()
    };
    let header = (Table::Header, Vec::new());
    let newer = refuse(&|rows| {
        rows.insert(header.clone(), br#"{"version":2,"whatever":true}"#.to_vec());
    });
    assert!(newer.contains("format 2") && newer.contains("newer tollgate"), "{newer}");
    let grant = rows.keys().find(|(table, _)| *table == Table::Grants).unwrap();
    for message in [
        refuse(&|rows| drop(rows.remove(&header))),
        refuse(&|rows| drop(rows.insert(header.clone(), b"{".to_vec()))),
        refuse(&|rows| drop(rows.insert(grant.clone(), b"{}".to_vec()))),
        refuse(&|rows| drop(rows.insert((Table::Grants, b"short".to_vec()), b"{}".to_vec()))),
        refuse(&|rows| drop(rows.insert((Table::Delays, b"name".to_vec()), b"1234".to_vec()))),
        refuse(&|rows| drop(rows.insert((Table::Marks, b"name".to_vec()), vec![0; 8]))),
        refuse(&|rows| {
            // A second exclusive holder of the same lock.
            let mut key = owner(99).to_bits().to_be_bytes().to_vec();
            key.extend_from_slice(&grant.1[16..]);
            rows.insert((Table::Grants, key), rows[grant].clone());
        }),
    ] {
        assert!(message.contains("memory is damaged") && message.contains("--token-floor"), "{message}");
    }
}

#[test]
fn a_failed_commit_is_final() {
    let mut server = Server::new(SYNC);
    let (sender, done) = channel();
    let committer = Committer::start(server.store.clone(), move |result| drop(sender.send(result))).unwrap();
    server.acquire(claim("a", 1, secs(10)));
    let batch = server.engine.take_batch().unwrap();
    assert!(committer.commit(batch.clone()));
    assert_eq!(done.recv().unwrap().unwrap(), batch.commit());
    server.engine.committed(batch.commit());
    *server.store.is_broken.lock().unwrap() = true;
    server.acquire(claim("b", 1, secs(10)));
    let batch = server.engine.take_batch().unwrap();
    committer.commit(batch.clone());
    assert!(matches!(done.recv().unwrap(), Err(StoreError::Io { .. })));
    // The disk works again, and that changes nothing: what it has is unknown.
    *server.store.is_broken.lock().unwrap() = false;
    committer.commit(batch);
    assert!(done.recv().is_err(), "nothing is committed after a failure");
}

#[test]
fn a_file_is_opened_once_and_keeps_what_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.redb");
    let mut store = RedbStore::open(&file).unwrap();
    let second = RedbStore::open(&file).err().unwrap();
    assert!(matches!(&second, StoreError::InUse(_)), "{second}");
    let write = |value: Option<&[u8]>| Write {
        table: Table::Marks,
        key: b"key".to_vec(),
        value: value.map(<[u8]>::to_vec),
    };
    store.commit(&[write(Some(b"one"))]).unwrap();
    drop(store);
    let mut store = RedbStore::open(&file).unwrap();
    assert_eq!(store.load().unwrap()[0].value, b"one");
    store.commit(&[write(None)]).unwrap();
    assert_eq!(store.load().unwrap(), []);
    drop(store);
    std::fs::write(&file, b"this is no store").unwrap();
    let damaged = RedbStore::open(&file).err().unwrap().to_string();
    assert!(damaged.contains("locks.redb") && damaged.contains("damaged"), "{damaged}");
    let Started::<String> { .. } =
        start(&mut RedbStore::open(&folder.path().join("new")).unwrap(), &options(SYNC)).unwrap();
}
