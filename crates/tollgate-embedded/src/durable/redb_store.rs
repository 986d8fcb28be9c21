//! The store in one file, by redb: one writer, one fsync for each commit, checksums.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};

use super::store::{Row, Store, StoreError, Table, Write};

/// One file with a table for each [`Table`].
pub struct RedbStore {
    file: PathBuf,
    database: Database,
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
        Self::checked(file, || Builder::new().create(file))
    }

    /// The same on a disk of the caller's, for tests.
    pub fn on(disk: impl StorageBackend) -> Result<Self, StoreError> {
        Self::checked(Path::new("(disk)"), || Builder::new().create_with_backend(disk))
    }

    /// After a crash redb repairs the file while it opens it. What does not check after that is damage, and repairing it could
    /// fall back to an earlier commit, with other grants.
    fn checked(
        file: &Path,
        open: impl FnOnce() -> Result<Database, DatabaseError>,
    ) -> Result<Self, StoreError> {
        let damaged = |detail: &str| StoreError::Damaged { file: file.to_owned(), detail: detail.to_owned() };
        // redb panics on some damage. What it had made by then must not be dropped: that would panic again.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = ManuallyDrop::new(open()?);
            let is_whole = database.check_integrity();
            is_whole.map(|is_whole| (ManuallyDrop::into_inner(database), is_whole))
        }));
        match opened {
            Ok(Ok((database, true))) => Ok(Self { file: file.to_owned(), database }),
            Ok(Ok((_, false))) => Err(damaged("its pages do not match their checksums")),
            Ok(Err(error)) => Err(of_open(file, error)),
            Err(_) => Err(damaged("it cannot be read as a database")),
        }
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
        redb::Error::Io(io) if !is_damage(io) => StoreError::Io { file, detail },
        redb::Error::PreviousIo | redb::Error::LockPoisoned(_) => StoreError::Io { file, detail },
        _ => StoreError::Damaged { file, detail },
    }
}

/// redb reports a file that is too short, or no database, as an I/O error.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
}

/// The file keeps the last two commits, and falls back to the one before if the last is damaged: so that this loses nothing,
/// a clean stop makes both the same.
impl Drop for RedbStore {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A store that failed before fails here, too, and needs no more.
            let _ = self.commit(&[]);
        }
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Vec<Row>, StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error))?;
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
        let transaction = self.database.begin_write().map_err(|error| self.failed(error))?;
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

    fn file(&self) -> &Path {
        &self.file
    }
}
