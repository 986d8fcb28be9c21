//! Every state of the disk that a crash may leave: each prefix of what was written, and each subset of what was not synced.

use std::collections::BTreeMap;

use tollgate_core::Token;
use tollgate_embedded::durable::{Durability, RedbStore, Started, StoreError, start};

use crate::disk::{Disk, Image, Step};
use crate::support::*;

/// The tokens of the holders of each lock.
type Held = BTreeMap<String, Token>;

/// A run on a disk, with what had been answered by when.
struct Recorded {
    steps: Vec<Step>,
    /// After so many steps, a commit had returned, and these grants were held.
    answered: Vec<(usize, Held)>,
}

const LOCKS: usize = 4;

fn held<S: tollgate_embedded::durable::Store>(server: &Server<S>) -> Held {
    (0..LOCKS)
        .filter_map(|lock| {
            let lock = lock.to_string();
            server.tokens(&lock).first().map(|token| (lock, *token))
        })
        .collect()
}

/// The file after a clean stop, and what was held.
fn stopped() -> (Vec<Step>, Held) {
    let disk = Disk::default();
    let mut server = Server::start(RedbStore::on(disk.clone()).unwrap(), &options(Durability::Sync));
    for step in 0..6_usize {
        server.acquire(claim(&(step % LOCKS).to_string(), step as u128, secs(100)));
        server.commit();
    }
    let held = held(&server);
    server.engine.stop(server.now);
    server.commit();
    drop(server);
    (disk.steps(), held)
}

/// Grants, releases and hand-overs, each committed before the next.
fn record() -> Recorded {
    let disk = Disk::default();
    let mut answered = vec![(0, Held::new())];
    let mut server = Server::start(RedbStore::on(disk.clone()).unwrap(), &options(Durability::Sync));
    answered.push((disk.steps().len(), Held::new()));
    for step in 0..10_usize {
        let lock = (step % LOCKS).to_string();
        let number = step as u128;
        if step >= LOCKS {
            server.release(&lock, number - LOCKS as u128);
        }
        server.acquire(claim(&lock, number, secs(100)));
        server.commit();
        answered.push((disk.steps().len(), held(&server)));
    }
    Recorded { steps: disk.steps(), answered }
}

/// Starts on an image; what is held, or that the store is refused.
fn recover(image: Image) -> Result<Held, StoreError> {
    let mut store = RedbStore::on(Disk::with(image))?;
    let Started { engine, wait } = start::<String>(&mut store, &options(Durability::Sync))?;
    assert_eq!(wait, None);
    let now = engine.now();
    Ok(held(&Server { engine, wait, store, now }))
}

/// The steps up to the last sync, and those after it.
fn split_at_sync(steps: &[Step]) -> (&[Step], &[Step]) {
    let synced = steps.iter().rposition(|step| matches!(step, Step::Sync)).map_or(0, |at| at + 1);
    steps.split_at(synced)
}

/// Which of `count` unsynced writes reach the disk: every subset, or as many as there is time for.
fn subsets(count: usize, seed: u64) -> Vec<Vec<bool>> {
    let limit: u64 = if std::env::var_os("TOLLGATE_SOAK").is_some() { 1 << 14 } else { 24 };
    let bits = |pattern: u64| (0..count).map(|bit| pattern >> (bit % 64) & 1 == 1).collect();
    if count < 14 && (1 << count) <= limit {
        return (0..1 << count).map(bits).collect();
    }
    // All, none, each missing alone, and random ones.
    let mut patterns = vec![u64::MAX, 0];
    patterns.extend((0..count.min(64)).map(|bit| !(1 << bit)));
    let mut state = seed;
    while (patterns.len() as u64) < limit {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        patterns.push(state ^ (state >> 29));
    }
    patterns.into_iter().map(bits).collect()
}

#[test]
fn every_crash_state_keeps_what_was_answered() {
    let recorded = record();
    let mut states = 0;
    for end in 0..=recorded.steps.len() {
        let (durable, unsynced) = split_at_sync(&recorded.steps[..end]);
        let mut synced = Image::default();
        durable.iter().for_each(|step| synced.apply(step));
        let answered = recorded.answered.iter().rposition(|(steps, _)| *steps <= end).unwrap();
        let (_, before) = &recorded.answered[answered];
        // What comes next may have reached the disk, as a whole.
        let after = recorded.answered.get(answered + 1).map_or(before, |(_, held)| held);
        for subset in subsets(unsynced.len(), end as u64) {
            let mut image = synced.clone();
            let written = unsynced.iter().zip(&subset).filter(|(_, is_written)| **is_written);
            written.for_each(|(step, _)| image.apply(step));
            states += 1;
            match recover(image) {
                Ok(found) => assert!(
                    found == *before || found == *after,
                    "{end} steps, {subset:?}: {found:?} is neither {before:?} nor {after:?}"
                ),
                // A file whose creation was cut off holds nothing that was answered.
                Err(error) => assert!(answered == 0, "{end} steps, {subset:?}: {error}"),
            }
        }
    }
    println!("{} steps, {states} states of the disk", recorded.steps.len());
    assert!(states > 300, "only {states} states");
}

#[test]
fn a_disk_that_fails_at_any_call_loses_no_answered_grant() {
    for fails_after in 0..60 {
        let disk = Disk::default();
        let mut server = Server::start(RedbStore::on(disk.clone()).unwrap(), &options(Durability::Sync));
        disk.fail_after(fails_after);
        let mut answered = Held::new();
        for step in 0..8_usize {
            let lock = (step % LOCKS).to_string();
            if step >= LOCKS {
                server.release(&lock, step as u128 - LOCKS as u128);
            }
            server.acquire(claim(&lock, step as u128, secs(100)));
            let batch = server.engine.take_batch().unwrap();
            if tollgate_embedded::durable::Store::commit(&mut server.store, &batch.writes()).is_err() {
                break;
            }
            server.engine.committed(batch.commit());
            answered = held(&server);
        }
        // The written pages survive, as after a crash of the process.
        let next = held(&server);
        let found = recover(disk.image()).unwrap();
        assert!(found == answered || found == next, "{fails_after}: {found:?}, {answered:?}, {next:?}");
    }
}

#[test]
fn after_a_clean_stop_a_flipped_bit_is_found_or_changes_nothing() {
    let (steps, answered) = stopped();
    let mut image = Image::default();
    steps.iter().for_each(|step| image.apply(step));
    let (mut refused, mut harmless) = (0, 0);
    let touched: Vec<(u64, usize)> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Write { offset, data } => Some((*offset, data.len())),
            _ => None,
        })
        .collect();
    for (number, (offset, length)) in touched.iter().enumerate() {
        // Every byte of the file's header, which says where the last commit is; samples of everything else.
        let samples = if *offset == 0 { 512 } else { 8 };
        for sample in 0..samples.min(*length) {
            let at = *offset as usize + (number * 31 + sample * length / samples) % length;
            if at >= image.0.len() {
                continue;
            }
            let mut image = image.clone();
            image.0[at] ^= 1 << (sample % 8);
            // redb panics on some damage; a server that dies grants nothing.
            match std::panic::catch_unwind(|| recover(image)) {
                Ok(Ok(found)) => {
                    assert_eq!(found, answered, "a bit at {at} changed what is held");
                    harmless += 1;
                }
                Ok(Err(_)) | Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {harmless} harmless");
    assert!(refused > 0, "no flipped bit was found");
}

#[test]
fn a_file_that_is_cut_off_is_refused() {
    let recorded = record();
    let mut image = Image::default();
    recorded.steps.iter().for_each(|step| image.apply(step));
    let length = image.0.len();
    for part in 1..8 {
        let cut = Image(image.0[..length * part / 8].to_vec());
        let refused = std::panic::catch_unwind(|| recover(cut));
        assert!(!matches!(refused, Ok(Ok(_))), "{part}/8 of the file is taken for the whole");
    }
}
