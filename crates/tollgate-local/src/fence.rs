//! A gate whose marks are files in a folder of this host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::gate::{self, Confirmed};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, Keeper, Result, Token};

use crate::error::Trouble;
use crate::folder;
use crate::mark_file::{KeptMark, LockedMark};

/// How many marks are kept open: beyond that all are opened anew.
const KEPT: usize = 256;

/// A [`Gate`] for the processes of one host: each mark is a file in `DIR/marks`, checked and raised under one kernel lock,
/// and on the disk before anybody is told.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate_core::Result<()> {
/// use tollgate_core::{Fence, Gate, Token};
///
/// # let dir = tempfile::tempdir().expect("a folder");
/// let gate = tollgate_local::FileGate::open(dir.path())?;
/// gate.admit("report.csv", Fence::shown(Token::new(7)?, true)).await?;
/// assert_eq!(gate.highest("report.csv").await?, Token::new(7).ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileGate {
    shared: Arc<Shared>,
    keeper: Keeper,
}

#[derive(Debug)]
struct Shared {
    marks: PathBuf,
    confirmed: Confirmed,
    /// Those that were read, to be read again.
    kept: Mutex<HashMap<Box<str>, Arc<KeptMark>>>,
}

impl FileGate {
    /// Opens the marks in `dir`, which is made if it is not there. Does file I/O.
    ///
    /// # Errors
    /// `Config` if `dir` cannot hold marks: not a folder, not writable, on a network file system, or of another layout.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let marks = set_up(dir.as_ref()).map_err(|trouble| Error::from(trouble).during("open"))?;
        Ok(Self {
            shared: Arc::new(Shared { marks, confirmed: Confirmed::default(), kept: Mutex::default() }),
            keeper: Keeper::global()?,
        })
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        gate::check(resource)?;
        if let Some(decided) = self.shared.by_reading(resource, fence) {
            return decided;
        }
        let resource = resource.to_owned();
        self.blocking(move |shared| shared.admit(&resource, fence)).await
    }

    async fn mark(&self, resource: &str) -> Result<Option<Token>> {
        gate::check(resource)?;
        let resource = resource.to_owned();
        self.blocking(move |shared| shared.mark(&resource)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        let done = self.keeper.spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|panic| {
            Err(Error::new(ErrorKind::Unexpected, "a file operation panicked").caused_by(panic))
        })
    }
}

fn set_up(dir: &Path) -> Result<PathBuf, Trouble> {
    let dir = std::path::absolute(dir).map_err(Trouble::at(dir))?;
    std::fs::create_dir_all(&dir).map_err(Trouble::at(&dir))?;
    folder::refuse_network(&dir)?;
    // It need not have locks, but if it has they are of a layout that is known.
    folder::is_initialised(&dir)?;
    let marks = dir.join("marks");
    folder::make_dir(&marks)?;
    crate::sys::check_writable(&marks).map_err(Trouble::at(&marks))?;
    folder::sync_dir(&dir)?;
    Ok(marks)
}

impl Shared {
    fn path(&self, resource: &str) -> PathBuf {
        self.marks.join(folder::hex(&folder::hash_of(resource)))
    }

    /// What the mark says to who raises nothing. Two system calls on cached pages, and no change of threads.
    fn by_reading(&self, resource: &str, fence: Fence) -> Option<Result<()>> {
        if !self.confirmed.needs_no_write(resource, fence) {
            return None;
        }
        let mark = self.peek(resource)?;
        gate::by_reading(Token::new(mark).ok(), fence)
    }

    fn peek(&self, resource: &str) -> Option<u64> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(resource).cloned();
        if let Some(mark) = known.and_then(|known| known.peek()) {
            return Some(mark);
        }
        // It may be another one by now.
        let found = KeptMark::open(self.path(resource)).map(Arc::new);
        let mark = found.as_ref().and_then(|found| found.peek());
        let mut kept = kept();
        if kept.len() >= KEPT && !kept.contains_key(resource) {
            kept.clear();
        }
        match found {
            Some(found) => kept.insert(resource.into(), found),
            None => kept.remove(resource),
        };
        mark
    }

    fn admit(&self, resource: &str, fence: Fence) -> Result<()> {
        let path = self.path(resource);
        // A reader makes nothing.
        if !fence.is_exclusive() && !std::fs::exists(&path).map_err(Trouble::at(&path))? {
            return Ok(());
        }
        let mut locked = LockedMark::lock(&path, resource)?;
        locked.mark().admit(fence)?;
        if fence.is_exclusive() {
            locked.write(fence.token())?;
            if !self.confirmed.knows(resource) {
                locked.sync_folder()?;
            }
            self.confirmed.note(resource, fence.token());
        }
        Ok(())
    }

    fn mark(&self, resource: &str) -> Result<Option<Token>> {
        let path = self.path(resource);
        if !std::fs::exists(&path).map_err(Trouble::at(&path))? {
            return Ok(None);
        }
        Ok(LockedMark::lock(&path, resource)?.mark().highest())
    }
}

impl Gate for FileGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.decide(resource, fence).await.map_err(|error| error.during("admit")) })
    }

    fn admit_at_once(&self, resource: &str, fence: Fence) -> Option<Result<()>> {
        gate::check(resource).ok()?;
        let decided = self.shared.by_reading(resource, fence)?;
        Some(decided.map_err(|error| error.during("admit")))
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move { self.mark(resource).await.map_err(|error| error.during("read the mark")) })
    }
}
