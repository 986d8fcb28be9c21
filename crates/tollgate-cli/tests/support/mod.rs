//! A folder for locks, the `tollgate` binary, and patience.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test binary uses a part of its own helpers"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that should happen soon.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A folder of its own for each test, with locks in it.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> String {
        format!("file:{}", self.path("locks").display())
    }

    /// `tollgate`, working in the folder on its locks.
    pub fn tollgate(&self, arguments: &[&str]) -> Command {
        // Whoever runs the tests may ignore signals (nohup does), and what is ignored is not passed on.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_tollgate")]).args(arguments);
        command.env("TOLLGATE_URL", self.url()).current_dir(self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.tollgate(arguments).output().unwrap()
    }

    /// Starts it; it is killed when the test ends.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running(self.tollgate(arguments).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file is there and not empty, and reads it.
    pub fn wait_for(&self, name: &str) -> String {
        eventually(&format!("{name} is written"), || {
            Some(self.read(name)).filter(|text| text.ends_with('\n'))
        })
    }

    /// Waits until `ls` shows so many waiters for the only lock.
    pub fn wait_for_waiters(&self, waiters: usize) {
        eventually(&format!("{waiters} wait"), || {
            let output = self.output(&["ls", "--json"]);
            let locks: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            (locks[0]["waiters"].as_array()?.len() == waiters).then_some(())
        });
    }
}

/// A `tollgate` under way.
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("it ends", || self.0.try_wait().unwrap())
    }

    /// Waits for its end, and gives its exit code.
    pub fn code(&mut self) -> i32 {
        self.wait().code().expect("it was not killed")
    }

    /// Whatever it wrote to stderr, after its end.
    pub fn stderr(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stderr.as_mut().unwrap(), &mut text).unwrap();
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls until `condition` gives something.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "it never happened that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process lives; one that has ended and waits to be collected does not.
pub fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next())
        .is_some_and(|state| !"ZX".contains(state))
}

/// Waits until none of the processes in the lines of `pids` lives.
pub fn until_dead(pids: &str) {
    eventually("everything the command started is gone", || (!pids.lines().any(lives)).then_some(()));
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
