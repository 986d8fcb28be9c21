//! The folder: making it, refusing what cannot hold locks, and where things are in it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::Mode;
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use tollgate_core::{Error, ErrorKind, LockName};

use crate::counter::Counters;
use crate::dir::{Dir, FilePath, file_mode};
use crate::error::{Result, Trouble};
use crate::sys;

/// What the version file says.
pub(crate) const LAYOUT: &str = "tollgate file layout 1\n";

/// A folder on a local file system. It is made when the first lock is taken: looking makes nothing.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    prepared: OnceLock<Prepared>,
}

/// A folder in which locks can be taken.
#[derive(Debug)]
pub(crate) struct Prepared {
    locks: Arc<Dir>,
    pub(crate) counters: Counters,
}

/// Where a lock's file is and which counter numbers its grants.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) file: FilePath,
    pub(crate) shard: u8,
}

impl Folder {
    /// Opens the folder, and refuses one that cannot hold locks as far as that can be told already.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        // Absolute, so that a later change of the working directory changes nothing.
        let dir = std::path::absolute(dir).map_err(Trouble::at(dir))?;
        let folder = Self { dir, prepared: OnceLock::new() };
        if !fs::exists(&folder.dir).map_err(Trouble::at(&folder.dir))? {
            return Ok(folder);
        }
        if !folder.dir.is_dir() {
            return Err(Trouble::NotAFolder { path: folder.dir });
        }
        refuse_network(&folder.dir)?;
        if folder.prepared_if_made()?.is_none() {
            sys::check_writable(&folder.dir).map_err(Trouble::at(&folder.dir))?;
        }
        Ok(folder)
    }

    /// The folder, which is made now if it was not there.
    pub(crate) fn prepared(&self) -> Result<&Prepared> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        fs::create_dir_all(&self.dir).map_err(Trouble::at(&self.dir))?;
        let made = set_up(&Arc::new(Dir::open(&self.dir)?))?;
        Ok(self.prepared.get_or_init(|| made))
    }

    /// The folder, if a lock was ever taken in it.
    pub(crate) fn prepared_if_made(&self) -> Result<Option<&Prepared>> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(Some(prepared));
        }
        let made = fs::exists(&self.dir).map_err(Trouble::at(&self.dir))?
            && is_initialised(&Arc::new(Dir::open(&self.dir)?))?;
        if made { self.prepared().map(Some) } else { Ok(None) }
    }

    /// The counters, in a folder that is made now if it was not there.
    pub(crate) fn counters(&self) -> Result<&Counters> {
        self.prepared().map(|prepared| &prepared.counters)
    }

    /// The file of the lock `name`, if a lock was ever taken here.
    pub(crate) fn file_if_made(&self, name: &LockName) -> Result<Option<FilePath>> {
        Ok(self.prepared_if_made()?.map(|prepared| prepared.address(name).file))
    }
}

impl Prepared {
    /// Where the lock `name` is. Its file is named by a hash: names may be longer than a file's name, and
    /// contain what a file's name cannot.
    pub(crate) fn address(&self, name: &LockName) -> Address {
        let hash = hash_of(name.as_str().as_bytes());
        Address { file: FilePath::new(&self.locks, hex(&hash)), shard: hash[0] }
    }

    /// The folder of the lock files.
    pub(crate) fn locks(&self) -> &Arc<Dir> {
        &self.locks
    }
}

fn set_up(dir: &Arc<Dir>) -> Result<Prepared> {
    refuse_network(dir.path())?;
    if !is_initialised(dir)? {
        initialise(dir)?;
    }
    let locks = dir.make_sub("locks")?;
    locks.check_writable()?;
    let dir_mode = dir.mode().map_err(|error| Trouble::at(dir.path())(error.into()))?;
    if let Ok(version) = FilePath::new(dir, "version").open_to_read() {
        tighten(&version, dir_mode);
    }
    let counters = Counters::open(&FilePath::new(dir, "counters"))?;
    counters.tighten(dir_mode);
    Ok(Prepared { locks: Arc::new(locks), counters })
}

pub(crate) fn hash_of(name: &[u8]) -> [u8; 32] {
    Sha256::digest(name).into()
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
                "neither XDG_STATE_HOME nor HOME is set to a folder for locks; pass one as `file:DIR`",
            )
        })
}

pub(crate) fn is_initialised(dir: &Arc<Dir>) -> Result<bool> {
    let file = FilePath::new(dir, "version");
    let path = file.path().to_owned();
    match read_start(&file) {
        Ok(Some(found)) if found == LAYOUT.as_bytes() => Ok(true),
        Ok(Some(found)) => {
            Err(Trouble::Layout { path, found: String::from_utf8_lossy(&found).trim().into() })
        }
        Ok(None) => Err(Trouble::Layout { path, found: "nothing: it is not a file".into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Trouble::at(&path)(error)),
    }
}

/// What a small file says, or begins with; `None` if it is no plain file.
fn read_start(file: &FilePath) -> io::Result<Option<Vec<u8>>> {
    let file = file.open_to_read()?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    file.take(2 * LAYOUT.len() as u64).read_to_end(&mut start)?;
    Ok(Some(start))
}

/// Makes what is in a folder, the version file last: while it is missing nothing else has been used.
///
/// Several processes may do this at once. Each file is whole when it gets its name, and no file is replaced, so
/// that all of them go on with the same ones.
fn initialise(dir: &Arc<Dir>) -> Result<()> {
    dir.sweep()?;
    dir.make_sub("locks")?;
    // One that is there was complete when it got its name. It may have counted before the version file
    // was lost, and is never replaced.
    if !FilePath::new(dir, "counters").exists()? {
        dir.create_whole("counters".as_ref(), &Counters::blank())?;
    }
    // Another process may have made it just now, and not have come to this.
    dir.sync()?;
    dir.create_whole("version".as_ref(), LAYOUT.as_bytes())?;
    dir.sync()
}

/// Takes permissions away from a file of ours that a folder of `dir_mode` would not give it: an older version made
/// files readable for users that may not write. Only its owner may do this, and it is not needed for anything else.
pub(crate) fn tighten(file: &File, dir_mode: u32) {
    let Ok(status) = sys::identify(file) else { return };
    let mode = status.mode & file_mode(dir_mode);
    let is_ours = status.is_file && status.names == 1 && status.owner == geteuid().as_raw();
    if is_ours && mode != status.mode {
        let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    }
}

/// The same for a file in `dir` that was found with `mode`. If no class reads without writing, this costs nothing.
pub(crate) fn tighten_in(dir: &Dir, file: &File, mode: u32) {
    if file_mode(mode) != mode & 0o666
        && let Ok(dir_mode) = dir.mode()
    {
        tighten(file, dir_mode);
    }
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
        assert!(error.to_string().contains("the file is missing"), "{error}");
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
