//! What can go wrong with files, and the sentence that tells a user what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use tollgate_core::{Error, ErrorKind};

/// The result of anything that touches the folder.
pub(crate) type Result<T, E = Trouble> = std::result::Result<T, E>;

/// Something that went wrong in the folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("{}", io_sentence(path, source))]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the token counter {} is damaged ({what}); restore it, or if it is lost for good move the whole \
         folder away and, in the new one, raise the token floor above every token a resource has seen",
        path.display()
    )]
    DamagedCounter { path: PathBuf, what: String },
    #[error(
        "the lock file {} is damaged while in use ({what}); stop the processes that use this lock and \
         delete the file",
        path.display()
    )]
    DamagedLock { path: PathBuf, what: &'static str },
    #[error(
        "the mark {} is damaged ({what}), and nobody is let in; restore it, or if it is lost for good stop everybody who \
         writes, delete it and go on",
        path.display()
    )]
    DamagedMark { path: PathBuf, what: &'static str },
    #[error(
        "another process seems to be stopped while it works on {}; continue it or kill it \
         (`fuser {}` names those who have it open)",
        path.display(), path.display()
    )]
    Stuck { path: PathBuf },
    #[error(
        "{} is on {file_system}, where locks of other machines or programs may not be seen; choose a \
         folder on a local disk with `file:DIR`, or a lock server",
        path.display()
    )]
    Network { path: PathBuf, file_system: &'static str },
    #[error(
        "{} says {found:?}, and this program knows layout 1; use the tollgate that wrote it or a newer \
         one, or another folder",
        path.display()
    )]
    Layout { path: PathBuf, found: String },
    #[error("{} is not a folder; pass a folder as `file:DIR`", path.display())]
    NotAFolder { path: PathBuf },
    #[error(
        "the tokens of {} are used up: 2^53 - 1 was reached; was the token floor raised too far?",
        path.display()
    )]
    TokensUsedUp { path: PathBuf },
    #[error("the lock's file {} was removed while it was waited for; take the lock again", path.display())]
    Vanished { path: PathBuf },
    #[error("{0}")]
    Threads(String),
}

impl Trouble {
    /// Adds the file to an error of the operating system.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn counter(path: &Path, what: impl Into<String>) -> Self {
        Self::DamagedCounter { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn lock(path: &Path, what: &'static str) -> Self {
        Self::DamagedLock { path: path.to_owned(), what }
    }

    pub(crate) fn mark(path: &Path, what: &'static str) -> Self {
        Self::DamagedMark { path: path.to_owned(), what }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => io_kind(source),
            Self::Stuck { .. } | Self::Threads(_) => ErrorKind::Unavailable,
            Self::Vanished { .. } => ErrorKind::Lost,
            Self::DamagedCounter { .. }
            | Self::DamagedLock { .. }
            | Self::DamagedMark { .. }
            | Self::Network { .. }
            | Self::Layout { .. }
            | Self::NotAFolder { .. }
            | Self::TokensUsedUp { .. } => ErrorKind::Config,
        }
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        let error = Error::new(trouble.kind(), trouble.to_string());
        match trouble {
            Trouble::Io { source, .. } => error.caused_by(source),
            _ => error,
        }
    }
}

fn io_kind(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(
            libc::EACCES
            | libc::EPERM
            | libc::EROFS
            | libc::ENOTDIR
            | libc::EEXIST
            | libc::ENOENT
            | libc::ELOOP
            | libc::EISDIR
            | libc::ENAMETOOLONG
            | libc::EINVAL
            | libc::ENOSYS
            | libc::EOPNOTSUPP,
        ) => ErrorKind::Config,
        Some(_) => ErrorKind::Unavailable,
        None => ErrorKind::Unexpected,
    }
}

fn io_sentence(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            format!(
                "no permission for {path}; let this user write there, or choose another folder with `file:DIR`"
            )
        }
        Some(libc::EROFS) => {
            format!("{path} is on a read-only file system; choose another folder with `file:DIR`")
        }
        Some(libc::ENOTDIR | libc::EEXIST) => {
            format!("part of {path} is not a folder; pass a folder as `file:DIR`")
        }
        Some(libc::ENOENT) => {
            format!(
                "{path} is not there and cannot be made, or was removed while in use; choose a folder that stays"
            )
        }
        Some(libc::ELOOP | libc::EISDIR) => {
            format!("{path} is not a file that tollgate made; remove it")
        }
        Some(libc::ENOSPC | libc::EDQUOT) => format!("the disk is full at {path}; make room and try again"),
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("too many open files at {path}: every claim needs one; raise the limit with `ulimit -n`")
        }
        Some(libc::ENOLCK) => format!("the kernel has no room for another lock on {path}"),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => format!(
            "{path} cannot be locked ({error}); the file system or kernel lacks open-file-description locks"
        ),
        _ => format!("{path}: {error}"),
    }
}
