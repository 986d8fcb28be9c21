//! A folder that is open. What is in it is named from its descriptor and no link is followed, so that a
//! user who may write to the folder cannot lead another user's process to other files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tollgate_core::OwnerId;

use crate::error::{Result, Trouble};
use crate::sys::{self, Identity};

/// How old a temporary file is that its process left behind: making one takes milliseconds.
const STALE: Duration = Duration::from_secs(3600);
/// Permission bits, with set-user-ID, set-group-ID and the sticky bit.
const ALL_BITS: u32 = 0o7777;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    identity: Identity,
}

impl Dir {
    /// Opens the folder at `path`, which may be a link to it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(|error| Trouble::at(path)(error.into()))?;
        Self::of(fd, path.to_owned())
    }

    fn of(fd: OwnedFd, path: PathBuf) -> Result<Self> {
        let identity = sys::identify(&fd).map_err(Trouble::at(&path))?.identity;
        Ok(Self { fd, path, identity })
    }

    /// The folder `name` in this one, if it is there. A link to a folder is refused.
    pub(crate) fn sub(&self, name: &str) -> Result<Option<Self>> {
        let path = self.path.join(name);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Self::of(fd, path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let is_link = self.stat(name).is_ok_and(|stat| file_type(&stat) == FileType::Symlink);
                Err(Trouble::InTheWay { path, what: if is_link { "a symbolic link" } else { "a file" } })
            }
            Err(error) => Err(Trouble::at(&path)(error.into())),
        }
    }

    /// The folder `name` in this one, which is made if it is not there, with the permissions of this one.
    ///
    /// It gets its name only when it has its permissions, so that no other user is refused meanwhile.
    pub(crate) fn make_sub(&self, name: &str) -> Result<Self> {
        if let Some(sub) = self.sub(name)? {
            return Ok(sub);
        }
        let temporary = temporary_name();
        let made = fs::mkdirat(&self.fd, &temporary, Mode::RWXU)
            .and_then(|()| self.share_fresh(&temporary))
            .and_then(|()| self.rename(&temporary, name));
        if made.is_err() {
            let _ = fs::unlinkat(&self.fd, &temporary, AtFlags::REMOVEDIR);
        }
        match made {
            // Another process was first.
            Ok(()) | Err(Errno::EXIST) => {}
            // A file system without such a rename.
            Err(Errno::INVAL | Errno::NOSYS) => match fs::mkdirat(&self.fd, name, Mode::RWXU) {
                Ok(()) => self.share_fresh(name).map_err(self.trouble(name))?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.trouble(name)(error)),
            },
            Err(error) => return Err(self.trouble(name)(error)),
        }
        self.sub(name)?.ok_or_else(|| self.trouble(name)(Errno::NOENT))
    }

    /// Gives the folder `name`, which this process has just made, the permissions of this one. Another one that
    /// was put in its place meanwhile stays as it is.
    fn share_fresh(&self, name: &str) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::empty())?;
        let stat = fs::fstat(&fd)?;
        let is_empty = || {
            let names = fs::Dir::read_from(&fd)?;
            Ok::<_, Errno>(names.flatten().all(|entry| is_dot(entry.file_name().to_bytes())))
        };
        let is_fresh = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o777 == 0o700 && is_empty()?;
        if is_fresh { fs::fchmod(&fd, Mode::from_raw_mode(self.mode()? & ALL_BITS)) } else { Ok(()) }
    }

    /// Makes the file `name`, whole when it gets its name. `false` if there is one already.
    pub(crate) fn create_whole(&self, name: &OsStr, bytes: &[u8]) -> Result<bool> {
        let temporary = temporary_name();
        let made = self.write_new(&temporary, bytes).and_then(|()| {
            let named = match self.rename(&temporary, name) {
                // A file system without such a rename. A link does not replace anything either.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    fs::linkat(&self.fd, &temporary, &self.fd, name, AtFlags::empty())
                        .and_then(|()| fs::unlinkat(&self.fd, &temporary, AtFlags::empty()))
                }
                renamed => renamed,
            };
            Ok(named?)
        });
        if made.is_err() {
            let _ = fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
        }
        match made {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(self.why_not_made(&self.path.join(name), error)),
        }
    }

    /// Why nothing can be made at `path` in this folder, which may have been removed, and another one made.
    pub(crate) fn why_not_made(&self, path: &Path, error: io::Error) -> Trouble {
        match self.is_in_place() {
            Err(replaced) if error.kind() == io::ErrorKind::NotFound => replaced,
            _ => Trouble::at(path)(error),
        }
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create_new(OsStr::new(name), OFlags::WRONLY)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Makes a file with the permissions that this folder gives its files.
    fn create_new(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(file_mode(self.mode()?));
        let file = File::from(fs::openat(&self.fd, name, flags, mode)?);
        // The process may have a umask.
        fs::fchmod(&file, mode)?;
        Ok(file)
    }

    fn rename(&self, from: &str, to: impl rustix::path::Arg) -> Result<(), Errno> {
        fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE)
    }

    /// Removes what processes of this user left behind that were killed while they made something here.
    pub(crate) fn sweep(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for name in self.names()? {
            let name = name.map_err(Trouble::at(&self.path))?;
            let Ok(stat) = self.stat(&name) else { continue };
            let age = now.as_secs().saturating_sub(u64::try_from(stat.st_mtime).unwrap_or(u64::MAX));
            if is_temporary(&name) && stat.st_uid == geteuid().as_raw() && age > STALE.as_secs() {
                let flags = match file_type(&stat) {
                    FileType::Directory => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                // Best effort: it disturbs nothing.
                let _ = fs::unlinkat(&self.fd, &name, flags);
            }
        }
        Ok(())
    }

    /// What this folder's own path leads to now: `true` if still to this one, `false` if to nothing. Another folder
    /// is an error: what is open here is not what others see.
    pub(crate) fn is_in_place(&self) -> Result<bool> {
        match sys::identity_of_target(&self.path).map_err(Trouble::at(&self.path))? {
            Some(identity) if identity == self.identity => Ok(true),
            Some(_) => Err(Trouble::Replaced { path: self.path.clone() }),
            None => Ok(false),
        }
    }

    /// Fails if this folder's own path does not lead to it any more.
    pub(crate) fn check_in_place(&self) -> Result<()> {
        if self.is_in_place()? { Ok(()) } else { Err(self.trouble("")(Errno::NOENT)) }
    }

    /// Whether this process may make and remove files here.
    pub(crate) fn check_writable(&self) -> Result<()> {
        fs::accessat(&self.fd, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())
            .map_err(|error| Trouble::at(&self.path)(error.into()))
    }

    /// Brings the names in it to the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        fs::fsync(&self.fd).map_err(|error| Trouble::at(&self.path)(error.into()))
    }

    /// The names of what is in it.
    pub(crate) fn names(&self) -> Result<Names> {
        let names = fs::Dir::read_from(&self.fd);
        names.map(Names).map_err(|error| Trouble::at(&self.path)(error.into()))
    }

    fn stat(&self, name: impl rustix::path::Arg) -> Result<Stat, Errno> {
        fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Its permissions as they are now.
    pub(crate) fn mode(&self) -> Result<u32, Errno> {
        Ok(fs::fstat(&self.fd)?.st_mode)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn trouble(&self, name: &str) -> impl FnOnce(Errno) -> Trouble {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        move |error| Trouble::at(&path)(error.into())
    }
}

/// The names in a folder, without `.` and `..`.
pub(crate) struct Names(fs::Dir);

impl Iterator for Names {
    type Item = io::Result<std::ffi::OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            return Some(match self.0.next()? {
                Ok(entry) if is_dot(entry.file_name().to_bytes()) => continue,
                Ok(entry) => Ok(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned()),
                Err(error) => Err(error.into()),
            });
        }
    }
}

/// A file of a folder that is open.
#[derive(Debug, Clone)]
pub(crate) struct FilePath {
    dir: Arc<Dir>,
    path: PathBuf,
}

impl FilePath {
    pub(crate) fn new(dir: &Arc<Dir>, name: impl AsRef<OsStr>) -> Self {
        Self { dir: dir.clone(), path: dir.path.join(name.as_ref()) }
    }

    /// Opens the file to read and write it. Links are not followed. A file with a lease, as file servers take it, is
    /// waited for until that is given back.
    pub(crate) fn open(&self) -> io::Result<File> {
        match self.open_at_once() {
            // To open a pipe in this way does not block either.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.open_with(OFlags::RDWR),
            opened => opened,
        }
    }

    /// The same, and never waits.
    pub(crate) fn open_at_once(&self) -> io::Result<File> {
        self.open_with(OFlags::RDWR | OFlags::NONBLOCK)
    }

    /// Opens the file to read it, and never waits.
    pub(crate) fn open_to_read(&self) -> io::Result<File> {
        self.open_with(OFlags::RDONLY | OFlags::NONBLOCK)
    }

    fn open_with(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(fs::openat(&self.dir.fd, self.name(), flags, Mode::empty())?.into())
    }

    /// Makes the file, empty, if nothing is there.
    pub(crate) fn create_new(&self) -> io::Result<File> {
        self.dir.create_new(self.name(), OFlags::RDWR)
    }

    /// Whether anything has this name.
    pub(crate) fn exists(&self) -> Result<bool> {
        match self.dir.stat(self.name()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(Trouble::at(&self.path)(error.into())),
        }
    }

    pub(crate) fn remove(&self) -> Result<()> {
        fs::unlinkat(&self.dir.fd, self.name(), AtFlags::empty())
            .map_err(|error| Trouble::at(&self.path)(error.into()))
    }

    /// Whether `identity` is that of the file that others find under this name.
    pub(crate) fn is(&self, identity: Identity) -> Result<bool> {
        Ok(sys::identity_at(&self.path).map_err(Trouble::at(&self.path))? == Some(identity))
    }

    pub(crate) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }
}

/// The permissions of a file in a folder with those of `folder`: users that may make files there may use the
/// file, and others may not even read it, because opening a file is enough to lock it.
pub(crate) fn file_mode(folder: u32) -> u32 {
    let writers = [0o600, 0o060, 0o006].into_iter().filter(|class| folder & class & 0o222 != 0);
    writers.map(|class| folder & class).sum()
}

/// A name that no other process uses, and that says whose it is.
fn temporary_name() -> String {
    format!("{TEMPORARY}{}", OwnerId::random().to_hex())
}

const TEMPORARY: &str = ".tollgate-new-";

/// Whether `name` is that of a file or folder that is being made.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let random = name.as_encoded_bytes().strip_prefix(TEMPORARY.as_bytes());
    random.is_some_and(|random| random.len() == 32 && random.iter().all(u8::is_ascii_hexdigit))
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Dir) -> Vec<String> {
        let names = dir.names().unwrap().map(|name| name.unwrap().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn of_many_that_make_one_file_or_folder_one_does_and_nothing_else_is_left() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let made: usize = std::thread::scope(|scope| {
            let makers = (0..8u8).map(|number| {
                let dir = &dir;
                scope.spawn(move || {
                    dir.make_sub("sub").unwrap();
                    usize::from(dir.create_whole("file".as_ref(), &[number; 100]).unwrap())
                })
            });
            makers.collect::<Vec<_>>().into_iter().map(|maker| maker.join().unwrap()).sum()
        });
        assert_eq!(made, 1);
        assert_eq!(names(&dir), ["file", "sub"]);
        let content = std::fs::read(place.path().join("file")).unwrap();
        assert!(content.len() == 100 && content.iter().all(|byte| *byte == content[0]));
    }

    #[test]
    fn what_was_left_half_made_long_ago_is_swept_away_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let (stale, fresh, stale_folder) = (temporary_name(), temporary_name(), temporary_name());
        for name in [stale.as_str(), fresh.as_str(), "mine", ".tollgate-new-backup"] {
            let file = File::create(place.path().join(name)).unwrap();
            if name != fresh {
                file.set_modified(old).unwrap();
            }
        }
        std::fs::create_dir(place.path().join(&stale_folder)).unwrap();
        File::open(place.path().join(&stale_folder)).unwrap().set_modified(old).unwrap();
        dir.sweep().unwrap();
        let mut left = vec![".tollgate-new-backup".to_owned(), fresh, "mine".to_owned()];
        left.sort();
        assert_eq!(names(&dir), left);
    }

    #[test]
    fn only_users_that_may_write_may_read() {
        for (folder, file) in
            [(0o755, 0o600), (0o2775, 0o660), (0o1777, 0o666), (0o711, 0o600), (0o775, 0o660), (0o555, 0)]
        {
            assert_eq!(file_mode(folder), file, "{folder:o}");
        }
    }
}
