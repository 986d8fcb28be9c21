//! One node of an engine: a process, or one that can be started again.

use std::fs;
use std::net::SocketAddr;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::clock::Clock;
use super::config::Config;
use super::home;
use super::launch::{self, Place};
use super::port::Port;
use super::trouble::Trouble;
use super::{ready, spawner};

/// How long an engine may take to come up, or to end in order, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Whether what an engine wrote to its disk is still there when it starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// It is.
    Kept,
    /// The disk is new.
    Lost,
}

/// One node. Dropping it kills it.
pub struct Node {
    config: Config,
    place: Place,
    clock: Option<Arc<Clock>>,
    ports: Vec<Port>,
    child: Mutex<Option<Child>>,
}

impl Node {
    pub(super) fn new(config: &Config, place: Place, clock: Option<Arc<Clock>>, ports: Vec<Port>) -> Self {
        Self { config: config.clone(), place, clock, ports, child: Mutex::default() }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where clients find it, whether it runs or not.
    pub fn address(&self) -> SocketAddr {
        (self.place.host(self.place.number), self.ports[0].number()).into()
    }

    /// Its process; `None` while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// All its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.residents().into_iter().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// How much memory its processes have in use, in bytes. What they share counts for each.
    pub fn resident_memory(&self) -> u64 {
        self.residents().into_iter().filter_map(home::resident_memory).sum()
    }

    /// What it has logged, over all its lives.
    pub fn log(&self) -> String {
        fs::read(self.place.folder.join("log"))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// Whether it serves clients now.
    pub fn answers(&self) -> bool {
        ready::answers(self.config.kind, self.address())
    }

    /// Ends it in order, or by force if it does not.
    pub fn stop(&self) {
        if let Some(child) = self.child().as_mut() {
            // It may have ended already.
            let _ = kill_process(Pid::from_child(child), self.config.kind.end_signal());
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        self.kill();
    }

    /// Kills it with all its processes, as `kill -9` does, and waits until they are gone.
    pub fn kill(&self) {
        let mut child = self.child();
        if let Some(child) = child.as_mut() {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
        *child = None;
        home::evict(&self.place.folder);
    }

    /// Stops all its processes in their tracks (SIGSTOP): connections stay open, and nobody answers.
    pub fn pause(&self) {
        while self.residents().into_iter().any(|pid| {
            let stopped = matches!(home::state(pid), None | Some('T' | 'Z'));
            if !stopped {
                // It may be gone meanwhile.
                let _ = kill_process(pid, Signal::STOP);
            }
            !stopped
        }) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has them go on (SIGCONT).
    pub fn resume(&self) {
        for pid in self.residents() {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Starts it again on its port, and returns when it serves clients. Kills it first if it runs. A node of
    /// several must find the others.
    pub fn restart(&self, data: Data) -> Result<(), Trouble> {
        self.launch(data)?;
        self.wait_until_ready()
    }

    /// Starts it without waiting for it.
    pub(super) fn launch(&self, data: Data) -> Result<(), Trouble> {
        self.kill();
        if data == Data::Lost && self.place.data().exists() {
            fs::remove_dir_all(self.place.data())?;
        }
        fs::create_dir_all(&self.place.folder)?;
        if !self.place.data().exists() {
            launch::prepare(&self.config, &self.place)?;
        }
        let mut command = launch::command(&self.config, &self.place)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(self.place.folder.join("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        *self.child() = Some(spawner::spawn(command)?);
        Ok(())
    }

    pub(super) fn wait_until_ready(&self) -> Result<(), Trouble> {
        let until = Instant::now() + PATIENCE;
        let kind = self.config.kind;
        while !self.answers() {
            let ended = self.child().as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(Trouble::new(format!("{kind:?} ended ({status}) and said\n{}", self.log())));
            }
            if Instant::now() >= until {
                return Err(Trouble::new(format!("{kind:?} does not answer and said\n{}", self.log())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn residents(&self) -> Vec<Pid> {
        home::residents(&self.place.folder)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
