//! The process that gets killed: the test binary itself, started again as a client of the same engine.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tollgate_core::{BootClock, Guard, Keeper, Leadership, LockName, Locks};

use crate::process::{self, Process, orders, say};
use crate::subject::{Subject, World};

/// Says to the started binary that it is a helper: the subject's name and the engine's address.
const ASKED: &str = "TOLLGATE_TESTKIT_HELPER";

/// What a helper is asked to do.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Acquire {
        name: LockName,
        ttl: Duration,
    },
    /// Campaigns, proclaims `value`, and leads until it is killed.
    Campaign {
        name: LockName,
        ttl: Duration,
        value: String,
    },
    Fence,
    Release,
    /// Takes the lock, adds one to the number in `file`, appends the token to `tokens`; so many times.
    Count {
        name: LockName,
        file: String,
        tokens: String,
        times: usize,
    },
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is ready for orders.
    Ready,
    /// It holds the lock.
    Granted(u64),
    /// The guard may be used, with this token.
    Valid(u64),
    /// The guard says it is lost.
    Lost,
    /// It is done.
    Done,
    /// Something else went wrong.
    Failed(String),
}

/// A helper as its test sees it. Killed when dropped.
pub struct Helper(Process<Order, Reply>);

impl Helper {
    /// Starts a helper that is a client of the case's engine.
    pub async fn start(world: &World) -> Self {
        let asked = format!("{}\n{}", world.subject_name(), world.address());
        let mut helper = Self(Process::start(ASKED, &asked));
        assert_eq!(helper.reply().await, Reply::Ready);
        helper
    }

    /// Waits for the next reply.
    pub async fn reply(&mut self) -> Reply {
        self.0.reply().await.unwrap_or_else(Reply::Failed)
    }

    /// Asks for the lock without waiting for the reply.
    pub fn ask_for(&mut self, name: &LockName, ttl: Duration) {
        self.0.order(&Order::Acquire { name: name.clone(), ttl });
    }

    /// Takes the lock.
    pub async fn acquire(&mut self, name: &LockName, ttl: Duration) -> u64 {
        self.ask_for(name, ttl);
        match self.reply().await {
            Reply::Granted(token) => token,
            other => panic!("the helper did not get the lock: {other:?}"),
        }
    }

    /// Campaigns, without waiting for the outcome.
    pub fn campaign(&mut self, name: &LockName, ttl: Duration, value: &str) {
        self.0.order(&Order::Campaign { name: name.clone(), ttl, value: value.to_owned() });
    }

    /// Uses the guard.
    pub async fn fence(&mut self) -> Reply {
        self.0.order(&Order::Fence);
        self.reply().await
    }

    /// Releases the guard.
    pub async fn release(&mut self) -> Reply {
        self.0.order(&Order::Release);
        self.reply().await
    }

    /// Has it count under the lock, without waiting for the reply.
    pub fn count(&mut self, name: &LockName, file: &Path, tokens: &Path, times: usize) {
        let path = |path: &Path| path.to_str().expect("temporary paths are text").to_owned();
        self.0.order(&Order::Count { name: name.clone(), file: path(file), tokens: path(tokens), times });
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Kills it, as `kill -9` does, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill();
    }
}

/// Runs as a helper, if this binary was started as one; answers with the exit code then.
pub fn run_if_asked(subjects: &[Arc<dyn Subject>]) -> Option<i32> {
    let asked = std::env::var(ASKED).ok()?;
    let (name, address) = asked.split_once('\n').expect("the test says where the engine is");
    let subject = subjects.iter().find(|subject| subject.name() == name).expect("the test names its subject");
    process::run(serve(&**subject, address))
}

async fn serve(subject: &dyn Subject, address: &str) {
    let keeper = Keeper::global().expect("a helper can start a thread");
    let backend =
        subject.open(address, Arc::new(BootClock::new(keeper))).await.expect("the engine can be opened");
    let locks = Locks::new(backend).expect("a helper can start a thread");
    let mut orders = orders();
    say(&Reply::Ready);
    let mut hands = Hands::default();
    while let Some(order) = orders.recv().await {
        say(&obey(&locks, &mut hands, order).await);
    }
}

/// What a helper holds.
#[derive(Default)]
struct Hands {
    guard: Option<Guard>,
    leadership: Option<Leadership>,
}

async fn obey(locks: &Locks, hands: &mut Hands, order: Order) -> Reply {
    let Hands { guard, leadership } = hands;
    match order {
        Order::Campaign { name, ttl, value } => match locks.election(&name).ttl(ttl).campaign(value).await {
            Ok(elected) => Reply::Granted(leadership.insert(elected).epoch().get()),
            Err(error) => Reply::Failed(error.to_string()),
        },
        Order::Acquire { name, ttl } => match locks.lock(&name).ttl(ttl).acquire().await {
            Ok(granted) => {
                let token = granted.token().get();
                *guard = Some(granted);
                Reply::Granted(token)
            }
            Err(error) => Reply::Failed(error.to_string()),
        },
        Order::Fence => match guard.as_ref().map(|guard| guard.fence()) {
            Some(Ok(fence)) => Reply::Valid(fence.token().get()),
            Some(Err(error)) if error.kind() == tollgate_core::ErrorKind::Lost => Reply::Lost,
            other => Reply::Failed(format!("{other:?}")),
        },
        Order::Release => match guard.take().expect("there is a guard").release().await {
            Ok(tollgate_core::Release::Released) => Reply::Done,
            Ok(tollgate_core::Release::AlreadyLost) => Reply::Lost,
            Err(error) => Reply::Failed(error.to_string()),
        },
        Order::Count { name, file, tokens, times } => {
            for _ in 0..times {
                if let Err(error) = count_once(locks, &name, &file, &tokens).await {
                    return Reply::Failed(error);
                }
            }
            Reply::Done
        }
    }
}

/// Read, pause, write: two at it at once lose a count.
async fn count_once(locks: &Locks, name: &LockName, file: &str, tokens: &str) -> Result<(), String> {
    let guard = locks.lock(name).acquire().await.map_err(|error| error.to_string())?;
    let seen: u64 =
        std::fs::read_to_string(file).map_err(|e| e.to_string())?.trim().parse().map_err(|_| "no number")?;
    std::thread::sleep(Duration::from_millis(1));
    std::fs::write(file, format!("{}\n", seen + 1)).map_err(|error| error.to_string())?;
    let mut log = std::fs::OpenOptions::new().append(true).open(tokens).map_err(|error| error.to_string())?;
    writeln!(log, "{}", guard.token()).map_err(|error| error.to_string())?;
    guard.release().await.map_err(|error| error.to_string())?;
    Ok(())
}
