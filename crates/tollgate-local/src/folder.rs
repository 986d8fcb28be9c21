//! The folder: making it, refusing what cannot hold locks, and where things are in it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tollgate_core::{Error, ErrorKind, LockName};

use crate::counter::Counters;
use crate::error::{Result, Trouble};
use crate::sys;

/// What the version file says.
pub(crate) const LAYOUT: &str = "tollgate file layout 1\n";
/// Setting up a folder takes milliseconds. Longer means that somebody is stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder on a local file system. It is made when the first lock is taken: looking makes nothing.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    locks: PathBuf,
    counters: OnceLock<Counters>,
}

/// Where a lock's file is and which counter numbers its grants.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) path: PathBuf,
    pub(crate) shard: u8,
}

impl Folder {
    /// Opens the folder, and refuses one that cannot hold locks as far as that can be told already.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        // Absolute, so that a later change of the working directory changes nothing.
        let dir = std::path::absolute(dir).map_err(Trouble::at(dir))?;
        let folder = Self { locks: dir.join("locks"), dir, counters: OnceLock::new() };
        if !fs::exists(&folder.dir).map_err(Trouble::at(&folder.dir))? {
            return Ok(folder);
        }
        if !folder.dir.is_dir() {
            return Err(Trouble::NotAFolder { path: folder.dir });
        }
        refuse_network(&folder.dir)?;
        if is_initialised(&folder.dir)? {
            folder.counters()?;
        } else {
            sys::check_writable(&folder.dir).map_err(Trouble::at(&folder.dir))?;
        }
        Ok(folder)
    }

    /// The counters, in a folder that is made now if it was not there.
    pub(crate) fn counters(&self) -> Result<&Counters> {
        if let Some(counters) = self.counters.get() {
            return Ok(counters);
        }
        let made = self.set_up()?;
        Ok(self.counters.get_or_init(|| made))
    }

    fn set_up(&self) -> Result<Counters> {
        fs::create_dir_all(&self.dir).map_err(Trouble::at(&self.dir))?;
        refuse_network(&self.dir)?;
        if !is_initialised(&self.dir)? {
            initialise(&self.dir)?;
        }
        make_dir(&self.locks)?;
        sys::check_writable(&self.locks).map_err(Trouble::at(&self.locks))?;
        Counters::open(self.dir.join("counters"))
    }

    /// Where the lock `name` is. Its file is named by a hash: names may be longer than a file's name, and
    /// contain what a file's name cannot.
    pub(crate) fn address(&self, name: &LockName) -> Address {
        let hash = hash_of(name.as_str());
        Address { path: self.locks.join(hex(&hash)), shard: hash[0] }
    }

    /// The folder of the lock files.
    pub(crate) fn locks(&self) -> &Path {
        &self.locks
    }
}

pub(crate) fn hash_of(name: &str) -> [u8; 32] {
    Sha256::digest(name.as_bytes()).into()
}

pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect()
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).expect("four bits are a hexadecimal digit")
}

/// The folder that `file:` means without a path: `$XDG_STATE_HOME/tollgate`, else
/// `$HOME/.local/state/tollgate`.
///
/// # Errors
/// [`ErrorKind::Config`] when neither variable has an absolute path.
pub fn default_dir() -> tollgate_core::Result<PathBuf> {
    let folder = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("tollgate"))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "neither XDG_STATE_HOME nor HOME names a folder for locks; pass one as `file:DIR`",
            )
        })
}

pub(crate) fn is_initialised(dir: &Path) -> Result<bool> {
    let path = dir.join("version");
    match read_start(&path) {
        Ok(Some(found)) if found == LAYOUT.as_bytes() => Ok(true),
        Ok(Some(found)) => {
            Err(Trouble::Layout { path, found: String::from_utf8_lossy(&found).trim().into() })
        }
        Ok(None) => Err(Trouble::Layout { path, found: "nothing: it is not a file".into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Trouble::at(&path)(error)),
    }
}

/// What a small file says, or begins with; `None` if it is no plain file. Whatever was put there in its place, a pipe
/// or something without an end, nobody waits for it.
fn read_start(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    file.take(2 * LAYOUT.len() as u64).read_to_end(&mut start)?;
    Ok(Some(start))
}

/// Makes what is in a folder, the version file last: while it is missing nothing else has been used.
fn initialise(dir: &Path) -> Result<()> {
    let _lock = lock(dir)?;
    if is_initialised(dir)? {
        return Ok(());
    }
    make_dir(&dir.join("locks"))?;
    let counters = dir.join("counters");
    // One that is there was complete when it got its name. It may have counted before the version file
    // was lost, and is never replaced.
    if sys::identity_at(&counters).map_err(Trouble::at(&counters))?.is_none() {
        let new = dir.join("counters.new");
        Counters::create(&new)?;
        share(&new, FILE)?;
        fs::rename(&new, &counters).map_err(Trouble::at(&counters))?;
        sync_dir(dir)?;
    }
    let (version, new) = (dir.join("version"), dir.join("version.new"));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(LAYOUT.as_bytes())?;
        file.sync_all()
    };
    write().map_err(Trouble::at(&version))?;
    share(&new, FILE)?;
    fs::rename(&new, &version).map_err(Trouble::at(&version))?;
    sync_dir(dir)
}

fn lock(dir: &Path) -> Result<File> {
    let file = File::open(dir).map_err(Trouble::at(dir))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(fs::TryLockError::WouldBlock) => return Err(Trouble::Stuck { path: dir.to_owned() }),
            Err(fs::TryLockError::Error(error)) => return Err(Trouble::at(dir)(error)),
        }
    }
}

pub(crate) fn make_dir(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Ok(()) => share(path, 0o7777),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(Trouble::at(path)(error)),
    }
}

pub(crate) fn share(path: &Path, mask: u32) -> Result<()> {
    fs::set_permissions(path, permissions(path, mask)?).map_err(Trouble::at(path))
}

/// What is made at `path` gets the permissions of the folder it is in, as far as `mask` goes: who may use the
/// folder may use the locks, whatever the umask of the process that came first.
pub(crate) fn permissions(path: &Path, mask: u32) -> Result<fs::Permissions> {
    let parent = path.parent().unwrap_or(path);
    let mode = fs::metadata(parent).map_err(Trouble::at(parent))?.permissions().mode();
    Ok(fs::Permissions::from_mode(mode & mask))
}

/// What of a folder's permissions means something for a file.
pub(crate) const FILE: u32 = 0o666;

pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Trouble::at(dir))
}

/// Refuses file systems whose locks other machines, or the program behind the file system, may not see.
pub(crate) fn refuse_network(dir: &Path) -> Result<()> {
    let kind = sys::file_system(dir).map_err(Trouble::at(dir))?;
    match network_file_system(kind) {
        Some(file_system) => Err(Trouble::Network { path: dir.to_owned(), file_system }),
        None => Ok(()),
    }
}

/// The name of a file system with this magic number, if it is one that [`refuse_network`] refuses.
pub(crate) fn network_file_system(kind: u32) -> Option<&'static str> {
    const NETWORK: [(u32, &str); 23] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "FUSE"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x0116_1970, "GFS2"),
        (0x7461_636f, "OCFS2"),
        (0x1983_0326, "BeeGFS"),
        (0x7375_7245, "Coda"),
        (0x564c, "NCP"),
        (0x2003_0528, "OrangeFS"),
        (0xaad7_aaea, "PanFS"),
        (0xbeef_dead, "StorNext"),
        (0x6163_6673, "ACFS"),
        (0x786f_4256, "a VirtualBox shared folder"),
        (0xbacb_acbc, "a VMware shared folder"),
        (0x7c7c_6673, "PRL"),
    ];
    NETWORK.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_start_is_finished_and_never_loses_a_counter() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.counters().unwrap().draw(1).unwrap().get(), 1);
        fs::remove_file(dir.path().join("version")).unwrap();
        fs::write(dir.path().join("counters.new"), "half").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.counters().unwrap().draw(1).unwrap().get(), 2);
    }

    #[test]
    fn a_missing_counter_in_a_used_folder_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        Folder::open(dir.path()).unwrap().counters().unwrap();
        fs::remove_file(dir.path().join("counters")).unwrap();
        let error = Folder::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("it is missing"), "{error}");
        assert!(!dir.path().join("counters").exists(), "nothing starts again by itself");
        assert_eq!(error.kind(), ErrorKind::Config);
    }

    #[test]
    fn a_newer_layout_and_a_file_in_the_way_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("version"), "tollgate file layout 2\n").unwrap();
        let error = Folder::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("layout 2"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Config);

        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = Folder::open(&path).unwrap_err();
            assert!(error.to_string().contains("not a folder"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    }
}
