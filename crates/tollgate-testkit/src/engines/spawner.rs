//! Starts processes so that none outlives the test program, however that ends.
//!
//! The kernel kills a child when the thread that started it ends, so all are started by one thread that
//! lives as long as the program. It reaches only the child itself; for the children's children, and for the
//! folders, there is the guardian (`guardian.sh`): a process that holds the other end of a pipe.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

use crate::sys;

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts `command` on the thread that lives as long as the program.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static JOBS: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (jobs, given) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("engine-spawner".to_owned())
            .spawn(move || {
                for (mut command, started) in given {
                    // Whoever asked may have panicked; then nobody has the child, and it must not stay.
                    if let Err(mpsc::SendError(Ok(mut child))) = started.send(sys::spawn_bound(&mut command))
                    {
                        let _ = child.kill();
                        let _ = child.wait();
                    }
                }
            })
            .expect("a test can start a thread");
        jobs
    });
    let (started, child) = mpsc::channel();
    jobs.send((command, started)).expect("the spawner lives as long as the program");
    child.recv().expect("the spawner lives as long as the program")
}

/// Has the guardian see to `folder` when this program is gone.
pub(super) fn entrust(folder: &Path) -> io::Result<()> {
    static GUARDIAN: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();
    let guardian = GUARDIAN.get_or_init(Mutex::default);
    let mut line = guardian.lock().unwrap_or_else(PoisonError::into_inner);
    if line.is_none() {
        *line = Some(start_guardian()?);
    }
    let line = line.as_mut().expect("it was just started");
    line.write_all(format!("{}\n", folder.display()).as_bytes())
}

fn start_guardian() -> io::Result<ChildStdin> {
    let mut command = Command::new("sh");
    command.args(["-c", include_str!("guardian.sh"), "engine-guardian"]).current_dir("/").process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(child.stdin.take().expect("stdin is piped"))
}
