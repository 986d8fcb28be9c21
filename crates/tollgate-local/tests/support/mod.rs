//! A backend on a fresh folder, and a helper process that takes locks when told to and can be killed.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test binary uses a part of its own helpers"
)]

pub mod sys;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tollgate_core::{
    Attempt, Backend, BootClock, Claim, Grant, Keeper, LockName, LockState, Mode, Release, Token,
};
use tollgate_local::FileBackend;

/// Long enough for a loaded machine; reached only by a failure.
pub const LONG: Duration = Duration::from_secs(30);

pub fn open(dir: &Path) -> FileBackend {
    try_open(dir).unwrap()
}

pub fn try_open(dir: &Path) -> tollgate_core::Result<FileBackend> {
    let keeper = Keeper::global().unwrap();
    FileBackend::open(dir, Arc::new(BootClock::new(keeper.clone())), keeper)
}

pub fn claim(name: &str, mode: Mode) -> Claim {
    Claim::new(LockName::new(name).unwrap(), mode, Duration::from_secs(30))
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG, future).await.expect("this takes too long") })
}

pub async fn take(backend: &FileBackend, name: &str, mode: Mode) -> Grant {
    backend.acquire(&claim(name, mode)).await.unwrap()
}

pub async fn is_free(backend: &FileBackend, name: &str, mode: Mode) -> bool {
    match backend.try_acquire(&claim(name, mode)).await.unwrap() {
        Attempt::Granted(grant) => {
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            true
        }
        Attempt::Busy(_) => false,
    }
}

pub async fn look(backend: &FileBackend, name: &str) -> Option<LockState> {
    backend.inspect(&LockName::new(name).unwrap()).await.unwrap()
}

/// How many hold and how many wait.
pub async fn counts(backend: &FileBackend, name: &str) -> (usize, usize) {
    look(backend, name).await.map_or((0, 0), |state| (state.holders.len(), state.waiters.len()))
}

/// Waits until `condition` is true.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < LONG, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How many threads of this process wait for locks.
pub fn waiting_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "tollgate-wait").count()
}

/// A process that does what it is told; it ends with its standard input.
pub struct Helper {
    pub child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
}

impl Helper {
    pub fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "support::helper_process", "--ignored", "--nocapture"])
            .env("HELPER_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, output) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, told)) = line.split_once('@') {
                    let _ = send.send(told.to_owned());
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, output }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn hear(&mut self) -> String {
        self.output.recv_timeout(LONG).expect("the helper says something")
    }

    pub fn hears_nothing(&mut self, during: Duration) -> bool {
        self.output.recv_timeout(during) == Err(RecvTimeoutError::Timeout)
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Lets it end by itself.
    pub fn finish(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn mode(word: &str) -> Mode {
    match word {
        "x" => Mode::Exclusive,
        "s" => Mode::Shared,
        limit => Mode::permit(limit.parse().unwrap()).unwrap(),
    }
}

/// What [`Helper::start`] starts: this program again, with this test alone.
#[test]
#[ignore = "the other side of other tests"]
fn helper_process() {
    help();
}

/// The helper's side: does what each line of its standard input says, and answers with a line.
fn help() {
    let Ok(dir) = std::env::var("HELPER_DIR") else { return };
    let backend = open(Path::new(&dir));
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let said = run(async {
            match words[..] {
                ["lock", name, how] => {
                    let grant = take(&backend, name, mode(how)).await;
                    let token = grant.token;
                    held.push(grant);
                    format!("locked {token}")
                }
                ["try", name, how] => match backend.try_acquire(&claim(name, mode(how))).await.unwrap() {
                    Attempt::Granted(grant) => {
                        let token = grant.token;
                        held.push(grant);
                        format!("locked {token}")
                    }
                    Attempt::Busy(_) => "busy".to_owned(),
                },
                ["unlock"] => {
                    let grant = held.remove(0);
                    format!("{:?}", backend.release(&grant).await.unwrap())
                }
                ["count", names, times, file] => {
                    let mut last = 0;
                    for _ in 0..times.parse::<u32>().unwrap() {
                        for name in 0..names.parse::<u32>().unwrap() {
                            let grant = take(&backend, &format!("count/{name}"), Mode::Exclusive).await;
                            add_one(&Path::new(file).join(name.to_string()), grant.token);
                            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
                            last = grant.token.get();
                        }
                    }
                    format!("counted {last}")
                }
                ["crowd", name, waiters] => {
                    let claims: Vec<_> =
                        (0..waiters.parse().unwrap()).map(|_: u32| claim(name, Mode::Exclusive)).collect();
                    let grants = claims.iter().map(|claim| async {
                        let grant = backend.acquire(claim).await.unwrap();
                        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
                        grant.token.to_string()
                    });
                    futures_util::future::join_all(grants).await.join(" ")
                }
                ["churn", name, times] => {
                    let mut tokens = Vec::new();
                    for time in 0..times.parse::<usize>().unwrap() {
                        let grant = take(&backend, name, mode(["x", "s", "2", "s"][time % 4])).await;
                        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
                        tokens.push(grant.token.to_string());
                    }
                    tokens.join(" ")
                }
                ["mix", name, how, times, marks] => {
                    for _ in 0..times.parse::<u32>().unwrap() {
                        let grant = take(&backend, name, mode(how)).await;
                        mark(Path::new(marks), mode(how), grant.token);
                        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
                    }
                    "mixed".to_owned()
                }
                ["lost"] => format!("{:?}", backend.lost(&held[0]).expect("file: tells").await),
                _ => panic!("what is {line:?}?"),
            }
        });
        println!("@{said}");
    }
    run(backend.close());
}

/// Reads a number and writes the next one: two who do this together lose one. Also checks that tokens rise.
fn add_one(file: &Path, token: Token) {
    let before = std::fs::read_to_string(file).unwrap_or_default();
    let mut words = before.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
    let (count, highest) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    assert!(token.get() > highest, "token {token} after {highest}");
    std::thread::yield_now();
    std::fs::write(file, format!("{} {token}", count + 1)).unwrap();
}

/// Leaves a mark in the folder for an instant and looks whose marks are there beside it.
fn mark(marks: &Path, mode: Mode, token: Token) {
    let kind = |mode| match mode {
        Mode::Exclusive => "x",
        Mode::Shared => "s",
        Mode::Permit { .. } => "p",
    };
    let mine = marks.join(format!("{}{token}", kind(mode)));
    std::fs::write(&mine, "").unwrap();
    std::thread::yield_now();
    let seen: Vec<_> = std::fs::read_dir(marks).unwrap().map(|mark| mark.unwrap().file_name()).collect();
    let together = seen.iter().all(|mark| mark.to_str().unwrap().starts_with(kind(mode)));
    assert!(together && seen.len() <= mode.capacity() as usize, "{mode}: {seen:?}");
    std::fs::remove_file(&mine).unwrap();
}

/// The count in a file that helpers added to.
pub fn count(file: &Path) -> u64 {
    std::fs::read_to_string(file).unwrap().split(' ').next().unwrap().parse().unwrap()
}
