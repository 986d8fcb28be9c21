//! A lock's file, opened for one claim or for one look: its bytes, its gate and its locks.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::dir::FilePath;
use crate::error::{Result, Trouble};
use crate::folder;
use crate::gated::Gated;
use crate::layout::{self, ENTRY_BYTES, Entry, HEADER_BYTES, Header};
use crate::sys::{self, Identity, Kind, Range, Status};

/// The gate is closed for microseconds. Longer means that somebody is stopped inside it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How often a file is opened again that may not be opened.
const REFUSED: u32 = 20;
/// A file longer than this is cut when no claim is in it.
pub(crate) const LARGE: u64 = 1 << 16;

/// An open description of a lock's file. Kernel locks belong to it, so every claim has its own.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    at: FilePath,
    identity: Identity,
    /// Its length when it was opened.
    size: u64,
    /// It was not there before.
    is_new: bool,
    /// A child may have inherited the description.
    shared: AtomicBool,
}

/// Opens the lock file `at` and runs `work` under its gate. `None` if there is none and `create` is off.
pub(crate) fn visit<T>(
    at: &FilePath,
    create: bool,
    work: impl FnMut(&Gated<'_>) -> Result<T>,
) -> Result<Option<(LockFile, T)>> {
    visit_again(None, at, create, work)
}

/// As [`visit`], with a file that may be open already.
pub(crate) fn visit_again<T>(
    mut open: Option<LockFile>,
    at: &FilePath,
    create: bool,
    mut work: impl FnMut(&Gated<'_>) -> Result<T>,
) -> Result<Option<(LockFile, T)>> {
    loop {
        let lock = match open.take() {
            Some(lock) => lock,
            None => match LockFile::open(at, create)? {
                Some(lock) => lock,
                None => return Ok(None),
            },
        };
        let result = {
            let gated = lock.gate(PATIENCE)?;
            // The process that had the gate before may have removed the file: then no other process finds this one.
            if lock.is_current()? { Some(gated.or_remove_if_new(work(&gated))) } else { None }
        };
        match result {
            Some(Ok(value)) => return Ok(Some((lock, value))),
            Some(Err(error)) => {
                lock.unlock(Range::ALL);
                return Err(error);
            }
            // Files that are made in a folder that was moved away would never be current.
            None => at.dir().check_in_place()?,
        }
    }
}

/// Whether there is a file that has the name of a lock's file and is none. It is only read.
pub(crate) fn is_foreign(at: &FilePath) -> bool {
    let mut start = [0; HEADER_BYTES];
    let read = at.open_to_read().and_then(|file| file.read_at(&mut start, 0));
    read.is_ok_and(|length| length > 0 && !layout::is_ours(&start[..length]))
}

impl LockFile {
    /// Opens the lock file `at`, which is made if it is not there and `create` is set.
    pub(crate) fn open(at: &FilePath, create: bool) -> Result<Option<Self>> {
        let mut refused = 0;
        let (file, is_new) = loop {
            match at.open() {
                Ok(file) => break (file, false),
                // A process of another user may be making it, and not have given it its permissions yet.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && refused < REFUSED => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Trouble::at(at.path())(error));
                }
                Err(_) if !create => {
                    // If the path leads to another folder, others see locks that are not looked at here.
                    at.dir().is_in_place()?;
                    return Ok(None);
                }
                Err(_) => {}
            }
            // Only what is not there is made: in a folder like /tmp the kernel refuses to open another
            // user's file in a call that could have made it.
            match at.create_new() {
                Ok(file) => break (file, true),
                // Another process was first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at.dir().why_not_made(at.path(), error)),
            }
        };
        let Status { identity, size, is_file, names, mode, .. } =
            sys::identify(&file).map_err(Trouble::at(at.path()))?;
        if !is_file {
            return Err(Trouble::foreign(at.path(), "the file is not a regular file"));
        }
        // None: it was removed since.
        if names > 1 {
            return Err(Trouble::foreign(at.path(), "the file has another name, a hard link"));
        }
        folder::tighten_in(at.dir(), &file, mode);
        Ok(Some(Self { file, at: at.clone(), identity, size, is_new, shared: AtomicBool::new(false) }))
    }

    /// Locks the gate if nobody is inside.
    pub(crate) fn try_gate(&self) -> Result<Option<Gated<'_>>> {
        match sys::try_lock(&self.file, Kind::Write, layout::GATE) {
            Ok(free) => Ok(free.then_some(Gated { lock: self })),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// The file `at` as another process had it open, with the locks it has.
    pub(crate) fn inherited(at: &FilePath, file: OwnedFd) -> Result<Self> {
        // A copy, because a copy is surely closed for children.
        let file = File::from(file).try_clone().map_err(Trouble::at(at.path()))?;
        let Status { identity, size, .. } = sys::identify(&file).map_err(Trouble::at(at.path()))?;
        let shared = AtomicBool::new(true);
        Ok(Self { file, at: at.clone(), identity, size, is_new: false, shared })
    }

    /// Locks the gate, waiting at most `patience`.
    pub(crate) fn gate(&self, patience: Duration) -> Result<Gated<'_>> {
        match sys::lock_within(&self.file, layout::GATE, patience) {
            Ok(true) => Ok(Gated { lock: self }),
            Ok(false) => Err(Trouble::Stuck { path: self.path().to_owned() }),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// Whether the file is still the one that others find under its name.
    pub(crate) fn is_current(&self) -> Result<bool> {
        self.at.is(self.identity)
    }

    /// Whether somebody else has a byte of `range`.
    pub(crate) fn is_locked(&self, range: Range) -> Result<bool> {
        sys::is_locked(&self.file, range).map_err(|error| self.trouble(error))
    }

    /// Takes bytes that nobody else can have: those of a fresh ticket.
    pub(crate) fn take(&self, range: Range) -> Result<()> {
        match sys::try_lock(&self.file, Kind::Write, range) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Trouble::lock(self.path(), "a fresh ticket is taken")),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// Unlocks `range` for everybody who shares the description.
    pub(crate) fn unlock(&self, range: Range) {
        // The kernel may be out of memory for a moment. It needs none to unlock everything.
        for _attempt in 0..100 {
            if sys::unlock(&self.file, range).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until nobody has `range`; `false` when interrupted first.
    pub(crate) fn wait(&self, range: Range) -> Result<bool> {
        match sys::lock_wait(&self.file, Kind::Read, range) {
            Ok(()) => {
                self.unlock(range);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// The header as it is now. Outside the gate it may be older than the list.
    pub(crate) fn header(&self) -> Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        let length = self.file.read_at(&mut bytes, 0).map_err(|error| self.trouble(error))?;
        Header::decode(&bytes[..length]).map_err(|what| Trouble::lock(self.path(), what))
    }

    /// The header of a file in which no claim is, if it can be read. Fails if the file is not ours to write over.
    pub(crate) fn old_header(&self) -> Result<Option<Header>> {
        let mut bytes = [0; HEADER_BYTES];
        let length = self.file.read_at(&mut bytes, 0).map_err(|error| self.trouble(error))?;
        if layout::is_ours(&bytes[..length]) {
            return Ok(Header::decode(&bytes[..length]).ok());
        }
        // A power failure can leave a file with its length and without its content.
        if self.size <= LARGE && self.read(0, self.size as usize)?.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Err(Trouble::foreign(self.path(), "the file does not start like a lock file"))
    }

    /// Entry `index`. Outside the gate it may be another claim's by now.
    pub(crate) fn entry(&self, header: &Header, index: u32) -> Result<Entry> {
        let mut entries = self.entries(header, index, 1)?;
        entries.pop().ok_or_else(|| Trouble::lock(self.path(), "an entry is missing"))
    }

    pub(crate) fn entries(&self, header: &Header, from: u32, count: u32) -> Result<Vec<Entry>> {
        let bytes = self.read(header.entry_at(from), count as usize * ENTRY_BYTES)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let decode = |bytes| Entry::decode(bytes).map_err(|what| Trouble::lock(self.path(), what));
        entries.iter().map(decode).collect()
    }

    pub(crate) fn read(&self, at: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::lock(self.path(), "the file is truncated"),
            _ => self.trouble(error),
        })?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| self.trouble(error))
    }

    pub(crate) fn trouble(&self, error: io::Error) -> Trouble {
        Trouble::at(self.path())(error)
    }

    /// The file itself, for a child to inherit.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd> {
        self.shared.store(true, Ordering::Relaxed);
        self.file.try_clone().map(Into::into).map_err(|error| self.trouble(error))
    }

    /// The file for another claim, unless a child could hold that one, too.
    pub(crate) fn into_unshared(mut self) -> Option<Self> {
        // It has something in it by now.
        self.size = self.size.max(1);
        (!*self.shared.get_mut()).then_some(self)
    }

    /// Its length when it was opened; at least one once it was used.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Empties the file.
    pub(crate) fn cut(&self) -> Result<()> {
        self.file.set_len(0).map_err(|error| self.trouble(error))
    }

    /// Whether this made the file, and nothing was in it before.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// The lock's file.
    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }

    /// The lock's file in its folder.
    pub(crate) fn at(&self) -> &FilePath {
        &self.at
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::dir::Dir;

    fn file() -> (tempfile::TempDir, LockFile) {
        let dir = tempfile::tempdir().unwrap();
        let at = FilePath::new(&Arc::new(Dir::open(dir.path()).unwrap()), "a");
        let (lock, ()) = visit(&at, true, |_| Ok(())).unwrap().unwrap();
        (dir, lock)
    }

    #[test]
    fn a_gate_that_stays_locked_is_given_up_and_blamed_on_somebody_stopped() {
        let (_dir, lock) = file();
        let _inside = lock.gate(PATIENCE).unwrap();
        let other = LockFile::open(lock.at(), false).unwrap().unwrap();
        let start = Instant::now();
        let error = other.gate(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Trouble::Stuck { .. }), "{error}");
        assert!(start.elapsed() >= Duration::from_millis(50));
    }

    #[test]
    fn a_gate_that_opens_in_time_is_taken() {
        let (_dir, lock) = file();
        let inside = lock.gate(PATIENCE).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let other = LockFile::open(lock.at(), false).unwrap().unwrap();
                other.gate(PATIENCE).map(drop)
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(inside);
            waits.join().unwrap().unwrap();
        });
    }
}
