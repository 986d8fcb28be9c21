//! A folder for locks, the `tollgate` binary, and patience.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test binary uses a part of its own helpers"
)]

pub mod misled;
pub mod server;

use std::io::{PipeReader, PipeWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that should happen soon.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What `redis-cli` prints.
pub fn redis_cli(address: SocketAddr, words: &[&str]) -> String {
    let port = address.port().to_string();
    let output = Command::new("redis-cli").args(["-p", &port]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// A folder of its own for each test, with locks in it.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        let sandbox = Self { folder: tempfile::tempdir().unwrap() };
        // Where holders put their sockets: a folder that is the user's alone.
        std::fs::create_dir(sandbox.path("run")).unwrap();
        std::fs::set_permissions(sandbox.path("run"), PermissionsExt::from_mode(0o700)).unwrap();
        sandbox
    }

    /// A copy of the command in the folder, which other users can start. Made by a program: a process that another
    /// test starts meanwhile would have the copy open for writing, and it could not be executed.
    pub fn copy_of_tollgate(&self) -> PathBuf {
        let copy = self.path("tollgate");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tollgate")).arg(&copy).status().unwrap();
        assert!(copied.success());
        copy
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
        self.prepare(&mut command);
        command
    }

    /// A script for bash in which `tollgate` is the one under test.
    pub fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        let binaries = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", binaries.display()));
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("HOME", self.folder.path());
        command.env("TOLLGATE_URL", self.url()).current_dir(self.folder.path());
        command.stdin(Stdio::null());
    }

    /// Whoever holds the lock `name`, in the order of their grants.
    pub fn holders(&self, name: &str) -> Vec<String> {
        let output = self.output(&["inspect", name, "--json"]);
        let state: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let holders = state["holders"].as_array().cloned().unwrap_or_default();
        holders.iter().map(|holder| holder["details"]["pid"].to_string()).collect()
    }

    /// The sockets of holders.
    pub fn sockets(&self) -> usize {
        std::fs::read_dir(self.path("run/tollgate")).map_or(0, Iterator::count)
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

impl Drop for Sandbox {
    /// Ends the holder processes that a test left behind.
    fn drop(&mut self) {
        let listed = self.output(&["ls", "--json"]);
        let locks: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let holders = locks.as_array().into_iter().flatten().filter_map(|lock| lock["holders"].as_array());
        for holder in holders.flatten() {
            let pid = holder["details"]["pid"].to_string();
            if is_holder(&pid)
                && let Some(pid) = pid.parse().ok().and_then(Pid::from_raw)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Whether a process is one that `tollgate` left behind to hold a lock.
pub fn is_holder(pid: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"tollgate-holder\0"))
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

    /// Waits until it catches those signals that would end it.
    pub fn wait_until_it_hears_signals(&self) {
        let caught = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        };
        let wanted = [Signal::TERM, Signal::INT].map(|signal| 1 << (signal.as_raw() - 1)).iter().sum::<u64>();
        eventually("it hears signals", || caught().filter(|mask| mask & wanted == wanted).map(drop));
    }

    /// Whether one of its threads writes into a pipe that is full.
    pub fn writes_in_vain(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id()));
        let mut places = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("wchan")).ok());
        places.any(|place| place.contains("pipe_write"))
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
    state(pid).is_some_and(|state| !"ZX".contains(state))
}

/// What a process does, as /proc says it in a letter; `None` if there is no such process.
pub fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// Waits until none of the processes in the lines of `pids` lives.
pub fn until_dead(pids: &str) {
    eventually("everything the command started is gone", || (!pids.lines().any(lives)).then_some(()));
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A pipe that takes nothing more until somebody reads.
pub fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b'.'; size]).unwrap();
    (reader, writer)
}
