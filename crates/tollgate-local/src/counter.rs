//! The token counters: one file of 256 shards, each with two slots that are written in turn.
//!
//! The slots of a shard lie in different pages, so that a write torn by a power failure cannot reach both.
//! A token is on the disk before anybody is given it, and nothing here ever goes back: whatever cannot be read
//! is damage, and damage grants nothing and overwrites nothing.
//!
//! Waiting for the disk is most of what a grant costs. Who takes one lock again and again draws a whole
//! [`Block`] of tokens, and spends the rest of it as long as nobody else has drawn from that shard.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use tollgate_core::Token;

use crate::dir::FilePath;
use crate::error::{Result, Trouble};
use crate::folder;
use crate::layout::{checksum, u64_at};
use crate::sys::{self, Identity, Kind, Range, Status};

/// How many shards there are: one for each first byte of a name's hash.
const SHARDS: usize = 256;
const PAGE: usize = 4096;
/// A slot has a sector of its own; so many shards have their first slots in one page, and their second ones
/// in the next.
const SECTOR: usize = 512;
const SHARDS_PER_PAGE: usize = PAGE / SECTOR;
const SLOT_BYTES: usize = 32;
const FILE_BYTES: usize = SHARDS * 2 * SECTOR;
const MAGIC: [u8; 8] = *b"TGCOUNT1";
/// How many tokens are drawn at once by whoever takes a lock again and again.
const BLOCK: u64 = 64;
/// A shard is busy for as long as a write to the disk takes. Longer means that somebody is stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// The open counter file.
#[derive(Debug)]
pub(crate) struct Counters {
    file: File,
    path: PathBuf,
    identity: Identity,
    /// The kernel's locks belong to the open file, which all threads here share.
    threads: Vec<Mutex<()>>,
}

/// A shard that nobody else works on.
#[derive(Debug)]
struct Locked<'a> {
    counters: &'a Counters,
    shard: u8,
    _thread: MutexGuard<'a, ()>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The kernel unlocks it with the last descriptor at the latest; nothing is left to do here.
        let _ = sys::unlock(&self.counters.file, byte(self.shard));
    }
}

/// A token that nobody else can get, and that may not be on the disk yet.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    pub(crate) token: Token,
    /// What is left of the block it is from.
    pub(crate) block: Block,
    /// The shard, if it has still to be brought to the disk.
    locked: Option<Locked<'a>>,
}

impl Reserved<'_> {
    /// Brings the token to the disk: only now may somebody be told that they have it.
    pub(crate) fn draw(self) -> Result<Token> {
        if let Some(locked) = &self.locked {
            locked.counters.sync()?;
        }
        Ok(self.token)
    }
}

/// Tokens that the disk has as drawn, and that nobody was given: those after `used` and up to `last`.
///
/// As long as the shard's counter stands at `last`, nobody else has drawn since the block was, not for this
/// lock and not for another, and nobody has raised it. So what is left of the block is larger than every
/// token that any lock of this shard was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    used: u64,
    last: u64,
}

/// What a shard's two slots say.
struct Shard {
    /// The largest token that was used, zero for none. May be larger than what is written.
    value: u64,
    /// Which slot to write next.
    slot: usize,
    /// That slot cannot be read.
    torn: bool,
}

impl Counters {
    /// What a new counter file says.
    pub(crate) fn blank() -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        for shard in 0..SHARDS {
            for slot in 0..2 {
                let at = position(shard, slot);
                bytes[at..at + SLOT_BYTES].copy_from_slice(&encode(shard, slot, 0));
            }
        }
        bytes
    }

    /// Opens the counter file `at`.
    pub(crate) fn open(at: &FilePath) -> Result<Self> {
        let path = at.path().to_owned();
        let file = at.open().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Trouble::counter(&path, "the file is missing"),
            _ => Trouble::at(&path)(error),
        })?;
        let Status { identity, size, is_file, .. } = sys::identify(&file).map_err(Trouble::at(&path))?;
        if !is_file {
            return Err(Trouble::foreign(&path, "the file is not a regular file"));
        }
        if size != FILE_BYTES as u64 {
            let what = format!("the file has {size} bytes instead of {FILE_BYTES}");
            return Err(Trouble::counter(&path, what));
        }
        let threads = (0..SHARDS).map(|_| Mutex::new(())).collect();
        Ok(Self { file, path, identity, threads })
    }

    /// See [`folder::tighten`].
    pub(crate) fn tighten(&self, dir_mode: u32) {
        folder::tighten(&self.file, dir_mode);
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The next token of `shard`, on the disk already.
    pub(crate) fn draw(&self, shard: u8) -> Result<Token> {
        self.reserve(self.lock(shard)?, 1)?.draw()
    }

    /// The next token of `shard`, still to be [drawn](Reserved::draw); `None` if somebody else draws one
    /// just now. Does not wait. `before` is what was left when the same lock was taken last.
    pub(crate) fn try_reserve(&self, shard: u8, before: Option<Block>) -> Result<Option<Reserved<'_>>> {
        if let Some(reserved) = before.map(|block| self.spend(shard, block)).transpose()?.flatten() {
            return Ok(Some(reserved));
        }
        let thread = match self.threads[usize::from(shard)].try_lock() {
            Ok(thread) => thread,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let locked = sys::try_lock(&self.file, Kind::Write, byte(shard)).map_err(Trouble::at(&self.path))?;
        if !locked {
            return Ok(None);
        }
        let count = if before.is_some() { BLOCK } else { 1 };
        self.reserve(Locked { counters: self, shard, _thread: thread }, count).map(Some)
    }

    /// A token of `block`, if it is still good. Needs no lock: whoever draws meanwhile draws for another lock,
    /// and a slot that is read while it is written is not believed.
    pub(crate) fn spend(&self, shard: u8, block: Block) -> Result<Option<Reserved<'_>>> {
        let current = self.read(shard)?;
        if block.used == block.last || current.torn || current.value != block.last {
            return Ok(None);
        }
        let used = block.used + 1;
        let token = Token::new(used).map_err(|_| Trouble::TokensUsedUp { path: self.path.clone() })?;
        Ok(Some(Reserved { token, block: Block { used, ..block }, locked: None }))
    }

    fn reserve<'a>(&'a self, locked: Locked<'a>, count: u64) -> Result<Reserved<'a>> {
        let current = self.repaired(locked.shard)?;
        let token = Token::new(current.value + 1);
        let token = token.map_err(|_| Trouble::TokensUsedUp { path: self.path.clone() })?;
        let last = Token::new(current.value + count).unwrap_or(token).get();
        self.write(locked.shard, current.slot, last)?;
        Ok(Reserved { token, block: Block { used: token.get(), last }, locked: Some(locked) })
    }

    /// Makes every later token larger than `floor`.
    pub(crate) fn raise(&self, floor: Token) -> Result<()> {
        let mut targets = [0; SHARDS];
        // Once for each slot, or the loss of one slot would fall back behind the floor.
        for slot in 0..2 {
            for (shard, target) in (0..=u8::MAX).zip(&mut targets) {
                let _locked = self.lock(shard)?;
                let current = self.repaired(shard)?;
                if slot == 0 {
                    // By one at least, so that nobody goes on spending a block from before.
                    *target = floor.get().max(current.value + 1);
                }
                if current.value <= *target {
                    self.write(shard, current.slot, *target)?;
                }
            }
            self.sync()?;
        }
        Ok(())
    }

    /// How many slots cannot be read, although each shard has one that can. Changes nothing.
    pub(crate) fn torn_slots(&self) -> Result<usize> {
        let mut torn = 0;
        for shard in 0..=u8::MAX {
            // Only under the lock: a slot that is being written looks torn.
            if self.slots(shard)?.contains(&None) {
                let _locked = self.lock(shard)?;
                self.read(shard)?;
                torn += self.slots(shard)?.iter().filter(|slot| slot.is_none()).count();
            }
        }
        Ok(torn)
    }

    /// Waits until nobody else works on `shard`.
    fn lock(&self, shard: u8) -> Result<Locked<'_>> {
        let thread = self.threads[usize::from(shard)].lock().unwrap_or_else(PoisonError::into_inner);
        if !sys::lock_within(&self.file, byte(shard), PATIENCE).map_err(Trouble::at(&self.path))? {
            return Err(Trouble::Stuck { path: self.path.clone() });
        }
        Ok(Locked { counters: self, shard, _thread: thread })
    }

    /// What the shard says, after a torn slot was written again: the next number goes into the other one. Else a
    /// slot that is torn a second time would bring back what was given in between. The shard is locked.
    fn repaired(&self, shard: u8) -> Result<Shard> {
        let Shard { value, slot, torn } = self.read(shard)?;
        if torn {
            self.write(shard, slot, value)?;
            self.sync()?;
        }
        Ok(Shard { value, slot: if torn { 1 - slot } else { slot }, torn: false })
    }

    fn read(&self, shard: u8) -> Result<Shard> {
        // A counter that was moved away goes on in another file, or starts again: this one is history.
        if sys::identity_at(&self.path).map_err(Trouble::at(&self.path))? != Some(self.identity) {
            return Err(Trouble::counter(&self.path, "the file was removed or replaced while in use"));
        }
        match self.slots(shard)? {
            [Some(a), Some(b)] if a > b => Ok(Shard { value: a, slot: 1, torn: false }),
            [Some(_), Some(b)] => Ok(Shard { value: b, slot: 0, torn: false }),
            // The torn slot was written last, so it held the end of a block, which may have been used.
            [Some(a), None] => Ok(Shard { value: a + BLOCK, slot: 1, torn: true }),
            [None, Some(b)] => Ok(Shard { value: b + BLOCK, slot: 0, torn: true }),
            [None, None] => {
                Err(Trouble::counter(&self.path, format!("both slots of shard {shard} are unreadable")))
            }
        }
    }

    /// What both slots of `shard` say; `None` for one that cannot be read.
    fn slots(&self, shard: u8) -> Result<[Option<u64>; 2]> {
        let mut bytes = [0; PAGE + SLOT_BYTES];
        self.file.read_exact_at(&mut bytes, offset(shard, 0)).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Trouble::counter(&self.path, "the file is truncated"),
            _ => Trouble::at(&self.path)(error),
        })?;
        Ok([decode(shard, 0, &bytes[..SLOT_BYTES]), decode(shard, 1, &bytes[PAGE..])])
    }

    fn write(&self, shard: u8, slot: usize, value: u64) -> Result<()> {
        let bytes = encode(usize::from(shard), slot, value);
        self.file.write_all_at(&bytes, offset(shard, slot)).map_err(Trouble::at(&self.path))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(Trouble::at(&self.path))
    }
}

/// The byte that is locked while a shard is worked on: beyond the end of the file, where a lock disturbs
/// nobody who copies it.
fn byte(shard: u8) -> Range {
    Range::byte((1 << 40) + u64::from(shard))
}

fn position(shard: usize, slot: usize) -> usize {
    (shard / SHARDS_PER_PAGE * 2 + slot) * PAGE + shard % SHARDS_PER_PAGE * SECTOR
}

fn offset(shard: u8, slot: usize) -> u64 {
    position(usize::from(shard), slot) as u64
}

/// The slot's own place is part of what is summed, so that a misplaced one is not believed.
fn encode(shard: usize, slot: usize, value: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&value.to_le_bytes());
    bytes[16..24].copy_from_slice(&((shard * 2 + slot) as u64).to_le_bytes());
    let sum = checksum(&[&bytes[..24]]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(shard: u8, slot: usize, bytes: &[u8]) -> Option<u64> {
    let value = u64_at(bytes, 8);
    (bytes == encode(usize::from(shard), slot, value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::dir::Dir;

    fn counters() -> (tempfile::TempDir, Counters) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("counters"), Counters::blank()).unwrap();
        let counters = open(dir.path()).unwrap();
        (dir, counters)
    }

    fn open(dir: &Path) -> Result<Counters> {
        Counters::open(&FilePath::new(&Arc::new(Dir::open(dir)?), "counters"))
    }

    fn reopen(counters: &Counters) -> Result<Counters> {
        open(counters.path.parent().unwrap())
    }

    fn draws(counters: &Counters, shard: u8, count: usize) -> Vec<u64> {
        (0..count).map(|_| counters.draw(shard).unwrap().get()).collect()
    }

    fn tear(counters: &Counters, shard: u8, slot: usize) {
        counters.file.write_all_at(&[0xff; 13], offset(shard, slot) + 3).unwrap();
    }

    #[test]
    fn tokens_rise_by_one_and_shards_count_for_themselves() {
        let (_dir, counters) = counters();
        assert_eq!(draws(&counters, 7, 5), [1, 2, 3, 4, 5]);
        assert_eq!(draws(&counters, 255, 2), [1, 2]);
        let again = reopen(&counters).unwrap();
        assert_eq!(draws(&again, 7, 1), [6], "a restart goes on");
    }

    #[test]
    fn every_slot_has_its_own_sector_and_a_shards_slots_lie_in_different_pages() {
        let all: std::collections::BTreeSet<_> =
            (0..SHARDS).flat_map(|shard| [0, 1].map(|slot| position(shard, slot) / SECTOR)).collect();
        assert_eq!(all.len(), SHARDS * 2);
        assert_eq!(*all.last().unwrap(), FILE_BYTES / SECTOR - 1);
        assert!((0..SHARDS).all(|shard| position(shard, 0) / PAGE != position(shard, 1) / PAGE));
    }

    #[test]
    fn a_torn_slot_never_brings_a_token_back() {
        for (drawn, torn) in [(4, 0), (4, 1), (5, 0), (5, 1), (1, 1), (1, 0)] {
            let (_dir, counters) = counters();
            let last = *draws(&counters, 3, drawn).last().unwrap();
            tear(&counters, 3, torn);
            let next = draws(&counters, 3, 4);
            assert!(next[0] > last, "{next:?} after {last} with slot {torn} torn");
            assert!(next.is_sorted_by(|a, b| a < b), "{next:?}");
        }
    }

    #[test]
    fn a_slot_torn_again_and_again_never_brings_a_token_back() {
        for torn in [0, 1] {
            let (_dir, counters) = counters();
            let mut last = *draws(&counters, 3, 3).last().unwrap();
            let mut left = None;
            for round in 0..20 {
                tear(&counters, 3, torn);
                let reserved = counters.try_reserve(3, left.filter(|_| round % 3 > 0)).unwrap().unwrap();
                left = Some(reserved.block);
                let next = reserved.draw().unwrap().get();
                assert!(next > last, "{next} after {last} with slot {torn} torn");
                last = next;
            }
        }
    }

    #[test]
    fn damage_grants_nothing_and_overwrites_nothing() {
        let (_dir, counters) = counters();
        tear(&counters, 9, 0);
        tear(&counters, 9, 1);
        let before = std::fs::read(&counters.path).unwrap();
        let error = counters.draw(9).unwrap_err();
        assert!(error.to_string().contains("both slots of shard 9"), "{error}");
        assert_eq!(std::fs::read(&counters.path).unwrap(), before);
        assert!(counters.draw(10).is_ok(), "the others go on");

        counters.file.set_len(10).unwrap();
        assert!(matches!(counters.draw(10), Err(Trouble::DamagedCounter { .. })));
        assert!(matches!(reopen(&counters), Err(Trouble::DamagedCounter { .. })));
        std::fs::remove_file(&counters.path).unwrap();
        assert!(matches!(counters.draw(10), Err(Trouble::DamagedCounter { .. })));
        assert!(matches!(reopen(&counters), Err(Trouble::DamagedCounter { .. })));
    }

    #[test]
    fn a_reserved_token_is_never_given_again() {
        let (_dir, counters) = counters();
        let other = reopen(&counters).unwrap();
        let reserved = counters.try_reserve(5, None).unwrap().unwrap();
        assert!(counters.try_reserve(5, None).unwrap().is_none(), "one at a time among threads");
        assert!(other.try_reserve(5, None).unwrap().is_none(), "and among descriptors");
        assert!(other.try_reserve(6, None).unwrap().is_some());
        let given_up = reserved.token;
        drop(reserved);
        assert!(other.draw(5).unwrap() > given_up);
    }

    /// Takes a token as somebody does who had `before` left.
    fn spend(counters: &Counters, before: Option<Block>) -> (u64, Block) {
        let reserved = counters.try_reserve(5, before).unwrap().unwrap();
        let block = reserved.block;
        (reserved.draw().unwrap().get(), block)
    }

    #[test]
    fn a_block_is_spent_to_its_end_and_the_next_begins_behind_it() {
        let (_dir, counters) = counters();
        let (first, mut left) = spend(&counters, None);
        let mut drawn = vec![first];
        for _ in 0..3 * BLOCK {
            let (token, block) = spend(&counters, Some(left));
            drawn.push(token);
            left = block;
        }
        assert!(drawn.iter().copied().eq(1..=3 * BLOCK + 1), "no token is wasted: {drawn:?}");
        let again = reopen(&counters).unwrap();
        assert!(
            again.draw(5).unwrap().get() > 3 * BLOCK + 1,
            "what is on the disk is ahead of what was spent"
        );
    }

    #[test]
    fn a_block_ends_when_somebody_else_draws() {
        let (_dir, counters) = counters();
        let other = reopen(&counters).unwrap();
        let (_, left) = spend(&counters, None);
        let (_, left) = spend(&counters, Some(left));
        let (mine, left) = spend(&counters, Some(left));
        let theirs = other.draw(5).unwrap().get();
        assert!(theirs > mine);
        let (next, _) = spend(&counters, Some(left));
        assert!(next > theirs, "{next} came after {theirs}");
    }

    #[test]
    fn a_block_ends_when_the_floor_is_raised_wherever_to() {
        for floor in [1, 3, BLOCK, BLOCK + 1, 10 * BLOCK] {
            let (_dir, counters) = counters();
            let (_, left) = spend(&counters, None);
            let (mine, left) = spend(&counters, Some(left));
            counters.raise(Token::new(floor).unwrap()).unwrap();
            let (next, _) = spend(&counters, Some(left));
            assert!(next > floor && next > mine, "{next} after {mine} and a floor of {floor}");
        }
    }

    #[test]
    fn a_torn_slot_never_brings_a_token_of_a_block_back() {
        for torn in [0, 1] {
            let (_dir, counters) = counters();
            let (_, left) = spend(&counters, None);
            let (_, left) = spend(&counters, Some(left));
            let (mine, left) = spend(&counters, Some(left));
            tear(&counters, 5, torn);
            let theirs = reopen(&counters).unwrap().draw(5).unwrap().get();
            assert!(theirs > mine.max(left.last), "{theirs} after {left:?}");
            let (next, _) = spend(&counters, Some(left));
            assert!(next > theirs, "{next} after {theirs}");
        }
    }

    #[test]
    fn a_raised_floor_lifts_every_shard_and_lowers_none() {
        let (_dir, counters) = counters();
        counters.raise(Token::new(1000).unwrap()).unwrap();
        assert_eq!(draws(&counters, 0, 2), [1001, 1002]);
        counters.raise(Token::new(1000).unwrap()).unwrap();
        assert_eq!(draws(&counters, 0, 1), [1004]);
        assert_eq!(draws(&counters, 200, 1), [1002]);
        counters.raise(Token::MAX).unwrap();
        assert!(matches!(counters.draw(0), Err(Trouble::TokensUsedUp { .. })));
    }

    #[test]
    fn threads_and_descriptors_never_share_a_token() {
        let (_dir, counters) = counters();
        let other = reopen(&counters).unwrap();
        let drawn = std::thread::scope(|scope| {
            let threads: Vec<_> =
                [&counters, &counters, &other, &other].map(|c| scope.spawn(|| draws(c, 1, 25))).into();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let unique: std::collections::BTreeSet<_> = drawn.iter().collect();
        assert_eq!(unique.len(), 100);
    }
}
