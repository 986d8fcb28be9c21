//! The store's file as redb uses it, with a memory of failed syncs.
//!
//! A commit that found no room may be repeated, except if it was a sync that failed: the kernel may
//! have dropped the pages then and still show them, so a later sync would not store them.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

type Range = Bound<u64>;

/// A file that remembers whether a sync failed.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: FileBackend,
    has_failed: Arc<AtomicBool>,
}

impl DiskFile {
    /// Opens the file, or makes it if it may be new.
    pub(super) fn open(
        path: &Path,
        may_be_new: bool,
        has_failed: &Arc<AtomicBool>,
    ) -> Result<Self, DatabaseError> {
        let mut options = OpenOptions::new();
        // It has the secrets of all holders.
        options.mode(0o600);
        let file: File = options.read(true).write(true).create(may_be_new).truncate(false).open(path)?;
        if !may_be_new && file.metadata()?.len() == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(Self { file: FileBackend::new(file)?, has_failed: has_failed.clone() })
    }
}

impl StorageBackend for DiskFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Range, end: Range) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Range, end: Range) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Range, end: Range) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Range, end: Range) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Range, end: Range) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Range, end: Range) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
