//! A gate whose marks are files in a folder of this host.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Semaphore;
use tollgate_core::gate::{self, Confirmed};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, Keeper, Result, Token};

use crate::dir::{Dir, FilePath};
use crate::error::Trouble;
use crate::folder;
use crate::mark_file::{KeptMark, LockedMark};

/// How many marks are kept open at most, beyond which all are opened anew, and how many are worked on at a time.
const MOST: usize = 256;
/// Which part of the files that a process may open they are at most, each.
const PART: u64 = 8;

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
    /// Each mark that is worked on is an open file.
    at_work: Arc<Semaphore>,
}

#[derive(Debug)]
struct Shared {
    marks: Arc<Dir>,
    confirmed: Confirmed,
    /// Those that were read, to be read again.
    kept: Mutex<HashMap<Box<str>, Arc<KeptMark>>>,
    most: usize,
}

impl FileGate {
    /// Opens the marks in `dir`, which is made if it is not there. Does file I/O.
    ///
    /// # Errors
    /// `Config` if `dir` cannot hold marks: not a folder, not writable, on a network file system, or of another layout.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let marks = set_up(dir.as_ref()).map_err(|trouble| Error::from(trouble).during("open"))?;
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(files / PART).unwrap_or(MOST).clamp(1, MOST);
        let shared = Shared { marks, confirmed: Confirmed::default(), kept: Mutex::default(), most };
        Ok(Self {
            shared: Arc::new(shared),
            keeper: Keeper::global()?,
            at_work: Arc::new(Semaphore::new(most)),
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
        // Never closed. It stays with the work, which goes on if this is dropped.
        let at_work = self.at_work.clone().acquire_owned().await;
        let done = self.keeper.spawn_blocking(move || {
            let done = work(&shared);
            drop(at_work);
            done
        });
        let done = done.await;
        done.unwrap_or_else(|panic| {
            Err(Error::new(ErrorKind::Unexpected, "a file operation panicked").caused_by(panic))
        })
    }
}

fn set_up(dir: &Path) -> Result<Arc<Dir>, Trouble> {
    let dir = std::path::absolute(dir).map_err(Trouble::at(dir))?;
    std::fs::create_dir_all(&dir).map_err(Trouble::at(&dir))?;
    folder::refuse_network(&dir)?;
    let dir = Arc::new(Dir::open(&dir)?);
    // It need not have locks, but if it has they are of a layout that is known.
    folder::is_initialised(&dir)?;
    let marks = dir.make_sub("marks")?;
    marks.check_writable()?;
    marks.sweep()?;
    dir.sync()?;
    Ok(Arc::new(marks))
}

impl Shared {
    fn file(&self, resource: &str) -> FilePath {
        FilePath::new(&self.marks, folder::hex(&folder::hash_of(resource.as_bytes())))
    }

    /// The file of the mark, if there is one.
    fn file_if_made(&self, resource: &str) -> Result<Option<FilePath>, Trouble> {
        let file = self.file(resource);
        if file.exists()? {
            return Ok(Some(file));
        }
        // There may be one in a folder that took the place of this one.
        self.marks.is_in_place()?;
        Ok(None)
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
        let found = KeptMark::open(self.file(resource)).map(Arc::new);
        let mark = found.as_ref().and_then(|found| found.peek());
        let mut kept = kept();
        if kept.len() >= self.most && !kept.contains_key(resource) {
            kept.clear();
        }
        match found {
            Some(found) => kept.insert(resource.into(), found),
            None => kept.remove(resource),
        };
        mark
    }

    fn admit(&self, resource: &str, fence: Fence) -> Result<()> {
        let file = if fence.is_exclusive() {
            self.file(resource)
        } else {
            // A reader makes nothing.
            let Some(file) = self.file_if_made(resource)? else { return Ok(()) };
            file
        };
        let mut locked = LockedMark::lock(&file, resource)?;
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
        let Some(file) = self.file_if_made(resource)? else { return Ok(None) };
        Ok(LockedMark::lock(&file, resource)?.mark().highest())
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
