//! A file that is replaced as a whole, by whoever holds the lock and nobody else.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind as Io, Read, Write};
use std::path::{Path, PathBuf};

use tollgate_core::{Error, ErrorKind, Fence, Keeper, Result};
use tollgate_local::LockedMark;

use crate::draft::{Draft, rights};

/// A file that refuses those who have lost their lock.
///
/// Its mark, the highest token that was let in, is kept beside it, in `NAME.fence`. The check and the rename happen under one
/// kernel lock on that file, so that nobody comes in between, whichever process of this host it is.
///
/// - **All or nothing.** The new content is written to a file of its own, brought to the disk and renamed. Whoever reads sees
///   the old content or the new one, also after a crash at any moment, and the mark is never behind the content.
/// - **Nobody waits for content.** It is written before the lock is taken and read after it is given back: who is stopped in the
///   middle keeps nobody out.
/// - **Admit before the first read**: [`read`](Self::read) does.
/// - **Every write has to come through here.** A plain `write` is not stopped by anything.
/// - The mode of the file stays, and its owner where the system lets us. Links are not followed: two names of one file would
///   have two marks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// use tollgate_fence::FencedFile;
///
/// # let dir = tempfile::tempdir().expect("a folder");
/// # let path = dir.path().join("total");
/// let locks = tollgate::connect("memory:doc-fenced-file").await?;
/// let total = FencedFile::at(&path);
///
/// let guard = locks.lock("total").acquire().await?;
/// let seen = total.read(guard.fence()?).await?;
/// assert_eq!(seen, None);
/// // However long this takes: what comes too late is refused.
/// total.replace(guard.fence()?, "17").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedFile {
    path: PathBuf,
}

impl FencedFile {
    /// The file at `path`, which need not be there yet. Its folder has to be.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Lets a holder in, which shuts out everybody before it, and reads the file; nothing if there is none.
    ///
    /// # Errors
    /// `Lost` if somebody was in after this holder; `Config` if the file or its mark cannot be used, `Unavailable` if the disk
    /// is full.
    pub async fn read(&self, fence: Fence) -> Result<Option<Vec<u8>>> {
        let place = self.clone();
        blocking("read", move || {
            let place = place.resolved()?;
            let Some(mut file) = place.open(fence)? else { return Ok(None) };
            let mut content = Vec::new();
            file.read_to_end(&mut content).map_err(|error| trouble(&place.file, error))?;
            Ok(Some(content))
        })
        .await
    }

    /// Replaces the content, if nobody was in after this holder.
    ///
    /// # Errors
    /// As [`read`](Self::read). The old content is there as it was then.
    pub async fn replace(&self, fence: Fence, content: impl Into<Vec<u8>>) -> Result<()> {
        let content = content.into();
        self.replace_with(fence, move |file| file.write_all(&content)).await
    }

    /// The same, for content that is not in memory: `write` is given the new file, on a thread that may block.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `Unavailable` with what `write` failed with.
    pub async fn replace_with(
        &self,
        fence: Fence,
        write: impl FnOnce(&mut File) -> io::Result<()> + Send + 'static,
    ) -> Result<()> {
        let place = self.clone();
        blocking("replace", move || place.resolved()?.replace(fence, write)).await
    }

    fn resolved(&self) -> Result<Place> {
        let name = self.path.file_name().ok_or_else(|| {
            Error::invalid(format!("{} is not a file name; name the file", self.path.display()))
        })?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // One folder by two names would have one mark all the same; the file itself must not have two.
        let folder = fs::canonicalize(folder).map_err(|error| match error.kind() {
            Io::NotFound => {
                let message = format!("the folder {} does not exist; create it first", folder.display());
                Error::new(ErrorKind::Config, message).caused_by(error)
            }
            _ => trouble(folder, error),
        })?;
        if !folder.is_dir() {
            let message = format!("{} is not a folder; name a file in one", folder.display());
            return Err(Error::new(ErrorKind::Config, message));
        }
        let beside = |suffix: &str| {
            let mut name = name.to_owned();
            name.push(suffix);
            folder.join(name)
        };
        Ok(Place { file: folder.join(name), mark: beside(".fence"), draft: beside(".fence-new"), folder })
    }
}

/// Where everything is.
struct Place {
    folder: PathBuf,
    file: PathBuf,
    mark: PathBuf,
    /// What the names of new content begin with.
    draft: PathBuf,
}

impl Place {
    fn old(&self) -> Result<Option<Metadata>> {
        match fs::symlink_metadata(&self.file) {
            Ok(old) if old.is_file() => Ok(Some(old)),
            Ok(old) if old.is_symlink() => Err(Error::invalid(format!(
                "{} is a symbolic link, and a file has one mark; name the file that the link points to",
                self.file.display()
            ))),
            Ok(_) => Err(Error::invalid(format!("{} is not a regular file; name one", self.file.display()))),
            Err(error) if error.kind() == Io::NotFound => Ok(None),
            Err(error) => Err(trouble(&self.file, error)),
        }
    }

    /// Lets a holder in, and opens what is there then: it stays as it is, whoever replaces the file.
    fn open(&self, fence: Fence) -> Result<Option<File>> {
        self.old()?;
        let mut locked = self.lock()?;
        locked.mark().admit(fence)?;
        if fence.is_exclusive() {
            self.raise(&mut locked, fence)?;
        }
        match File::open(&self.file) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == Io::NotFound => Ok(None),
            Err(error) => Err(trouble(&self.file, error)),
        }
    }

    fn lock(&self) -> Result<LockedMark> {
        LockedMark::at(&self.mark, &self.file.to_string_lossy())
    }

    fn raise(&self, locked: &mut LockedMark, fence: Fence) -> Result<()> {
        let is_first = locked.mark().highest().is_none();
        locked.raise(fence.token())?;
        if is_first { locked.keep_name() } else { Ok(()) }
    }

    fn replace(&self, fence: Fence, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        if !fence.is_exclusive() {
            return Err(Error::invalid(
                "the token of a shared lock allows reading and not writing; take the lock exclusively to \
                 replace the file",
            ));
        }
        let old = self.old()?;
        // Who is stale already need not write anything. The lock is given back at once.
        self.lock()?.mark().admit(fence)?;
        let trouble_here = |error| trouble(&self.file, error);
        let mut draft =
            Draft::beside(&self.draft, old.as_ref()).map_err(|error| trouble(&self.draft, error))?;
        write(draft.file()).and_then(|()| draft.file().sync_all()).map_err(trouble_here)?;
        let mut locked = self.lock()?;
        locked.mark().admit(fence)?;
        let now = self.old()?;
        if let Some(now) = now.as_ref().filter(|now| old.as_ref().map(rights) != Some(rights(now))) {
            draft.take_rights(now).and_then(|()| draft.file().sync_all()).map_err(trouble_here)?;
        }
        // Before the content: a mark without content shuts out the stale, content without a mark lets them in.
        self.raise(&mut locked, fence)?;
        draft.rename(&self.file).map_err(trouble_here)?;
        sync_folder(&self.folder).map_err(|error| {
            let message =
                format!("{} has its new content, which may not survive a crash", self.file.display());
            Error::new(error.kind(), message).caused_by(error)
        })
    }
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| trouble(folder, error))
}

async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = Keeper::global()?.spawn_blocking(work).await;
    let done = done.unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Unexpected, "a file operation panicked").caused_by(panic))
    });
    done.map_err(|error| error.during(operation))
}

fn trouble(path: &Path, error: io::Error) -> Error {
    let path = path.display();
    let (kind, message) = match error.kind() {
        Io::PermissionDenied => (
            ErrorKind::Config,
            format!(
                "no permission for {path}; let this user write to its folder, where the new content is \
                 created"
            ),
        ),
        Io::ReadOnlyFilesystem => (ErrorKind::Config, format!("{path} is on a read-only file system")),
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => (
            ErrorKind::Unavailable,
            format!("the disk has no space for the new content of {path}; the old content is kept"),
        ),
        Io::NotADirectory | Io::InvalidFilename => {
            (ErrorKind::Config, format!("{path} is not a valid file name"))
        }
        _ => (ErrorKind::Unavailable, format!("{path} cannot be replaced or read; the old content is kept")),
    };
    Error::new(kind, message).caused_by(error)
}
