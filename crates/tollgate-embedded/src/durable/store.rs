//! The disk as the durable engine sees it: rows in four tables, and batches of writes.

use std::path::{Path, PathBuf};

/// A place for rows that survive a crash and a power loss.
pub trait Store: Send + 'static {
    /// Every row, in any order.
    fn load(&mut self) -> Result<Vec<Row>, StoreError>;

    /// Makes all of `writes` durable in one step. When it returns `Ok` they survive a power loss. After
    /// [`StoreError::Full`] the same writes may be committed again, and nothing else; after any other
    /// error it is unknown whether they survive, and the store must not be used any more.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// The file, for messages.
    fn file(&self) -> &Path;

    /// What is wrong with its rows.
    fn damaged(&self, detail: String) -> StoreError {
        StoreError::Damaged { file: self.file().to_owned(), detail }
    }
}

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One row: the version of the format, the token ceiling, the engine's time.
    Header,
    /// A row for each grant.
    Grants,
    /// A row for each lock whose lock-delay runs.
    Delays,
    /// A row for each resource with a fence mark.
    Marks,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Header, Self::Grants, Self::Delays, Self::Marks];
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its table.
    pub table: Table,
    /// Unique in the table.
    pub key: Vec<u8>,
    /// What it says.
    pub value: Vec<u8>,
}

/// A row that is to be there, with this value, or is to be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Its table.
    pub table: Table,
    /// Unique in the table.
    pub key: Vec<u8>,
    /// `None` removes it.
    pub value: Option<Vec<u8>>,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("another process uses the store {}; stop it first, or name another data folder", .0.display())]
    InUse(PathBuf),
    /// It was written by a later version.
    #[error(
        "the store {} has format {version}, and this version of tollgate reads formats up to {known}; start a newer tollgate",
        .file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        version: u32,
        /// The latest format that this version knows.
        known: u32,
    },
    /// It does not hold what was written.
    #[error(
        "the store {} is damaged: {detail}; restore a backup of the file, and start with --token-floor N, where N is at least the \
         largest token that any client or resource has seen",
        .file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The disk has no room. Nothing of the commit was stored, and it may be repeated.
    #[error("the disk of the store {} is full: {detail}; make room, and locks are granted again", .file.display())]
    Full {
        /// The file.
        file: PathBuf,
        /// What the operating system says.
        detail: String,
    },
    /// It cannot be read or written.
    #[error("the store {} cannot be used: {detail}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the operating system says.
        detail: String,
    },
}
