//! Many clients of all kinds at one lock, judged by what it protects; and the same without the lock.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_testkit::engines::{self, Config};

use crate::ground::{Ground, Traces};
use crate::worker::{Kind, Worker};

const KINDS: [Kind; 4] = [Kind::RedisPy, Kind::NodeRedlock, Kind::Rslock, Kind::Tollgate];
const OF_EACH: usize = 3;
const TIMES: usize = 40;

/// A crowd before a lock, and what it protects.
struct Crowd {
    ground: Ground,
    workers: Vec<Worker>,
    _alone: MutexGuard<'static, ()>,
    _folder: tempfile::TempDir,
}

impl Crowd {
    /// Some of each kind.
    fn gather(kinds: &[Kind], servers: &[SocketAddr], key: &str) -> Self {
        // Two crowds at once are more processes than a small machine starts in good time.
        static CROWDS: Mutex<()> = Mutex::new(());
        let alone = CROWDS.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let ground = Ground(folder.path().to_owned());
        ground.prepare();
        let kinds = kinds.iter().flat_map(|kind| [*kind; OF_EACH]);
        let mut workers: Vec<Worker> =
            kinds.map(|kind| Worker::launch(kind, servers, key, folder.path())).collect();
        workers.iter_mut().for_each(|worker| worker.must_say("ready"));
        Self { ground, workers, _alone: alone, _folder: folder }
    }

    /// Has all of them do the same at the same time, and gives what each says in the end.
    fn all(&mut self, order: &str) -> Vec<String> {
        self.workers.iter_mut().for_each(|worker| worker.order(order));
        self.workers.iter_mut().map(Worker::reply).collect()
    }
}

/// Some of each kind pass so many times, and none meets another.
pub(crate) fn passes(kinds: &[Kind], servers: &[SocketAddr], key: &str, times: usize) -> Traces {
    let mut crowd = Crowd::gather(kinds, servers, key);
    let verdicts = crowd.all(&format!("count {times} 20000"));
    assert!(verdicts.iter().all(|verdict| verdict == "done"), "they met inside: {verdicts:?}");
    for worker in std::mem::take(&mut crowd.workers) {
        assert_eq!(worker.finish(), Some(0));
    }
    let traces = crowd.ground.traces();
    traces.must_be_of(kinds.len() * OF_EACH * times, OF_EACH * times);
    traces
}

fn one_redis() -> SocketAddr {
    engines::shared(&Config::redis()).address()
}

pub(crate) fn one_at_a_time_passes_whoever_it_is() {
    let traces = passes(&KINDS, &[one_redis()], "lock:crowd", TIMES);
    // Otherwise they stood in line by kind, and did not contend.
    assert!(traces.turns() > 2 * TIMES, "only {} times came another kind next", traces.turns());
}

/// The judge can fail: without the lock they meet, and counts are lost.
pub(crate) fn without_the_lock_they_meet_and_lose_counts() {
    let mut crowd = Crowd::gather(&KINDS, &[one_redis()], "lock:nobody-takes-this");
    let verdicts = crowd.all(&format!("trespass {TIMES}"));
    assert!(verdicts.iter().any(|verdict| verdict.starts_with("violated")), "nobody met: {verdicts:?}");
    for (worker, verdict) in std::mem::take(&mut crowd.workers).into_iter().zip(&verdicts) {
        assert_eq!(worker.finish(), Some(i32::from(verdict != "done")), "{verdict}");
    }
    let (counted, passed) = (crowd.ground.traces().counter, KINDS.len() * OF_EACH * TIMES);
    assert!(counted < passed, "{counted} of {passed} were counted");
}
