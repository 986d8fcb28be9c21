//! Where a holder process is found: a socket in a folder that only its user can enter, named in the
//! grant.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tollgate::{Error, ErrorKind, Grant, Result};

use crate::clock::now;

/// The prefix of a handle that names a holder's socket; other handles belong to an engine.
const HANDLE: &str = "holder:";
/// The longest path of a socket; the kernel has room for this and a zero byte.
const LONGEST_PATH: usize = 107;

/// The `handle` of a grant whose holder listens at `path`.
pub(crate) fn handle_of(path: &Path) -> String {
    format!("{HANDLE}{}", path.display())
}

/// The path where the holder of `grant` listens; `None` if the engine keeps the grant.
pub(crate) fn path_in(grant: &Grant) -> Option<PathBuf> {
    grant.handle.as_deref()?.strip_prefix(HANDLE).map(PathBuf::from)
}

/// Paths for a new socket, the best one first. No other process uses them, and they do not reveal
/// the owner id, which is a secret.
pub(super) fn new_paths() -> Result<Vec<PathBuf>> {
    // The pid and the time together are unique.
    let name = format!("{}-{:x}.sock", std::process::id(), now().as_nanos());
    let (mut usable, mut what) = (Vec::new(), String::new());
    for folder in folders() {
        let path = folder.join(&name);
        match is_usable(&path) {
            Ok(()) => usable.push(path),
            Err(wrong) => what = wrong,
        }
    }
    if usable.is_empty() {
        let message = format!("{what}; set XDG_RUNTIME_DIR to a folder that only you can enter");
        return Err(Error::new(ErrorKind::Config, message)
            .during("find a folder for the socket of the holder process"));
    }
    Ok(usable)
}

/// The folders where this user's sockets may be, the best one first.
pub(super) fn folders() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|runtime| runtime.is_absolute() && is_private(runtime).is_ok());
    let user = rustix::process::geteuid().as_raw();
    let shared = PathBuf::from(format!("/tmp/tollgate-{user}"));
    runtime.map(|runtime| runtime.join("tollgate")).into_iter().chain([shared]).collect()
}

/// Creates the folder of `path` if it does not exist; an error says why the path cannot be used.
fn is_usable(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    if path.as_os_str().as_bytes().len() > LONGEST_PATH || path.to_str().is_none() {
        return Err(format!("{} is too long or not UTF-8", path.display()));
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be created ({error})", folder.display()))
        }
        _ => is_private(folder).and_then(|()| open_to_its_owner(folder)),
    }
}

/// Gives the owner access to the folder, whatever the umask was when it was created.
fn open_to_its_owner(folder: &Path) -> Result<(), String> {
    let opened = std::fs::metadata(folder).and_then(|found| match found.mode() & 0o700 {
        0o700 => Ok(()),
        _ => std::fs::set_permissions(folder, Permissions::from_mode(0o700)),
    });
    opened.map_err(|error| format!("{} cannot be entered ({error})", folder.display()))
}

/// Whether `folder` is a real folder of this user that no other user can enter.
fn is_private(folder: &Path) -> Result<(), String> {
    let path = folder.display();
    let found = std::fs::symlink_metadata(folder).map_err(|error| format!("{path}: {error}"))?;
    if !found.is_dir() {
        return Err(format!("{path} is not a folder"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{path} belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("{path} can be entered by other users"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_a_real_folder_that_is_ours_alone_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        mode(0o700);
        assert_eq!(is_usable(&folder.path().join("made/x.sock")), Ok(()));
        assert_eq!(is_private(&folder.path().join("made")), Ok(()));
        let made = folder.path().join("made");
        std::fs::set_permissions(&made, Permissions::from_mode(0o000)).unwrap();
        assert_eq!(is_usable(&made.join("x.sock")), Ok(()));
        let mode_of_made = std::fs::metadata(&made).unwrap().mode() & 0o777;
        assert_eq!(mode_of_made, 0o700, "made with a umask that leaves nothing");
        symlink(folder.path(), folder.path().join("link")).unwrap();
        assert!(is_usable(&folder.path().join("link/x.sock")).unwrap_err().contains("not a folder"));
        mode(0o750);
        assert!(is_private(folder.path()).unwrap_err().contains("other users"));
        let long = folder.path().join("x".repeat(LONGEST_PATH));
        assert!(is_usable(&long.join("x.sock")).unwrap_err().contains("too long"));
    }
}
