//! The store in one file, by redb: one writer, one fsync for each commit, checksums.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};

use super::disk_file::DiskFile;
use super::store::{Row, Store, StoreError, Table, Write};

/// One file with a table for each [`Table`].
pub struct RedbStore {
    file: PathBuf,
    /// `None` while it could not be opened again after a full disk.
    database: Option<Database>,
    /// Whether a sync of the file failed; `None` if the disk is a test's.
    has_failed: Option<Arc<AtomicBool>>,
}

const fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(match table {
        Table::Header => "header",
        Table::Grants => "grants",
        Table::Delays => "delays",
        Table::Marks => "marks",
    })
}

impl RedbStore {
    /// Opens the file, or makes it, and checks every page. No other process can open it meanwhile.
    pub fn open(file: &Path) -> Result<Self, StoreError> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let disk = || DiskFile::open(file, true, &has_failed);
        let database = Self::checked(file, || Builder::new().create_with_backend(disk()?))?;
        Ok(Self { file: file.to_owned(), database: Some(database), has_failed: Some(has_failed) })
    }

    /// The same on a disk of the caller's, for tests.
    pub fn on(disk: impl StorageBackend) -> Result<Self, StoreError> {
        let file = Path::new("(disk)");
        let database = Self::checked(file, || Builder::new().create_with_backend(disk))?;
        Ok(Self { file: file.to_owned(), database: Some(database), has_failed: None })
    }

    /// After a crash redb repairs the file while it opens it. What does not check after that is damage, and repairing it could
    /// fall back to an earlier commit, with other grants.
    fn checked(
        file: &Path,
        open: impl FnOnce() -> Result<Database, DatabaseError>,
    ) -> Result<Database, StoreError> {
        let damaged = |detail: &str| StoreError::Damaged { file: file.to_owned(), detail: detail.to_owned() };
        // redb panics on some damage. What it had made by then must not be dropped: that would panic again.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = ManuallyDrop::new(open()?);
            let is_whole = database.check_integrity();
            is_whole.map(|is_whole| (ManuallyDrop::into_inner(database), is_whole))
        }));
        match opened {
            Ok(Ok((database, true))) => Ok(database),
            Ok(Ok((_, false))) => Err(damaged("its pages do not match their checksums")),
            Ok(Err(error)) => Err(of_open(file, error)),
            Err(_) => Err(damaged("it cannot be read as a database")),
        }
    }

    /// The database. After a full disk it is opened anew: redb refuses everything after a write
    /// that failed.
    fn database(&mut self) -> Result<&Database, StoreError> {
        if let (None, Some(has_failed)) = (&self.database, &self.has_failed) {
            let disk = || DiskFile::open(&self.file, false, has_failed);
            let database = Self::checked(&self.file, || Builder::new().create_with_backend(disk()?))?;
            self.database = Some(database);
        }
        self.database.as_ref().ok_or_else(|| self.failed(redb::Error::PreviousIo))
    }

    fn failed(&self, error: impl Into<redb::Error>) -> StoreError {
        of_use(&self.file, &error.into())
    }
}

fn of_open(file: &Path, error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(file.to_owned()),
        error => of_use(file, &error.into()),
    }
}

fn of_use(file: &Path, error: &redb::Error) -> StoreError {
    let (file, detail) = (file.to_owned(), error.to_string());
    match error {
        redb::Error::Io(io) if is_full(io) => StoreError::Full { file, detail },
        redb::Error::Io(io) if !is_damage(io) => StoreError::Io { file, detail },
        redb::Error::PreviousIo | redb::Error::LockPoisoned(_) => StoreError::Io { file, detail },
        _ => StoreError::Damaged { file, detail },
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// redb reports a file that is too short, or no database, as an I/O error.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
}

/// The file keeps the last two commits, and falls back to the one before if the last is damaged: so that this loses nothing,
/// a clean stop makes both the same.
impl Drop for RedbStore {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.database.is_some() {
            // A store that failed before fails here, too, and needs no more.
            let _ = self.commit(&[]);
        }
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Vec<Row>, StoreError> {
        let begun = self.database()?.begin_read();
        let transaction = begun.map_err(|error| self.failed(error))?;
        let mut rows = Vec::new();
        for table in Table::ALL {
            let open = match transaction.open_table(definition(table)) {
                Ok(open) => open,
                Err(redb::TableError::TableDoesNotExist(_)) => continue,
                Err(error) => return Err(self.failed(error)),
            };
            for entry in open.iter().map_err(|error| self.failed(error))? {
                let (key, value) = entry.map_err(|error| self.failed(error))?;
                rows.push(Row { table, key: key.value().to_vec(), value: value.value().to_vec() });
            }
        }
        Ok(rows)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let committed = self.write(writes);
        let Err(StoreError::Full { file, detail }) = committed else { return committed };
        match &self.has_failed {
            Some(has_failed) if !has_failed.load(Ordering::Relaxed) => {
                self.database = None;
                Err(StoreError::Full { file, detail })
            }
            _ => Err(StoreError::Io { file, detail }),
        }
    }

    fn file(&self) -> &Path {
        &self.file
    }
}

impl RedbStore {
    fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let begun = self.database()?.begin_write();
        let transaction = begun.map_err(|error| self.failed(error))?;
        for table in Table::ALL {
            let mut writes = writes.iter().filter(|write| write.table == table).peekable();
            if writes.peek().is_none() {
                continue;
            }
            let mut open = transaction.open_table(definition(table)).map_err(|error| self.failed(error))?;
            for write in writes {
                let key = write.key.as_slice();
                let written = match &write.value {
                    Some(value) => open.insert(key, value.as_slice()).map(drop),
                    None => open.remove(key).map(drop),
                };
                written.map_err(|error| self.failed(error))?;
            }
        }
        transaction.commit().map_err(|error| self.failed(error))
    }
}
