//! What a careful script does without us: lock a file, raise a number, wait for the disk.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contender::{Client, Contender, Failure, Held, Waiting};

/// `flock` and a synced counter, in a folder of its own.
pub struct PlainFile {
    folder: tempfile::TempDir,
}

impl PlainFile {
    /// The folder a `file:` URL means; `None` for other engines. Fails if there is no such folder by default.
    pub fn folder_of(url: &str) -> tollgate::Result<Option<PathBuf>> {
        let Some(rest) = url.strip_prefix("file:") else { return Ok(None) };
        let path = rest.split('?').next().unwrap_or_default();
        let path = path.strip_prefix("//").unwrap_or(path);
        Ok(Some(if path.is_empty() { tollgate_local::default_dir()? } else { PathBuf::from(path) }))
    }

    /// In a new folder inside `parent`, so that both are on one file system.
    pub fn new(parent: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(parent)?;
        Ok(Self { folder: tempfile::Builder::new().prefix("bench-plain-").tempdir_in(parent)? })
    }
}

impl Contender for PlainFile {
    fn name(&self) -> &str {
        "flock + fdatasync"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(
            async move { Ok(Arc::new(Plain { folder: self.folder.path().to_owned() }) as Arc<dyn Client>) },
        )
    }

    fn can_wait(&self) -> bool {
        false
    }
}

struct Plain {
    folder: PathBuf,
}

impl Client for Plain {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let path = self.folder.join(name.replace('/', "%"));
            // On the caller's thread: that is how such a script works, and what it costs.
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            file.lock()?;
            raise(&file)?;
            Ok(Box::new(Locked(file)) as Box<dyn Held>)
        })
    }
}

/// A token as everybody would draw one.
fn raise(file: &File) -> Result<(), Failure> {
    static TOKEN: AtomicU64 = AtomicU64::new(0);
    file.write_all_at(&TOKEN.fetch_add(1, Ordering::Relaxed).to_le_bytes(), 0)?;
    Ok(file.sync_data()?)
}

struct Locked(File);

impl Held for Locked {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move { Ok(self.0.unlock()?) })
    }
}
