//! A file that is replaced as a whole, by whoever holds the lock and nobody else.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind as Io, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tollgate_core::{Error, ErrorKind, Fence, Keeper, Result};
use tollgate_local::LockedMark;

/// A file that refuses those who have lost their lock.
///
/// Its mark, the highest token that was let in, is kept beside it, in `NAME.fence`. The check, the new content and the
/// rename happen under one kernel lock on that file, so that nobody comes in between, whichever process of this host it is.
///
/// - **All or nothing.** The new content is written to a file of its own, brought to the disk and renamed. Whoever reads sees
///   the old content or the new one, also after a crash at any moment, and the mark is never behind the content.
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
            let _locked = place.admit(fence)?;
            match fs::read(&place.file) {
                Ok(content) => Ok(Some(content)),
                Err(error) if error.kind() == Io::NotFound => Ok(None),
                Err(error) => Err(trouble(&place.file, error)),
            }
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
            Error::invalid(format!("{} is no file's name; name the file", self.path.display()))
        })?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // One folder by two names would have one mark all the same; the file itself must not have two.
        let folder = fs::canonicalize(folder).map_err(|error| match error.kind() {
            Io::NotFound => {
                let message = format!("there is no folder {}; make it first", folder.display());
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
        Ok(Place { file: folder.join(name), mark: beside(".fence"), new: beside(".fence-new"), folder })
    }
}

/// Where everything is.
struct Place {
    folder: PathBuf,
    file: PathBuf,
    mark: PathBuf,
    /// One name is enough: whoever writes there has the mark.
    new: PathBuf,
}

impl Place {
    fn old(&self) -> Result<Option<Metadata>> {
        match fs::symlink_metadata(&self.file) {
            Ok(old) if old.is_file() => Ok(Some(old)),
            Ok(old) if old.is_symlink() => Err(Error::invalid(format!(
                "{} is a link, and a file has one mark; name the file that it leads to",
                self.file.display()
            ))),
            Ok(_) => Err(Error::invalid(format!("{} is not a plain file; name one", self.file.display()))),
            Err(error) if error.kind() == Io::NotFound => Ok(None),
            Err(error) => Err(trouble(&self.file, error)),
        }
    }

    /// Nobody else is in until what this returns is dropped.
    fn admit(&self, fence: Fence) -> Result<LockedMark> {
        self.old()?;
        let mut locked = self.lock()?;
        locked.mark().admit(fence)?;
        if fence.is_exclusive() {
            self.raise(&mut locked, fence)?;
        }
        Ok(locked)
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
        // Before anything is made beside it, and once more when nobody else can change it.
        self.old()?;
        let mut locked = self.lock()?;
        let old = self.old()?;
        locked.mark().admit(fence)?;
        let replaced = self.write_new(old.as_ref(), write).and_then(|()| {
            // Before the content: a mark without content shuts out the stale, content without a mark lets them in.
            if fence.is_exclusive() {
                self.raise(&mut locked, fence)?;
            }
            fs::rename(&self.new, &self.file).map_err(|error| trouble(&self.file, error))
        });
        if replaced.is_err() {
            // What stays is written over by the next one.
            let _ = fs::remove_file(&self.new);
        }
        replaced?;
        sync_folder(&self.folder)
    }

    fn write_new(
        &self,
        old: Option<&Metadata>,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<()> {
        // Somebody who was killed may have left one, with other rights.
        match fs::remove_file(&self.new) {
            Err(error) if error.kind() != Io::NotFound => return Err(trouble(&self.new, error)),
            _ => {}
        }
        let mode = old.map_or(0o666, |_| 0o600);
        let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(&self.new);
        let mut file = made.map_err(|error| trouble(&self.new, error))?;
        if let Some(old) = old {
            keep_rights(&file, old).map_err(|error| trouble(&self.new, error))?;
        }
        write(&mut file).and_then(|()| file.sync_all()).map_err(|error| trouble(&self.file, error))
    }
}

/// The owner first: to change it takes special bits of the mode away.
fn keep_rights(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Only some may give files away.
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(fs::Permissions::from_mode(old.permissions().mode() & 0o7777))
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
                "no permission for {path}; let this user write to its folder, where the new content is made"
            ),
        ),
        Io::ReadOnlyFilesystem => {
            (ErrorKind::Config, format!("{path} is on a file system that can only be read"))
        }
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => (
            ErrorKind::Unavailable,
            format!("there is no room for the new content of {path}; the old one is kept"),
        ),
        Io::NotADirectory | Io::InvalidFilename => {
            (ErrorKind::Config, format!("{path} cannot be a file's name"))
        }
        _ => (ErrorKind::Unavailable, format!("{path} cannot be replaced or read; the old content is kept")),
    };
    Error::new(kind, message).caused_by(error)
}
