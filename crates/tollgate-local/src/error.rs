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
         folder away and, in the new one, raise the token floor above every token that a resource has \
         admitted",
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
        "the mark {} is damaged ({what}), and no token is admitted; restore it, or if it is lost for good \
         stop every writer, delete it and restart the writers",
        path.display()
    )]
    DamagedMark { path: PathBuf, what: &'static str },
    #[error(
        "another process seems to be stopped while it works on {}; continue it or kill it (`fuser {}` \
         lists the processes that have it open)",
        path.display(), path.display()
    )]
    Stuck { path: PathBuf },
    #[error(
        "{} is on {file_system}, where locks of other machines or programs may not be visible; choose a \
         folder on a local disk with `file:DIR`, or a lock server",
        path.display()
    )]
    Network { path: PathBuf, file_system: &'static str },
    #[error(
        "{} says {found:?}, and this program supports layout 1; use the tollgate that wrote it or a newer \
         one, or another folder",
        path.display()
    )]
    Layout { path: PathBuf, found: String },
    #[error("{} is not a folder; pass a folder as `file:DIR`", path.display())]
    NotAFolder { path: PathBuf },
    #[error(
        "{} is {what}, and has to be a folder that tollgate created; find out where it comes from, and \
         remove it",
        path.display()
    )]
    InTheWay { path: PathBuf, what: &'static str },
    #[error(
        "{} is not a file that tollgate created ({what}); find out where it comes from, and move it away",
        path.display()
    )]
    Foreign { path: PathBuf, what: &'static str },
    #[error(
        "the folder {} was replaced while in use: other processes use the new folder; connect again",
        path.display()
    )]
    Replaced { path: PathBuf },
    #[error(
        "the tokens of {} are used up: 2^53 - 1 was reached; was the token floor raised too far?",
        path.display()
    )]
    TokensUsedUp { path: PathBuf },
    #[error("the lock's file {} was removed while this claim waited for it; take the lock again", path.display())]
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

    pub(crate) fn foreign(path: &Path, what: &'static str) -> Self {
        Self::Foreign { path: path.to_owned(), what }
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
            | Self::InTheWay { .. }
            | Self::Foreign { .. }
            | Self::Replaced { .. }
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
                "{path} does not exist and cannot be created, or was removed while in use; choose a folder \
                 that is not removed"
            )
        }
        Some(libc::ELOOP | libc::EISDIR) => {
            format!("{path} is not a file that tollgate created; find out where it comes from, and remove it")
        }
        Some(libc::ENOSPC | libc::EDQUOT) => {
            format!("the disk is full at {path}; free some space and try again")
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("too many open files at {path}: every claim needs one; raise the limit with `ulimit -n`")
        }
        Some(libc::ENOLCK) => format!("the kernel cannot allocate another lock on {path}"),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => format!(
            "{path} cannot be locked ({error}); the file system or kernel lacks open-file-description locks"
        ),
        _ => format!("{path}: {error}"),
    }
}
