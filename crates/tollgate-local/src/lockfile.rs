//! A lock's file, opened for one claim or for one look, and what may be done to it under its gate.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_core::LockName;

use crate::error::{Result, Trouble};
use crate::layout::{
    self, ENTRY_BYTES, Entry, FIRST_CAPACITY, FIRST_DETAILS, HEADER_BYTES, Header, LISTS, Ticket,
};
use crate::sys::{self, Identity, Kind, Range};

/// The gate is closed for microseconds. Longer means that somebody is stopped inside it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// A file longer than this is cut when nobody uses it.
const LARGE: u64 = 1 << 16;

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

/// The file while its gate is locked: nobody else reads or writes it.
#[derive(Debug)]
pub(crate) struct Gated<'a> {
    lock: &'a LockFile,
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
    fn open(path: &Path, create: bool) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(create).custom_flags(libc::O_NOFOLLOW);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
            other => other.map_err(Trouble::at(path))?,
        };
        let (identity, size) = sys::identify(&file).map_err(Trouble::at(path))?;
        Ok(Some(Self { file, path: path.to_owned(), identity, size, shared: AtomicBool::new(false) }))
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

    fn entries(&self, header: &Header, from: u32, count: u32) -> Result<Vec<Entry>> {
        let bytes = self.read(header.entry_at(from), count as usize * ENTRY_BYTES)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let decode = |bytes| Entry::decode(bytes).map_err(|what| Trouble::lock(&self.path, what));
        entries.iter().map(decode).collect()
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::lock(&self.path, "it was cut off"),
            _ => self.trouble(error),
        })?;
        Ok(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| self.trouble(error))
    }

    fn trouble(&self, error: io::Error) -> Trouble {
        Trouble::at(&self.path)(error)
    }

    /// The file itself, for a child to inherit.
    pub(crate) fn duplicate(&self) -> Result<std::os::fd::OwnedFd> {
        self.shared.store(true, Ordering::Relaxed);
        self.file.try_clone().map(Into::into).map_err(|error| self.trouble(error))
    }

    /// The file for another claim, unless a child could hold that one, too.
    pub(crate) fn into_unshared(mut self) -> Option<Self> {
        // It has something in it by now.
        self.size = self.size.max(1);
        (!*self.shared.get_mut()).then_some(self)
    }

    /// The lock's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Gated<'_> {
    /// The file.
    pub(crate) fn lock(&self) -> &LockFile {
        self.lock
    }

    /// Whether anybody else waits or holds.
    pub(crate) fn anybody(&self) -> Result<bool> {
        self.lock.is_locked(layout::ANYBODY)
    }

    /// The header of the lock `name`.
    pub(crate) fn header_of(&self, name: &LockName) -> Result<Header> {
        let header = self.lock.header()?;
        if *header.name != *name.as_str().as_bytes() {
            return Err(Trouble::lock(&self.lock.path, "it belongs to another lock"));
        }
        Ok(header)
    }

    /// Removes the file if nobody uses it.
    pub(crate) fn remove_if_idle(&self) -> Result<()> {
        if self.anybody()? || !self.lock.is_current()? {
            return Ok(());
        }
        std::fs::remove_file(&self.lock.path).map_err(Trouble::at(&self.lock.path))
    }

    /// Starts the file again with one claim in it, `entry` but for the ticket, and takes its byte. Only
    /// when nobody else waits or holds: whatever the file says, damaged or not, is about claims that are gone.
    pub(crate) fn start(&self, name: &LockName, entry: &mut Entry, details: &[u8]) -> Result<Header> {
        let old = if self.lock.size == 0 { None } else { self.lock.header().ok() };
        if self.lock.size > LARGE {
            self.lock.file.set_len(0).map_err(|error| self.lock.trouble(error))?;
        }
        // Tickets go on from before, so that a look that began earlier does not take the new claim for
        // an old one.
        entry.ticket = old.as_ref().map_or(0, |old| old.next);
        self.lock.take(layout::alive(entry.ticket))?;
        let header = Header {
            name: name.as_str().as_bytes().into(),
            next: entry.ticket + 1,
            head: 0,
            len: 1,
            list: LISTS,
            capacity: FIRST_CAPACITY,
            details_size: details_size(details, FIRST_DETAILS),
            generation: old.map_or(0, |old| old.generation.wrapping_add(1)),
        };
        // One write for everything: this is the way of a lock nobody else wants.
        let mut bytes = header.encode();
        bytes.resize(header.details_at(0) as usize, 0);
        bytes[LISTS as usize..][..ENTRY_BYTES].copy_from_slice(&entry.encode());
        bytes.extend_from_slice(details);
        self.lock.write(0, &bytes)?;
        Ok(header)
    }

    /// Adds a claim at the end. The header comes last: until it is written nothing has happened.
    pub(crate) fn append(&self, header: &mut Header, entry: &Entry, details: &[u8]) -> Result<u32> {
        if header.len == header.capacity || details.len() > header.details_size as usize {
            self.rebuild(header, details_size(details, header.details_size), None)?;
        }
        let index = header.len;
        self.lock.write(header.details_at(index), details)?;
        self.write_entry(header, index, entry)?;
        header.len += 1;
        header.next = entry.ticket + 1;
        self.write_header(header)?;
        Ok(index)
    }

    pub(crate) fn write_header(&self, header: &Header) -> Result<()> {
        self.lock.write(0, &header.encode())
    }

    pub(crate) fn write_entry(&self, header: &Header, index: u32, entry: &Entry) -> Result<()> {
        self.lock.write(header.entry_at(index), &entry.encode())
    }

    /// Replaces the details of entry `index`, which is `entry`; answers where it is now.
    pub(crate) fn write_details(
        &self,
        header: &mut Header,
        mut index: u32,
        entry: &mut Entry,
        details: &[u8],
    ) -> Result<u32> {
        if details.len() > header.details_size as usize {
            self.rebuild(header, details_size(details, header.details_size), Some(entry.ticket))?;
            self.write_header(header)?;
            index = self
                .find(header, entry.ticket)?
                .ok_or_else(|| Trouble::lock(&self.lock.path, "a claim got lost while its list was moved"))?;
        }
        entry.details_len = details.len() as u32;
        self.lock.write(header.details_at(index), details)?;
        self.write_entry(header, index, entry)?;
        Ok(index)
    }

    /// The details of entry `index`.
    pub(crate) fn details(&self, header: &Header, index: u32, entry: &Entry) -> Result<Vec<u8>> {
        let length = entry.details_len.min(header.details_size) as usize;
        self.lock.read(header.details_at(index), length)
    }

    /// Entries from `from` on, up to `count` of them.
    pub(crate) fn entries(&self, header: &Header, from: u32, count: u32) -> Result<Vec<Entry>> {
        self.lock.entries(header, from, count.min(header.len.saturating_sub(from)))
    }

    /// Where the claim with `ticket` is in the list.
    pub(crate) fn find(&self, header: &Header, ticket: Ticket) -> Result<Option<u32>> {
        let (mut low, mut high) = (0, header.len);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.lock.entry(header, middle)?.ticket.cmp(&ticket) {
                std::cmp::Ordering::Equal => return Ok(Some(middle)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Moves the list elsewhere in the file, without those who left, so that it has room again.
    ///
    /// The old list stays valid until the header is written, which is the caller's to do. `mine` is the
    /// claim of this very description, whose byte the kernel does not report to itself.
    fn rebuild(&self, header: &mut Header, details_size: u32, mine: Option<Ticket>) -> Result<()> {
        let mut staying = Vec::new();
        for (index, entry) in (header.head..).zip(self.entries(header, header.head, u32::MAX)?) {
            if !entry.left {
                staying.push((index, entry));
            }
        }
        let mut capacity = header.capacity;
        if staying.len() as u32 > capacity / 2 {
            // Only before the list grows: asking for each costs a system call.
            let mut living = Vec::new();
            for (index, entry) in staying {
                if mine == Some(entry.ticket) || self.lock.is_locked(layout::alive(entry.ticket))? {
                    living.push((index, entry));
                }
            }
            staying = living;
            if staying.len() as u32 > capacity / 2 {
                capacity *= 2;
            }
        }
        let mut new = Header {
            list: LISTS,
            capacity,
            details_size,
            head: 0,
            len: staying.len() as u32,
            generation: header.generation.wrapping_add(1),
            ..header.clone()
        };
        // Before the old list if there is room, so that a file of constant length goes back and forth.
        if LISTS + new.list_bytes() > header.list {
            new.list = header.list + header.list_bytes();
        }
        let mut bytes = vec![0; (new.details_at(new.len) - new.list) as usize];
        for (index, (old, entry)) in (0..).zip(&staying) {
            let at = (new.entry_at(index) - new.list) as usize;
            bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry.encode());
            let details = self.details(header, *old, entry)?;
            let at = (new.details_at(index) - new.list) as usize;
            bytes[at..at + details.len()].copy_from_slice(&details);
        }
        self.lock.write(new.list, &bytes)?;
        *header = new;
        Ok(())
    }
}

impl Drop for Gated<'_> {
    fn drop(&mut self) {
        self.lock.unlock(layout::GATE);
    }
}

fn details_size(details: &[u8], at_least: u32) -> u32 {
    (details.len() as u32).next_power_of_two().max(at_least)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tollgate_core::Mode;

    use super::*;

    fn entry(ticket: Ticket) -> Entry {
        Entry { ticket, mode: Mode::Exclusive, token: None, left: false, revoked: false, details_len: 3 }
    }

    fn file() -> (tempfile::TempDir, LockName, LockFile) {
        let dir = tempfile::tempdir().unwrap();
        let name = LockName::new("a").unwrap();
        let start = |gated: &Gated<'_>| gated.start(&name, &mut entry(0), b"{0}");
        let (lock, _) = visit(&dir.path().join("a"), true, start).unwrap().unwrap();
        (dir, name, lock)
    }

    #[test]
    fn a_gate_that_stays_locked_is_given_up_and_blamed_on_somebody_stopped() {
        let (_dir, _, lock) = file();
        let _inside = lock.gate(PATIENCE).unwrap();
        let other = LockFile::open(&lock.path, false).unwrap().unwrap();
        let start = Instant::now();
        let error = other.gate(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Trouble::Stuck { .. }), "{error}");
        assert!(start.elapsed() >= Duration::from_millis(50));
    }

    #[test]
    fn a_gate_that_opens_in_time_is_taken() {
        let (_dir, _, lock) = file();
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

    #[test]
    fn a_list_that_is_full_moves_without_those_who_left_and_goes_back_and_forth() {
        let (_dir, name, lock) = file();
        let gated = lock.gate(PATIENCE).unwrap();
        let mut header = gated.header_of(&name).unwrap();
        let mut longest = 0;
        for ticket in 1..500 {
            let index =
                gated.append(&mut header, &entry(ticket), format!("{{{}}}", ticket % 10).as_bytes()).unwrap();
            assert_eq!(gated.find(&header, ticket).unwrap(), Some(index));
            gated.write_entry(&header, index, &Entry { left: true, ..entry(ticket) }).unwrap();
            longest = longest.max(header.list + header.list_bytes());
        }
        assert_eq!(gated.header_of(&name).unwrap(), header);
        assert_eq!(header.capacity, FIRST_CAPACITY, "one claim stays, which is no reason to grow");
        assert_eq!(gated.find(&header, 0).unwrap(), Some(0));
        assert_eq!(gated.details(&header, 0, &entry(0)).unwrap(), b"{0}");
        assert!(longest <= LISTS + 2 * header.list_bytes(), "{longest}");
    }

    #[test]
    fn a_list_of_the_living_grows_and_wider_details_move_it() {
        let (_dir, name, lock) = file();
        // Whoever comes has a description of its own, and so have those whose bytes it asks for.
        let others = LockFile::open(&lock.path, false).unwrap().unwrap();
        let visitor = LockFile::open(&lock.path, false).unwrap().unwrap();
        let gated = visitor.gate(PATIENCE).unwrap();
        let mut header = gated.header_of(&name).unwrap();
        for ticket in 1..100 {
            others.take(layout::alive(ticket)).unwrap();
            gated.append(&mut header, &entry(ticket), b"{x}").unwrap();
        }
        drop(gated);
        let gated = lock.gate(PATIENCE).unwrap();
        assert!(header.capacity >= 100);
        let mut mine = entry(0);
        gated.write_details(&mut header, 0, &mut mine, &[b'y'; 5000]).unwrap();
        assert_eq!(header.details_size, 8192);
        let index = gated.find(&header, 0).unwrap().unwrap();
        assert_eq!(gated.details(&header, index, &mine).unwrap(), [b'y'; 5000]);
        for ticket in 1..100 {
            let index = gated.find(&header, ticket).unwrap().unwrap();
            assert_eq!(gated.details(&header, index, &entry(ticket)).unwrap(), b"{x}");
        }
    }

    #[test]
    fn a_file_in_use_is_not_removed_and_an_idle_one_is() {
        let (_dir, _, lock) = file();
        let clear = || visit(&lock.path, false, |gated| gated.remove_if_idle()).unwrap();
        clear();
        assert!(lock.path.exists());
        lock.unlock(Range::ALL);
        clear();
        assert!(!lock.path.exists() && !lock.is_current().unwrap());
    }
}
