//! What a careful script does without us: lock a file, raise a number, wait for the disk.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

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

    /// The folder of its own, which is removed when this is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Contender for PlainFile {
    fn name(&self) -> &str {
        "flock + fdatasync"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        let client = Plain { folder: self.folder.path().to_owned(), open: Mutex::default() };
        Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Client>) })
    }

    fn can_wait(&self) -> bool {
        false
    }
}

struct Plain {
    folder: PathBuf,
    /// Files stay open, as a program that cares for speed would have it. Only a few: there may be many names.
    open: Mutex<HashMap<String, Arc<File>>>,
}

/// How many files stay open.
const OPEN: usize = 32;

impl Plain {
    fn file(&self, name: &str) -> Result<Arc<File>, Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(name) {
            return Ok(file.clone());
        }
        let path = self.folder.join(name.replace('/', "%"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = Arc::new(file);
        if open.len() < OPEN {
            open.insert(name.to_owned(), file.clone());
        }
        Ok(file)
    }
}

impl Client for Plain {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        // On the caller's thread: that is how such a program works, and what it costs.
        Box::pin(async move {
            let file = self.file(name)?;
            file.lock()?;
            raise(&file)?;
            Ok(Box::new(Locked(file)) as Box<dyn Held>)
        })
    }
}

/// Draws a token: the number in the file, and one more.
fn raise(file: &File) -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    // A new file is empty, and its number zero.
    let _ = file.read_at(&mut bytes, 0)?;
    let token = u64::from_le_bytes(bytes) + 1;
    file.write_all_at(&token.to_le_bytes(), 0)?;
    file.sync_data()?;
    Ok(token)
}

struct Locked(Arc<File>);

impl Held for Locked {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move { Ok(self.0.unlock()?) })
    }
}
