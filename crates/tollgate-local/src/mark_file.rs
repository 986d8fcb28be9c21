//! A mark in a file of its own: the highest token that was let in, behind a kernel lock, on the disk before it counts.
//!
//! ```text
//! 0      what this is, and whose mark, for people who look
//! 4096   the first slot     they are written in turn, and lie in pages of their own, so that a write torn by a
//! 8192   the second slot    power failure cannot reach both
//! ```
//! Both slots are whole from the moment the file has its name. One that cannot be read is damage: it may have had the larger
//! number.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Mark, Token};

use crate::dir::{Dir, FilePath};
use crate::error::{Result, Trouble};
use crate::folder;
use crate::layout::{checksum, u64_at};
use crate::sys::{self, Identity, Range, Status};

const MAGIC: [u8; 8] = *b"TGMARK 1";
const PAGE: usize = 4096;
const SLOT_BYTES: usize = 32;
const FILE_BYTES: usize = 2 * PAGE + SLOT_BYTES;
/// Somebody who has a mark holds it for as long as a write to the disk takes. Longer means that somebody is stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a file is opened again that was replaced while it was waited for.
const OPENED: usize = 100;

/// A mark that nobody else can read or raise as long as this lives, in this process or another.
#[derive(Debug)]
pub struct LockedMark {
    file: File,
    at: FilePath,
    /// What both slots say, zero for none.
    slots: [u64; 2],
}

impl LockedMark {
    /// Waits for the mark at `path`, which is made if it is not there. `whose` is written into it for people who look. Does
    /// file I/O.
    ///
    /// # Errors
    /// `Config` if it is damaged, or cannot be there: no folder, no permission, a network file system. `Unavailable` if the
    /// disk is full, or somebody who has it is stopped.
    pub fn at(path: &Path, whose: &str) -> tollgate_core::Result<Self> {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = Arc::new(Dir::open(folder)?);
        Ok(Self::lock(&FilePath::new(&folder, path.file_name().unwrap_or_default()), whose)?)
    }

    pub(crate) fn lock(at: &FilePath, whose: &str) -> Result<Self> {
        let path = at.path();
        for _ in 0..OPENED {
            let file = match at.open() {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    create(at, whose)?;
                    continue;
                }
                Err(error) => return Err(Trouble::at(path)(error)),
            };
            // Of this open file: the threads of a process exclude each other like processes.
            if !sys::lock_within(&file, Range::ALL, PATIENCE).map_err(Trouble::at(path))? {
                return Err(Trouble::Stuck { path: path.to_owned() });
            }
            let Status { identity, is_file, mode, .. } = sys::identify(&file).map_err(Trouble::at(path))?;
            if !is_file {
                return Err(Trouble::foreign(path, "the file is not a regular file"));
            }
            folder::tighten_in(at.dir(), &file, mode);
            if at.is(identity)? {
                let [Some(first), Some(second)] = slots(&file, path)? else {
                    return Err(Trouble::mark(path, "a slot is unreadable"));
                };
                return Ok(Self { file, at: at.clone(), slots: [first, second] });
            }
            // In a folder that was moved away no mark is the one that others see.
            at.dir().check_in_place()?;
        }
        Err(Trouble::mark(path, "the file is removed again and again"))
    }

    /// What it says.
    pub fn mark(&self) -> Mark {
        Token::new(self.value()).map_or(Mark::new(), Mark::at)
    }

    fn value(&self) -> u64 {
        self.slots[0].max(self.slots[1])
    }

    /// Raises it to `token`, on the disk when this returns. A mark that is as high or higher stays as it is, and is on the
    /// disk, too.
    pub fn raise(&mut self, token: Token) -> tollgate_core::Result<()> {
        Ok(self.write(token)?)
    }

    pub(crate) fn write(&mut self, token: Token) -> Result<()> {
        let (lower, value) = (usize::from(self.slots[0] > self.slots[1]), token.get().max(self.value()));
        // Whoever wrote it before may have died before the disk had it, or was told that it has not: a system that could not
        // bring something to the disk may think that it is there, until it is written again.
        let slot = if value > self.value() { lower } else { 1 - lower };
        let written = self.file.write_all_at(&encode(slot, value), position(slot));
        written.map_err(Trouble::at(self.at.path()))?;
        self.slots[slot] = value;
        self.file.sync_data().map_err(Trouble::at(self.at.path()))
    }

    /// Brings the file's name to the disk: once is enough.
    pub fn keep_name(&self) -> tollgate_core::Result<()> {
        Ok(self.sync_folder()?)
    }

    pub(crate) fn sync_folder(&self) -> Result<()> {
        self.at.dir().sync()
    }
}

/// A mark that is kept open, to be read again and again.
#[derive(Debug)]
pub(crate) struct KeptMark {
    file: File,
    at: FilePath,
    identity: Identity,
}

impl KeptMark {
    /// The mark `at`, if there is one.
    pub(crate) fn open(at: FilePath) -> Option<Self> {
        let file = at.open_at_once().ok()?;
        let identity = sys::identify(&file).ok()?.identity;
        Some(Self { file, at, identity })
    }

    /// What it says, without waiting: nothing if it has to be asked for in order, because it is somewhere else by now, or being
    /// written, or damaged.
    pub(crate) fn peek(&self) -> Option<u64> {
        let [Some(first), Some(second)] = slots(&self.file, self.at.path()).ok()? else { return None };
        // It is open, so that no other file can have its number.
        let is_there = self.at.is(self.identity).ok()?;
        is_there.then_some(first.max(second))
    }
}

/// Makes the file, whole when it gets its name. The process that comes first makes it.
fn create(at: &FilePath, whose: &str) -> Result<()> {
    folder::refuse_network(at.dir().path())?;
    let mut bytes = vec![0; FILE_BYTES];
    let says = format!("tollgate mark 1\n{whose}\n");
    let said = says.len().min(PAGE);
    bytes[..said].copy_from_slice(&says.as_bytes()[..said]);
    for slot in 0..2 {
        let at = (slot + 1) * PAGE;
        bytes[at..at + SLOT_BYTES].copy_from_slice(&encode(slot, 0));
    }
    at.dir().create_whole(at.name(), &bytes).map(drop)
}

fn slots(file: &File, path: &Path) -> Result<[Option<u64>; 2]> {
    let mut bytes = [0; PAGE + SLOT_BYTES];
    file.read_exact_at(&mut bytes, position(0)).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Trouble::mark(path, "the file is truncated"),
        _ => Trouble::at(path)(error),
    })?;
    Ok([decode(0, &bytes[..SLOT_BYTES]), decode(1, &bytes[PAGE..])])
}

fn position(slot: usize) -> u64 {
    ((slot + 1) * PAGE) as u64
}

/// The slot's own place is part of what is summed, so that a misplaced one is not believed.
fn encode(slot: usize, value: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&value.to_le_bytes());
    bytes[16..24].copy_from_slice(&(slot as u64).to_le_bytes());
    let sum = checksum(&[&bytes[..24]]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(slot: usize, bytes: &[u8]) -> Option<u64> {
    let value = u64_at(bytes, 8);
    (bytes == encode(slot, value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn at(path: &Path) -> FilePath {
        let folder = Dir::open(path.parent().unwrap()).unwrap();
        FilePath::new(&Arc::new(folder), path.file_name().unwrap())
    }

    fn peek(path: &Path) -> Option<u64> {
        KeptMark::open(at(path))?.peek()
    }

    #[test]
    fn a_mark_rises_and_never_falls_and_outlives_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        for (raise, stands) in [(5, 5), (5, 5), (9, 9), (7, 9), (10, 10)] {
            let mut mark = LockedMark::lock(&at(&path), "orders").unwrap();
            mark.write(token(raise)).unwrap();
            drop(mark);
            assert_eq!(peek(&path), Some(stands));
        }
        assert!(fs::read(&path).unwrap().starts_with(b"tollgate mark 1\norders\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_damaged_mark_is_an_error_and_never_a_lower_mark() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        for number in [5, 6] {
            LockedMark::lock(&at(&path), "orders").unwrap().write(token(number)).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for slot in 0..2 {
            for byte in [0, 9, 17, 25] {
                let mut bytes = whole.clone();
                bytes[(slot + 1) * PAGE + byte] ^= 1;
                fs::write(&path, &bytes).unwrap();
                let error = LockedMark::lock(&at(&path), "orders").unwrap_err();
                assert!(matches!(error, Trouble::DamagedMark { .. }), "{slot} {byte}: {error}");
                assert_eq!(peek(&path), None);
            }
        }
        for length in [0, 100, PAGE, FILE_BYTES - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(LockedMark::lock(&at(&path), "orders").is_err(), "{length}");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(LockedMark::lock(&at(&path), "orders").unwrap().mark(), Mark::at(token(6)));
    }

    #[test]
    fn a_mark_that_is_somewhere_else_by_now_is_not_the_mark() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let mut held = LockedMark::lock(&at(&path), "orders").unwrap();
        held.write(token(2)).unwrap();
        let kept = KeptMark::open(at(&path)).unwrap();
        assert_eq!(kept.peek(), Some(2));
        let waits = std::thread::spawn({
            let path = path.clone();
            move || LockedMark::lock(&at(&path), "orders").unwrap().write(token(3)).unwrap()
        });
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        assert_eq!(kept.peek(), None);
        drop(held);
        waits.join().unwrap();
        assert_eq!((peek(&path), kept.peek()), (Some(3), None));
    }
}
