//! A lock's file, opened for one claim or for one look: its bytes, its gate and its locks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Result, Trouble};
use crate::folder::{FILE, permissions};
use crate::gated::Gated;
use crate::layout::{self, ENTRY_BYTES, Entry, HEADER_BYTES, Header};
use crate::sys::{self, Identity, Kind, Range};

/// The gate is closed for microseconds. Longer means that somebody is stopped inside it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An open description of a lock's file. Kernel locks belong to it, so every claim has its own.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    /// Its length when it was opened.
    size: u64,
    /// A child may have inherited the description.
    shared: AtomicBool,
}

/// Opens the lock file at `path` and runs `work` under its gate. `None` if there is none and `create` is off.
pub(crate) fn visit<T>(
    path: &Path,
    create: bool,
    work: impl FnMut(&Gated<'_>) -> Result<T>,
) -> Result<Option<(LockFile, T)>> {
    visit_again(None, path, create, work)
}

/// As [`visit`], with a file that may be open already.
pub(crate) fn visit_again<T>(
    mut open: Option<LockFile>,
    path: &Path,
    create: bool,
    mut work: impl FnMut(&Gated<'_>) -> Result<T>,
) -> Result<Option<(LockFile, T)>> {
    loop {
        let lock = match open.take() {
            Some(lock) => lock,
            None => match LockFile::open(path, create)? {
                Some(lock) => lock,
                None => return Ok(None),
            },
        };
        let result = {
            let gated = lock.gate(PATIENCE)?;
            // Whoever had the gate before may have removed the file: then this lock is nobody's.
            if lock.is_current()? { Some(work(&gated)) } else { None }
        };
        match result {
            Some(Ok(value)) => return Ok(Some((lock, value))),
            Some(Err(error)) => {
                lock.unlock(Range::ALL);
                return Err(error);
            }
            None => {}
        }
    }
}

impl LockFile {
    pub(crate) fn open(path: &Path, create: bool) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
        let file = loop {
            match options.open(path) {
                Ok(file) => break file,
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Trouble::at(path)(error));
                }
                Err(_) if !create => return Ok(None),
                Err(_) => {}
            }
            // Only what is not there is made: in a folder like /tmp the kernel refuses to open another
            // user's file in a call that could have made it.
            match options.clone().create_new(true).open(path) {
                Ok(file) => {
                    // Through the descriptor: it may have been removed again already.
                    file.set_permissions(permissions(path, FILE)?).map_err(Trouble::at(path))?;
                    break file;
                }
                // Somebody else was first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Trouble::at(path)(error)),
            }
        };
        let (identity, size) = sys::identify(&file).map_err(Trouble::at(path))?;
        Ok(Some(Self { file, path: path.to_owned(), identity, size, shared: AtomicBool::new(false) }))
    }

    /// Locks the gate if nobody is inside.
    pub(crate) fn try_gate(&self) -> Result<Option<Gated<'_>>> {
        match sys::try_lock(&self.file, Kind::Write, layout::GATE) {
            Ok(free) => Ok(free.then_some(Gated { lock: self })),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// The file at `path` as another process had it open, with the locks it has.
    pub(crate) fn inherited(path: &Path, file: OwnedFd) -> Result<Self> {
        // A copy, because a copy is surely closed for children.
        let file = File::from(file).try_clone().map_err(Trouble::at(path))?;
        let (identity, size) = sys::identify(&file).map_err(Trouble::at(path))?;
        Ok(Self { file, path: path.to_owned(), identity, size, shared: AtomicBool::new(true) })
    }

    /// Locks the gate, waiting at most `patience`.
    pub(crate) fn gate(&self, patience: Duration) -> Result<Gated<'_>> {
        match sys::lock_within(&self.file, layout::GATE, patience) {
            Ok(true) => Ok(Gated { lock: self }),
            Ok(false) => Err(Trouble::Stuck { path: self.path.clone() }),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// Whether the file is still the one that others find under its name.
    pub(crate) fn is_current(&self) -> Result<bool> {
        Ok(sys::identity_at(&self.path).map_err(Trouble::at(&self.path))? == Some(self.identity))
    }

    /// Whether somebody else has a byte of `range`.
    pub(crate) fn is_locked(&self, range: Range) -> Result<bool> {
        sys::is_locked(&self.file, range).map_err(|error| self.trouble(error))
    }

    /// Takes bytes that nobody else can have: those of a fresh ticket.
    pub(crate) fn take(&self, range: Range) -> Result<()> {
        match sys::try_lock(&self.file, Kind::Write, range) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Trouble::lock(&self.path, "a fresh ticket is taken")),
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
        Header::decode(&bytes[..length]).map_err(|what| Trouble::lock(&self.path, what))
    }

    /// Entry `index`. Outside the gate it may be another claim's by now.
    pub(crate) fn entry(&self, header: &Header, index: u32) -> Result<Entry> {
        let mut entries = self.entries(header, index, 1)?;
        entries.pop().ok_or_else(|| Trouble::lock(&self.path, "an entry is missing"))
    }

    pub(crate) fn entries(&self, header: &Header, from: u32, count: u32) -> Result<Vec<Entry>> {
        let bytes = self.read(header.entry_at(from), count as usize * ENTRY_BYTES)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let decode = |bytes| Entry::decode(bytes).map_err(|what| Trouble::lock(&self.path, what));
        entries.iter().map(decode).collect()
    }

    pub(crate) fn read(&self, at: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::lock(&self.path, "it was cut off"),
            _ => self.trouble(error),
        })?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| self.trouble(error))
    }

    pub(crate) fn trouble(&self, error: io::Error) -> Trouble {
        Trouble::at(&self.path)(error)
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

    /// The lock's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn file() -> (tempfile::TempDir, LockFile) {
        let dir = tempfile::tempdir().unwrap();
        let (lock, ()) = visit(&dir.path().join("a"), true, |_| Ok(())).unwrap().unwrap();
        (dir, lock)
    }

    #[test]
    fn a_gate_that_stays_locked_is_given_up_and_blamed_on_somebody_stopped() {
        let (_dir, lock) = file();
        let _inside = lock.gate(PATIENCE).unwrap();
        let other = LockFile::open(&lock.path, false).unwrap().unwrap();
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
                let other = LockFile::open(&lock.path, false).unwrap().unwrap();
                other.gate(PATIENCE).map(drop)
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(inside);
            waits.join().unwrap().unwrap();
        });
    }
}
