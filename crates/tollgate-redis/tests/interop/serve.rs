//! This test's own binary, started again as a worker: with `rslock`, or with Tollgate as a library.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rslock::{Lock, LockError, LockManager};
use tokio::sync::mpsc;
use tollgate_core::{Locks, Release};

use crate::ground::Ground;
use crate::majority;
use crate::support;
use crate::worker::{ASKED, Kind};

/// How long a worker leaves the lock to others.
const BETWEEN: Duration = Duration::from_millis(4);

/// How the process will end.
static CODE: AtomicI32 = AtomicI32::new(0);

/// What a worker knows.
struct Post {
    urls: Vec<String>,
    key: String,
    ground: Ground,
}

/// Serves until the orders end, if this binary was started as a worker; then it does not return.
pub(crate) fn if_asked() {
    let Ok(kind) = std::env::var(ASKED) else { return };
    let [_, servers, key, folder] = std::env::args().collect::<Vec<_>>().try_into().unwrap();
    let urls = servers.split(',').map(|server| format!("redis://{server}")).collect();
    let post = Post { urls, key, ground: Ground(PathBuf::from(folder)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match kind {
            _ if kind == Kind::Rslock.name() => serve(Rslock::new(post)).await,
            _ if kind == Kind::Tollgate.name() => serve(Ours::new(post).await).await,
            _ => panic!("there is no worker {kind:?}"),
        }
    })
}

/// A client that obeys.
trait Obeys {
    async fn obey(&mut self, order: &[&str]) -> String;
}

async fn serve(mut client: impl Obeys) {
    let (sender, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        // Whoever gave the orders is gone.
        std::process::exit(CODE.load(Ordering::SeqCst))
    });
    println!("ready");
    while let Some(line) = orders.recv().await {
        let reply = client.obey(&line.split(' ').collect::<Vec<_>>()).await;
        if reply.starts_with("violated") {
            CODE.store(1, Ordering::SeqCst);
        }
        println!("{reply}");
    }
}

fn millis(word: &str) -> Duration {
    Duration::from_millis(word.parse().unwrap())
}

fn verdict(disturbed: usize) -> String {
    if disturbed == 0 { "done".to_owned() } else { format!("violated {disturbed}") }
}

fn trespass(ground: &Ground, who: Kind, times: &str) -> String {
    let times: usize = times.parse().unwrap();
    verdict((0..times).filter(|_| !ground.pass(who.name(), None)).count())
}

struct Rslock {
    post: Post,
    once: LockManager,
    patient: LockManager,
    lock: Option<Lock>,
}

impl Rslock {
    fn new(post: Post) -> Self {
        let manager = |tries| {
            let mut manager = LockManager::new(post.urls.clone());
            manager.set_retry(tries, Duration::from_millis(10));
            manager
        };
        Self { once: manager(1), patient: manager(1000), lock: None, post }
    }

    async fn count(&self, times: &str, ttl: Duration) -> String {
        let mut disturbed = 0;
        for _ in 0..times.parse().unwrap() {
            let lock = self.patient.acquire(self.post.key.as_str(), ttl).await.unwrap();
            disturbed += usize::from(!self.post.ground.pass(Kind::Rslock.name(), None));
            lock.release().await;
            tokio::time::sleep(BETWEEN).await;
        }
        verdict(disturbed)
    }
}

impl Obeys for Rslock {
    async fn obey(&mut self, order: &[&str]) -> String {
        let key = self.post.key.as_str();
        match order {
            ["try", ttl] => match self.once.lock(key, millis(ttl)).await {
                Ok(lock) => {
                    self.lock = Some(lock);
                    "granted".to_owned()
                }
                Err(LockError::Unavailable) => "busy".to_owned(),
                Err(error) => panic!("{error}"),
            },
            ["acquire", ttl] => {
                self.lock = Some(self.patient.acquire(key, millis(ttl)).await.unwrap().lock);
                "granted".to_owned()
            }
            ["release"] => {
                self.once.unlock(self.lock.as_ref().unwrap()).await;
                "tried".to_owned()
            }
            ["extend", ttl] => match self.once.extend(self.lock.as_ref().unwrap(), millis(ttl)).await {
                Ok(lock) => {
                    self.lock = Some(lock);
                    "extended".to_owned()
                }
                Err(error) => format!("refused {error:?}"),
            },
            ["count", times, ttl] => self.count(times, millis(ttl)).await,
            ["trespass", times] => trespass(&self.post.ground, Kind::Rslock, times),
            other => panic!("nobody knows the order {other:?}"),
        }
    }
}

struct Ours {
    post: Post,
    locks: Locks,
}

impl Ours {
    async fn new(post: Post) -> Self {
        let locks = match post.urls.as_slice() {
            [one] => support::locks(one).await.unwrap(),
            several => Locks::new(majority::backend(several).await).unwrap(),
        };
        Self { locks, post }
    }

    async fn count(&self, times: &str, ttl: Duration) -> String {
        let name = self.post.key.strip_prefix("lock:").unwrap();
        let mut disturbed = 0;
        for _ in 0..times.parse().unwrap() {
            let guard = self.locks.lock(name).ttl(ttl).acquire().await.unwrap();
            let token = Some(guard.token().get());
            disturbed += usize::from(!self.post.ground.pass(Kind::Tollgate.name(), token));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            tokio::time::sleep(BETWEEN).await;
        }
        verdict(disturbed)
    }
}

impl Obeys for Ours {
    async fn obey(&mut self, order: &[&str]) -> String {
        match order {
            ["count", times, ttl] => self.count(times, millis(ttl)).await,
            ["trespass", times] => trespass(&self.post.ground, Kind::Tollgate, times),
            other => panic!("ours only count: {other:?}"),
        }
    }
}
