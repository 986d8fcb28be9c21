//! The data folder: one server at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tollgate::{Error, ErrorKind, Result};

/// The file that says that the folder has had a store.
const MARK: &str = "has-store";

/// A data folder that this process has to itself, as long as this value lives.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is not there, readable for this user alone, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self> {
        let cannot = |what: &str, error: std::io::Error| {
            let message = format!("the data folder {} {what}; --data chooses another", path.display());
            Error::new(ErrorKind::Unavailable, message).caused_by(error)
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| cannot("cannot be made", error))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("server.pid"))
            .map_err(|error| cannot("cannot be written", error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // A server that is just starting may not have written it yet.
            let _ = file.read_to_string(&mut pid);
            let message = format!(
                "another server (process {}) uses the data folder {}; stop it first, or choose another \
                 folder with --data",
                pid.trim(),
                path.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        // Only a reader of the file needs it: a disk that is full must not keep the server from starting.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// Refuses a folder whose store is gone, and says whether the folder is new. After a restore
    /// (`is_restored`) a new store may be made: the token floor stands for the one that is lost.
    pub(super) fn check(&self, is_restored: bool) -> Result<bool> {
        let is_there = fs::metadata(self.store()).is_ok_and(|store| store.len() > 0);
        if is_there || is_restored || !self.path.join(MARK).exists() {
            return Ok(!is_there);
        }
        let message = format!(
            "the store {} is empty or missing, although this folder had one: its locks and tokens are lost. Restore a \
             backup of the file, and start with --token-floor N, where N is at least the largest token that any \
             client or resource has seen",
            self.store().display()
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Removes what was made of a store that could not be made whole.
    pub(super) fn forget(&self) {
        let _ = fs::remove_file(self.store());
    }

    /// Notes durably that the folder has a store, so that its loss is noticed.
    pub(super) fn mark(&self) -> Result<()> {
        let path = self.path.join(MARK);
        if path.exists() {
            return Ok(());
        }
        let marked = File::create(&path).and_then(|file| file.sync_all());
        let marked = marked.and_then(|()| File::open(&self.path)?.sync_all());
        marked.map_err(|error| {
            let message = format!("{} cannot be written", path.display());
            Error::new(ErrorKind::Unavailable, message).caused_by(error)
        })
    }

    /// The file that the locks are in.
    pub(super) fn store(&self) -> PathBuf {
        self.path.join("locks.redb")
    }
}
