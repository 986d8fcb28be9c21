//! A wall clock that a test can set, for engines that go by it (`shim/clock.c`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::trouble::Trouble;
use super::{launch, spawner};

/// The preload library and the file with the offset, in an engine's folder.
pub(super) struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// Compiles the library into `folder`.
    pub(super) fn new(folder: &Path) -> Result<Self, Trouble> {
        let (library, offset, source) =
            (folder.join("clock.so"), folder.join("clock-offset"), folder.join("clock.c"));
        fs::write(&source, include_str!("../../shim/clock.c"))?;
        let mut command = Command::new(launch::find("cc", "gcc")?);
        command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawner::spawn(command)?.wait_with_output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Trouble::new(format!("the clock shim does not compile:\n{said}")));
        }
        let clock = Self { library, offset };
        clock.set(0)?;
        Ok(clock)
    }

    /// Puts the clock ahead of the real one by so many nanoseconds, or behind. The file is written in place:
    /// engines have it mapped.
    pub(super) fn set(&self, nanoseconds: i64) -> Result<(), Trouble> {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&self.offset)?;
        Ok(file.write_all_at(&nanoseconds.to_ne_bytes(), 0)?)
    }

    pub(super) fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TOLLGATE_CLOCK", &self.offset);
    }
}
