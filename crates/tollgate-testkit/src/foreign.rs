//! Locks of clients nobody here wrote, in processes of their own, beside ours: who waits for whom, judged by a number in a
//! file to which everybody adds one.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_core::{LockRequest, LockState, Locks, Release};

use crate::subject::{PATIENCE, eventually};

/// So long that nothing ends by itself.
const LONG: Duration = Duration::from_secs(60);

/// A number in a file. To add one is to read, to pause, and to write: two at it at once lose a count.
pub struct Ground(tempfile::TempDir);

impl Default for Ground {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("counter"), "0").unwrap();
        Self(folder)
    }
}

impl Ground {
    fn file(&self) -> PathBuf {
        self.0.path().join("counter")
    }

    /// How many were counted.
    pub fn count(&self) -> usize {
        std::fs::read_to_string(self.file()).unwrap().trim().parse().unwrap()
    }

    /// The passage as a command. The number is replaced, so that nobody finds half of it.
    pub fn command(&self) -> [String; 2] {
        let (file, script) = (self.file(), self.0.path().join("pass.sh"));
        let file = file.display();
        let text = format!("n=$(cat {file}); sleep 0.01; echo $((n + 1)) > {file}.$$; mv {file}.$$ {file}");
        std::fs::write(&script, text).unwrap();
        ["sh".to_owned(), script.display().to_string()]
    }

    /// The passage in this process.
    pub async fn pass(&self, who: usize) {
        let seen = self.count();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let new = self.0.path().join(format!("ours-{who}"));
        std::fs::write(&new, (seen + 1).to_string()).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// Passes so many times with the lock, or without if there is none.
    pub async fn pass_by(&self, locks: Option<&Locks>, name: &str, who: usize, times: usize) {
        for _ in 0..times {
            let Some(locks) = locks else {
                self.pass(who).await;
                continue;
            };
            let guard = locks.lock(name).ttl(LONG).acquire().await.unwrap();
            self.pass(who).await;
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }
}

/// Runs a command so many times; it must not fail.
pub async fn passes(mut command: Command, times: usize) {
    let run = move || (0..times).all(|_| command.stdout(Stdio::null()).status().unwrap().success());
    assert!(tokio::task::spawn_blocking(run).await.unwrap(), "a foreign client failed");
}

/// A foreign client that says so when it has a lock, and holds it as long as a file is there. Killed when dropped.
pub struct Foreigner {
    child: Child,
    folder: tempfile::TempDir,
    said: oneshot::Receiver<String>,
}

impl Foreigner {
    /// Starts it. The command is told the file.
    pub fn start(command: impl Fn(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("held");
        std::fs::write(&file, "").unwrap();
        let mut child = command(&file).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, said) = oneshot::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(stdout).read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                // Nobody may listen any more.
                let _ = sender.send(line);
            }
        });
        Self { child, folder, said }
    }

    /// Waits until it has the lock.
    pub async fn is_in(&mut self) {
        let said = tokio::time::timeout(PATIENCE, &mut self.said).await;
        said.expect("the foreign client holds the lock").expect("it says that it holds the lock");
    }

    /// Whether it has said that it has the lock. Only before [`is_in`](Self::is_in).
    pub fn has_said_so(&mut self) -> bool {
        self.said.try_recv().is_ok()
    }

    /// Has it give the lock back.
    pub fn leave(&self) {
        std::fs::remove_file(self.folder.path().join("held")).unwrap();
    }
}

impl Drop for Foreigner {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn seen(locks: &Locks, name: &str, what: &str, is: impl Fn(Option<&LockState>) -> bool) {
    let look = || async { is(locks.inspect(name).await.unwrap().as_ref()).then_some(()) };
    eventually(what, look).await;
}

fn one_waits(state: Option<&LockState>) -> bool {
    state.is_some_and(|state| state.waiters.len() == 1)
}

/// A lock that is held by another kind of client: ours is busy in every mode, waits, and gets it when that one leaves.
pub async fn ours_waits_for(locks: &Locks, name: &str, command: impl Fn(&Path) -> Command) {
    let mut foreigner = Foreigner::start(command);
    foreigner.is_in().await;
    for request in [locks.lock(name), locks.lock(name).shared(), locks.lock(name).permit(5)] {
        assert!(
            request.ttl(LONG).try_acquire().await.unwrap().is_none(),
            "our client was granted the lock beside the foreign one"
        );
    }
    let state = locks.inspect(name).await.unwrap().unwrap();
    assert_eq!((state.holders.len(), state.waiters.len()), (1, 0));
    let waiting = tokio::spawn(locks.lock(name).ttl(LONG).acquire());
    seen(locks, name, "our client waits", one_waits).await;
    assert!(!waiting.is_finished());
    foreigner.leave();
    let guard = tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("our client is granted the lock")
        .unwrap()
        .unwrap();
    if let Some(token) = state.holders[0].token {
        assert!(guard.token() > token);
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A lock that we hold in some mode, twice where that can be: another kind of client waits until the last of ours has left.
pub async fn it_waits_for_ours(
    locks: &Locks,
    name: &str,
    how: impl Fn(LockRequest) -> LockRequest,
    command: impl Fn(&Path) -> Command,
) {
    let request = || how(locks.lock(name).ttl(LONG));
    let mut guards = vec![request().acquire().await.unwrap()];
    guards.extend(request().try_acquire().await.unwrap());
    let mut foreigner = Foreigner::start(&command);
    seen(locks, name, "the foreign client waits", one_waits).await;
    for guard in guards {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!foreigner.has_said_so(), "the foreign client was granted the lock beside ours");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    foreigner.is_in().await;
    assert!(
        locks.lock(name).ttl(LONG).try_acquire().await.unwrap().is_none(),
        "our client was granted the lock beside the foreign one"
    );
    foreigner.leave();
    seen(locks, name, "the foreign client has left", |state| state.is_none()).await;
}
