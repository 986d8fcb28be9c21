//! What this client knows of the queue of a lock, for all of its claims that wait there together.
//!
//! etcd reads and sorts the whole queue for whoever asks who is before it. So a client with many claims in one queue reads it
//! once for all of them. Nobody is ever added before a claim, and so what was read is at most too much: who has left since is
//! found by asking for single keys, which costs the same in every queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::turn::Place;
use tollgate_core::{LockName, Result};

/// The queues in which claims of this client wait.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<LockName, Arc<Line>>>);

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
    /// Of which revision the rest is.
    as_of: i64,
    /// The claims that were there then, by the revisions that created them, without those that were seen to have left since.
    there: BTreeMap<i64, Place<Vec<u8>>>,
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
    /// The revision of which that was read.
    pub(crate) as_of: i64,
}

impl Lines {
    /// A claim is about to wait for `name`.
    pub(crate) fn join(self: &Arc<Self>, name: &LockName) -> Member {
        let mut lines = self.lines();
        let line = lines.entry(name.clone()).or_default().clone();
        line.known().members += 1;
        Member { lines: self.clone(), name: name.clone(), line }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(crate) fn shared_line(&self) -> Option<&Line> {
        (self.line.known().members > 1).then_some(&self.line)
    }
}

impl Line {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that everything before the claim that was created at `own` is known. `read` answers the claims that are
    /// there, and of which revision that is.
    pub(crate) async fn know<F>(&self, own: i64, read: impl FnOnce() -> F) -> Result<()>
    where
        F: Future<Output = Result<(i64, BTreeMap<i64, Place<Vec<u8>>>)>>,
    {
        if self.known().as_of >= own {
            return Ok(());
        }
        let _alone = self.reading.lock().await;
        if self.known().as_of >= own {
            return Ok(());
        }
        let (as_of, there) = read().await?;
        let mut known = self.known();
        (known.as_of, known.there) = (as_of, there);
        Ok(())
    }

    /// Those next before the claim that was created at `own`, so many of them at most. `None` if they are not known.
    pub(crate) fn before(&self, own: i64, most: usize) -> Option<Ahead> {
        let known = self.known();
        if known.as_of < own {
            return None;
        }
        let mut before = known.there.range(..own).rev().map(|(revision, place)| (*revision, place.clone()));
        let nearest: Vec<_> = before.by_ref().take(most).collect();
        Some(Ahead { nearest, all: before.next().is_none(), as_of: known.as_of })
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
        assert_eq!((revisions(&ahead), ahead.all, ahead.as_of), (vec![6, 5], false, 9));
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
