//! A client as a process of its own that does what it is told.
//!
//! It is started with the servers' addresses, the lock's key and the folder of a [`Ground`](crate::ground::Ground), says
//! `ready`, and answers each line with one:
//!
//! | order | answer |
//! | --- | --- |
//! | `try TTL` | `granted` or `busy` |
//! | `acquire TTL` | `granted`, when it is |
//! | `release` | `released`, or `refused WHY` if it is another's; `rslock` does not know and says `tried` |
//! | `extend TTL` | `extended` or `refused WHY` |
//! | `count TIMES TTL` | takes the lock so many times and passes; `done`, or `violated TIMES` if it was not alone |
//! | `trespass TIMES` | the same without the lock |
//!
//! Times are in milliseconds; redis-py's `Lock` can do without a ttl, `none`. It ends with its orders, and if there was
//! a violation with a code that is not 0.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tollgate_testkit::clients;

/// Says to the test binary that it is started as a worker, and of which kind.
pub(crate) const ASKED: &str = "TOLLGATE_INTEROP_WORKER";
/// How long anything may take that should happen soon, also where a dozen interpreters start on two busy cores.
const PATIENCE: Duration = Duration::from_secs(180);

/// Whose client it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    RedisPy,
    NodeRedlock,
    Rslock,
    /// Our own; it only counts.
    Tollgate,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py",
            Self::NodeRedlock => "node-redlock",
            Self::Rslock => "rslock",
            Self::Tollgate => "tollgate",
        }
    }

    fn command(self) -> Command {
        let script = |name| sources().join(name);
        match self {
            Self::RedisPy => {
                let mut python = Command::new(installed("venv/bin/python"));
                python.arg(script("redis_py.py"));
                python
            }
            Self::NodeRedlock => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", installed("node_modules")).arg(script("node_redlock.cjs"));
                node
            }
            Self::Rslock | Self::Tollgate => {
                let mut again = Command::new(std::env::current_exe().unwrap());
                again.env(ASKED, self.name());
                again
            }
        }
    }
}

/// Where the workers' programs are.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tollgate-redis/tests/interop")
}

fn installed(name: &str) -> PathBuf {
    clients::installed(env!("CARGO_TARGET_TMPDIR"), name)
}

/// A worker as its test sees it. Killed when dropped.
pub(crate) struct Worker {
    kind: Kind,
    child: Child,
    /// Nothing, once it is let go.
    orders: Option<ChildStdin>,
    replies: mpsc::Receiver<String>,
}

impl Worker {
    /// Starts a worker that is not ready yet.
    pub(crate) fn launch(kind: Kind, servers: &[SocketAddr], key: &str, ground: &Path) -> Self {
        let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        let mut command = kind.command();
        command.arg(servers.join(",")).arg(key).arg(ground).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let orders = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, replies) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { kind, child, orders, replies }
    }

    /// Starts a worker.
    pub(crate) fn start(kind: Kind, servers: &[SocketAddr], key: &str, ground: &Path) -> Self {
        let mut worker = Self::launch(kind, servers, key, ground);
        worker.must_say("ready");
        worker
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap_or_else(|error| panic!("{}: {error}", self.kind.name()));
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> String {
        let reply = self.replies.recv_timeout(PATIENCE);
        reply.unwrap_or_else(|error| panic!("{} does not answer: {error}", self.kind.name()))
    }

    /// The next answer, if it comes within `time`.
    pub(crate) fn reply_within(&mut self, time: Duration) -> Option<String> {
        self.replies.recv_timeout(time).ok()
    }

    /// Gives an order, and the answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.reply()
    }

    pub(crate) fn must_say(&mut self, reply: &str) {
        assert_eq!(self.reply(), reply, "by {}", self.kind.name());
    }

    /// Lets it go, and gives its exit code.
    pub(crate) fn finish(mut self) -> Option<i32> {
        self.orders = None;
        self.child.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
