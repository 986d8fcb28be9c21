//! A disk that is soon full.

use std::path::PathBuf;
use std::process::Command;

/// A file system of 16 MB. It is gone with this.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts it, which only root may.
    pub fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m,mode=755", "tmpfs"]).arg(folder.path());
        assert!(mount.status().unwrap().success());
        Self(folder)
    }

    /// A folder of this user's in it.
    pub fn place(&self, user: &str) -> PathBuf {
        let place = self.0.path().join("space");
        std::fs::create_dir(&place).unwrap();
        assert!(Command::new("chown").arg(user).arg(&place).status().unwrap().success());
        // What is above it is the test's own.
        assert!(Command::new("chmod").arg("755").arg(self.0.path()).status().unwrap().success());
        place
    }

    /// Takes all the room that is left, until the file is removed.
    pub fn fill(&self) -> PathBuf {
        let file = self.0.path().join("rest");
        assert!(std::fs::write(&file, vec![1; 32 << 20]).is_err(), "it does not fit");
        file
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server may still have files there.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
