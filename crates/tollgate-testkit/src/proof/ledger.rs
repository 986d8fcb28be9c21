//! What many holders saw and did, and what that comes to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Entry;

/// What is known of one register.
#[derive(Default)]
pub(super) struct Book {
    /// Which write made each count. Two that made the same one had read the same: an update is lost.
    made: Mutex<HashMap<u64, u64>>,
    pub(super) accepted: AtomicUsize,
    pub(super) lost: AtomicUsize,
    /// Writes that were accepted though somebody newer had entered before they were sent.
    pub(super) stale: AtomicUsize,
    /// Writes that came after one with a larger token.
    pub(super) stepped_back: AtomicUsize,
}

impl Book {
    /// An entry that is in the register, or was.
    pub(super) fn note(&self, entry: Entry) {
        if entry.count == 0 {
            return;
        }
        if *self.made.lock().unwrap().entry(entry.count).or_insert(entry.id) != entry.id {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A write that was accepted, of somebody who had read `seen`; `entered` is the largest token that was in before it was sent.
    pub(super) fn accept(&self, seen: Entry, entry: Entry, entered: u64) {
        self.note(entry);
        self.accepted.fetch_add(1, Ordering::SeqCst);
        if entry.token < entered {
            self.stale.fetch_add(1, Ordering::SeqCst);
        }
        if entry.token < seen.token {
            self.stepped_back.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Both registers, and where everybody is.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) fenced: Book,
    pub(super) plain: Book,
    /// The largest token of somebody who has shown it and read.
    pub(super) entered: AtomicU64,
    /// The largest token of somebody whose write was accepted.
    pub(super) wrote: AtomicU64,
    pub(super) refused: AtomicUsize,
    /// Writes of which nobody knows what came of them.
    pub(super) unknown: AtomicUsize,
    /// How many wait until they are too late.
    pub(super) lagging: AtomicUsize,
    pub(super) ids: AtomicU64,
    pub(super) enough: usize,
}

impl Ledger {
    pub(super) fn new(enough: usize) -> Self {
        Self { enough, ..Self::default() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.fenced.accepted.load(Ordering::SeqCst) >= self.enough
    }

    pub(super) fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What it came to, when `fenced` and `plain` are what is left. Panics unless the fence kept everything, and unless there was
    /// something to keep.
    pub(super) fn judge(&self, fenced: Entry, plain: Entry, took: Duration) -> Judgement {
        let count = |number: &AtomicUsize| number.load(Ordering::SeqCst);
        self.fenced.note(fenced);
        let (writes, unknown) = (count(&self.fenced.accepted), count(&self.unknown));
        let judgement = Judgement {
            writes,
            refused: count(&self.refused),
            unknown,
            took,
            unfenced: count(&self.plain.accepted),
            stale: count(&self.plain.stale),
            lost: count(&self.plain.accepted) - plain.count as usize,
        };
        assert_eq!(count(&self.fenced.stale), 0, "stale writes were accepted: {judgement}");
        assert_eq!(count(&self.fenced.stepped_back), 0, "tokens decreased: {judgement}");
        assert_eq!(count(&self.fenced.lost), 0, "updates were lost: {judgement}");
        let counted = fenced.count as usize;
        assert!(
            (writes..=writes + unknown).contains(&counted),
            "{counted} writes are there of those that were accepted: {judgement}"
        );
        assert!(judgement.refused > 0, "no write came too late: {judgement}");
        assert!(judgement.lost > 0 && judgement.stale > 0, "without the fence nothing was lost: {judgement}");
        judgement
    }
}

/// How it went behind the fence, where no stale write was accepted and no update lost, and without it.
#[derive(Debug)]
pub struct Judgement {
    writes: usize,
    refused: usize,
    unknown: usize,
    took: Duration,
    unfenced: usize,
    stale: usize,
    lost: usize,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, refused, unknown, took, unfenced, stale, lost } = self;
        write!(
            f,
            "{writes} writes in {:.1} s, {refused} refused, {unknown} unanswered: no stale one accepted, no update lost; without \
             the fence {unfenced} writes, {stale} of them stale, {lost} updates lost",
            took.as_secs_f64()
        )
    }
}
