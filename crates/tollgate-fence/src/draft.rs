//! New content of a file that has not got its name yet.
//!
//! Several may be writing at once, and some may have been killed in the middle. Each has a name of a few, and as long as it
//! lives a kernel lock on what is there: a name whose file nobody has locked was left behind, and is free.
//!
//! - **Invariant:** whoever has locked a file looks whether it is still the one with that name. Otherwise it was renamed
//!   meanwhile, and is somebody's content.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as Io};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// How many may write new content of one file at a time.
const NAMES: usize = 64;

/// New content, removed if it does not become anything.
pub(crate) struct Draft {
    file: File,
    path: Option<PathBuf>,
}

impl Draft {
    /// An empty file, called `name` or `name-1` and so on, with the rights of `old`.
    pub(crate) fn beside(name: &Path, old: Option<&Metadata>) -> io::Result<Self> {
        for number in 0..NAMES {
            let mut path = name.as_os_str().to_owned();
            if number > 0 {
                path.push(format!("-{number}"));
            }
            let path = PathBuf::from(path);
            let mode = old.map_or(0o666, |_| 0o600);
            if let Some(file) = create(&path, mode)? {
                let draft = Self { file, path: Some(path) };
                if let Some(old) = old {
                    draft.take_rights(old)?;
                }
                return Ok(draft);
            }
        }
        Err(io::Error::new(Io::ResourceBusy, format!("{NAMES} other writers are writing new content")))
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// The owner first: to change it takes special bits of the mode away.
    pub(crate) fn take_rights(&self, old: &Metadata) -> io::Result<()> {
        let new = self.file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            // Only some may give files away.
            let _ = fchown(&self.file, Some(old.uid()), Some(old.gid()));
        }
        self.file.set_permissions(fs::Permissions::from_mode(old.permissions().mode() & 0o7777))
    }

    /// Becomes the content of `file`.
    pub(crate) fn rename(mut self, file: &Path) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        fs::rename(path, file)?;
        self.path = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // What stays is free for the next one.
            let _ = fs::remove_file(path);
        }
    }
}

/// Whose a file is, and what others may do with it.
pub(crate) fn rights(of: &Metadata) -> (u32, u32, u32) {
    (of.uid(), of.gid(), of.mode() & 0o7777)
}

/// Makes the file, locked; nothing if somebody else has it.
fn create(path: &Path, mode: u32) -> io::Result<Option<File>> {
    loop {
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
            // Somebody may take it for left behind before it is locked.
            Ok(file) => match is_ours(&file, path)? {
                true => return Ok(Some(file)),
                false => continue,
            },
            Err(error) if error.kind() == Io::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let left = match OpenOptions::new().read(true).custom_flags(FLAGS).open(path) {
            Ok(left) => left,
            Err(error) if error.kind() == Io::NotFound => continue,
            // Whether somebody is writing there cannot be found out.
            Err(_) => return Ok(None),
        };
        match left.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if is_at(&left, path)? {
            // With other rights, perhaps: it is made anew.
            fs::remove_file(path)?;
        }
    }
}

/// Neither a link nor a pipe may be there; who put it there is in its own way only.
const FLAGS: i32 = (rustix::fs::OFlags::NOFOLLOW.bits() | rustix::fs::OFlags::NONBLOCK.bits()) as i32;

fn is_ours(file: &File, path: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => is_at(file, path),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == Io::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
