//! What may be done to a lock's file while its gate is locked: reading and changing the list of claims.

use std::ffi::OsStr;

use tollgate_core::LockName;

use crate::error::{Result, Trouble};
use crate::folder;
use crate::layout::{self, ENTRY_BYTES, Entry, FIRST_CAPACITY, FIRST_DETAILS, Header, LISTS, Ticket};
use crate::lockfile::{LARGE, LockFile};

/// The file while its gate is locked: nobody else reads or writes it.
#[derive(Debug)]
pub(crate) struct Gated<'a> {
    pub(crate) lock: &'a LockFile,
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
            return Err(Trouble::lock(self.lock.path(), "the file belongs to another lock"));
        }
        Ok(header)
    }

    /// Removes the file if no claim is in it, and if it is what its name says: a lock's file. Another file that has
    /// such a name stays.
    pub(crate) fn remove_if_idle(&self) -> Result<()> {
        if self.anybody()? || !self.lock.is_current()? {
            return Ok(());
        }
        let Ok(header) = self.lock.header() else { return Ok(()) };
        let is_named_so = self.lock.at().name() == OsStr::new(&folder::hex(&folder::hash_of(&header.name)));
        if is_named_so { self.lock.at().remove() } else { Ok(()) }
    }

    /// Removes a file that was made for what failed, as an empty one would stay; unless another process came
    /// between and uses it.
    pub(crate) fn or_remove_if_new<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() && self.lock.is_new() && self.anybody().is_ok_and(|anybody| !anybody) {
            let _ = self.lock.at().remove();
        }
        result
    }

    /// Starts the file again with one claim in it, `entry` but for the ticket, and takes its byte. Only
    /// when nobody else waits or holds: whatever the file says, damaged or not, is about claims that are gone.
    pub(crate) fn start(&self, name: &LockName, entry: &mut Entry, details: &[u8]) -> Result<Header> {
        let old = if self.lock.size() == 0 { None } else { self.lock.old_header()? };
        if self.lock.size() > LARGE {
            self.lock.cut()?;
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
            index = self.find(header, entry.ticket)?.ok_or_else(|| {
                Trouble::lock(self.lock.path(), "a claim is missing after its list was moved")
            })?;
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
    use std::sync::Arc;

    use tollgate_core::Mode;

    use super::*;
    use crate::dir::{Dir, FilePath};
    use crate::lockfile::{PATIENCE, visit};
    use crate::sys::Range;

    fn entry(ticket: Ticket) -> Entry {
        Entry { ticket, mode: Mode::Exclusive, token: None, left: false, revoked: false, details_len: 3 }
    }

    fn file() -> (tempfile::TempDir, LockName, LockFile) {
        let dir = tempfile::tempdir().unwrap();
        let name = LockName::new("a").unwrap();
        let start = |gated: &Gated<'_>| gated.start(&name, &mut entry(0), b"{0}");
        let folder = Arc::new(Dir::open(dir.path()).unwrap());
        let at = FilePath::new(&folder, folder::hex(&folder::hash_of(b"a")));
        let (lock, _) = visit(&at, true, start).unwrap().unwrap();
        (dir, name, lock)
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
        let others = LockFile::open(lock.at(), false).unwrap().unwrap();
        let visitor = LockFile::open(lock.at(), false).unwrap().unwrap();
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
        let clear = || visit(lock.at(), false, |gated| gated.remove_if_idle()).unwrap();
        clear();
        assert!(lock.path().exists());
        lock.unlock(Range::ALL);
        clear();
        assert!(!lock.path().exists() && !lock.is_current().unwrap());
    }
}
