//! What this client knows of the queue of a lock, for all of its claims that wait there together.
//!
//! etcd reads and sorts the whole queue for whoever asks who is before it. So a client with many claims in one queue reads it
//! once for all of them. Nobody is ever added before a claim, and so what was read is at most too much: who has left since is
//! found by asking for single keys, which costs the same in every queue. Who comes later waits for the nearest that is known, and
//! needs to know more only when that has left: by then one look tells all who came meanwhile.
//!
//! An etcd that was restored from a backup, or lost everything, counts from an older revision on: then nothing is known any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::turn::Place;
use tollgate_core::{LockName, Result};

/// The queues in which claims of this client wait.
#[derive(Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<LockName, Arc<Line>>>,
    /// The largest revision that was answered.
    latest: AtomicI64,
}

/// One queue, as far as it is known.
#[derive(Default)]
pub(crate) struct Line {
    /// Whoever reads it holds this.
    reading: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// How many of our claims are in it.
    members: usize,
    /// Up to which revision all claims are known.
    as_of: i64,
    /// The claims that were there then, by the revisions that created them, without those that were seen to have left since; and
    /// our own that came later.
    there: BTreeMap<i64, Place<Vec<u8>>>,
    /// How often everything was forgotten.
    forgotten: u64,
}

/// A claim's membership in a line, until it is dropped.
pub(crate) struct Member {
    lines: Arc<Lines>,
    name: LockName,
    line: Arc<Line>,
}

/// Those next before a claim.
pub(crate) struct Ahead {
    /// The nearest first, with the revisions that created them.
    pub(crate) nearest: Vec<(i64, Place<Vec<u8>>)>,
    /// Whether there are no more.
    pub(crate) all: bool,
}

impl Lines {
    /// A claim is about to wait for `name`.
    pub(crate) fn join(self: &Arc<Self>, name: &LockName) -> Member {
        let mut lines = self.lines();
        let line = lines.entry(name.clone()).or_default().clone();
        line.known().members += 1;
        Member { lines: self.clone(), name: name.clone(), line }
    }

    /// The largest revision that was answered.
    pub(crate) fn latest(&self) -> i64 {
        self.latest.load(Ordering::Acquire)
    }

    /// A claim was placed at `revision`, when `before` had been answered before it was sent. If revisions went back, nothing is
    /// known of any queue.
    pub(crate) fn placed(&self, revision: i64, before: i64) {
        if revision > before {
            self.latest.fetch_max(revision, Ordering::AcqRel);
            return;
        }
        for line in self.lines().values() {
            line.forget();
        }
        self.latest.store(revision, Ordering::Release);
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut lines = self.lines.lines();
        let left = {
            let mut known = self.line.known();
            known.members -= 1;
            known.members
        };
        if left == 0 {
            lines.remove(&self.name);
        }
    }
}

impl Member {
    /// The line, if other claims of this client are in it: one alone asks etcd for no more than it needs itself.
    pub(crate) fn shared_line(&self) -> Option<&Arc<Line>> {
        (self.line.known().members > 1).then_some(&self.line)
    }

    /// The claim is there, created at `revision`.
    pub(crate) fn is_placed(&self, revision: i64, place: Place<Vec<u8>>) {
        self.line.known().there.insert(revision, place);
    }
}

impl Line {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self) {
        let mut known = self.known();
        (known.as_of, known.there) = (0, BTreeMap::new());
        known.forgotten += 1;
    }

    /// Makes sure that everything before the claim that was created at `own` is known. `read` answers the claims that are
    /// there, and of which revision that is.
    pub(crate) async fn know<F>(&self, own: i64, read: impl FnOnce() -> F) -> Result<()>
    where
        F: Future<Output = Result<(i64, BTreeMap<i64, Place<Vec<u8>>>)>>,
    {
        let _alone = self.reading.lock().await;
        let forgotten = {
            let known = self.known();
            if known.as_of >= own {
                return Ok(());
            }
            known.forgotten
        };
        let (as_of, mut there) = read().await?;
        let mut known = self.known();
        if known.forgotten == forgotten {
            there.extend(known.there.split_off(&(as_of + 1)));
            (known.as_of, known.there) = (as_of, there);
        }
        Ok(())
    }

    /// The nearest before the claim that was created at `own`, as far as is known: perhaps not the next, but it cannot be in
    /// before that one has left. Nobody if all are known, and nobody is there; `None` if nobody is known.
    pub(crate) fn bound(&self, own: i64) -> Option<Option<Place<Vec<u8>>>> {
        let known = self.known();
        let nearest = known.there.range(..own).next_back().map(|(_, place)| place.clone());
        if nearest.is_none() && known.as_of < own { None } else { Some(nearest) }
    }

    /// Those next before the claim that was created at `own`, so many of them at most. `None` if not all are known.
    pub(crate) fn before(&self, own: i64, most: usize) -> Option<Ahead> {
        let known = self.known();
        if known.as_of < own {
            return None;
        }
        let mut before = known.there.range(..own).rev().map(|(revision, place)| (*revision, place.clone()));
        let nearest: Vec<_> = before.by_ref().take(most).collect();
        Some(Ahead { nearest, all: before.next().is_none() })
    }

    /// The claim that was created at `revision` was seen to have left.
    pub(crate) fn left(&self, revision: i64) {
        self.known().there.remove(&revision);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Mode;

    use super::*;

    fn place(revision: i64) -> Place<Vec<u8>> {
        Place { key: revision.to_string().into_bytes(), mode: Mode::Exclusive }
    }

    fn revisions(ahead: &Ahead) -> Vec<i64> {
        ahead.nearest.iter().map(|(revision, _)| *revision).collect()
    }

    async fn known(line: &Line, own: i64, as_of: i64, there: &[i64]) {
        let there = there.iter().map(|revision| (*revision, place(*revision))).collect();
        line.know(own, || async move { Ok((as_of, there)) }).await.unwrap();
    }

    #[tokio::test]
    async fn those_before_a_claim_come_nearest_first() {
        let line = Line::default();
        assert!(line.before(7, 2).is_none());
        known(&line, 7, 9, &[3, 5, 6, 7, 9]).await;
        let ahead = line.before(7, 2).unwrap();
        assert_eq!((revisions(&ahead), ahead.all), (vec![6, 5], false));
        line.left(5);
        let ahead = line.before(7, 2).unwrap();
        assert_eq!((revisions(&ahead), ahead.all), (vec![6, 3], true));
        assert!(line.before(10, 2).is_none(), "what came later is not known");
    }

    #[tokio::test]
    async fn what_is_known_is_not_read_again() {
        let line = Line::default();
        known(&line, 7, 9, &[3]).await;
        known(&line, 8, 8, &[]).await;
        assert_eq!(revisions(&line.before(9, 2).unwrap()), [3]);
        known(&line, 10, 12, &[11]).await;
        assert_eq!(revisions(&line.before(12, 2).unwrap()), [11]);
    }

    #[tokio::test]
    async fn who_comes_later_waits_for_the_nearest_that_is_known() {
        let (lines, name) = (Arc::new(Lines::default()), LockName::new("x").unwrap());
        let (first, second) = (lines.join(&name), lines.join(&name));
        let line = second.shared_line().unwrap();
        assert_eq!(line.bound(12), None, "nobody is known");
        known(line, 7, 9, &[3, 5]).await;
        assert_eq!(line.bound(12), Some(Some(place(5))));
        first.is_placed(11, place(11));
        assert_eq!(line.bound(12), Some(Some(place(11))));
        // What came after a look is not forgotten by it.
        known(line, 10, 10, &[]).await;
        assert_eq!((line.bound(12), line.bound(10)), (Some(Some(place(11))), Some(None)));
    }

    #[tokio::test]
    async fn nothing_is_known_of_an_etcd_whose_revisions_went_back() {
        let (lines, name) = (Arc::new(Lines::default()), LockName::new("x").unwrap());
        let (first, _second) = (lines.join(&name), lines.join(&name));
        let line = first.shared_line().unwrap().clone();
        lines.placed(900, lines.latest());
        known(&line, 900, 950, &[]).await;
        assert_eq!(line.bound(34), Some(None));
        lines.placed(34, lines.latest());
        assert_eq!(line.bound(34), None, "it has to be read");
        // What was read before that, and arrives now, counts no more.
        let reading = line.know(34, || async {
            lines.placed(20, lines.latest());
            Ok((950, BTreeMap::new()))
        });
        reading.await.unwrap();
        assert_eq!(line.bound(34), None);
    }

    #[test]
    fn a_line_is_forgotten_with_its_last_member() {
        let (lines, name) = (Arc::new(Lines::default()), LockName::new("x").unwrap());
        let first = lines.join(&name);
        assert!(first.shared_line().is_none());
        let second = lines.join(&name);
        assert!(first.shared_line().is_some());
        drop(first);
        assert!(second.shared_line().is_none());
        drop(second);
        assert!(lines.lines().is_empty());
    }
}
