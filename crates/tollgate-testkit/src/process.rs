//! This program, started again as another process: it is given orders and answers, in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::subject::PATIENCE;

/// The other process as its test sees it. Killed when dropped.
pub(crate) struct Process<O, R> {
    child: Child,
    orders: ChildStdin,
    replies: mpsc::UnboundedReceiver<Result<R, String>>,
    gives: PhantomData<fn(O)>,
}

impl<O: Serialize, R: DeserializeOwned + Send + 'static> Process<O, R> {
    /// Starts this program with one more variable, by which it knows what it is.
    pub(crate) fn start(variable: &str, value: &str) -> Self {
        let binary = std::env::current_exe().expect("a test knows its binary");
        let mut child = Command::new(binary)
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary can be started again");
        let orders = child.stdin.take().expect("stdin is piped");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let (sender, replies) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let reply = serde_json::from_str(&line).map_err(|_| line);
                if sender.send(reply).is_err() {
                    return;
                }
            }
        });
        Self { child, orders, replies, gives: PhantomData }
    }

    pub(crate) fn order(&mut self, order: &O) {
        let line = serde_json::to_string(order).expect("orders are plain");
        writeln!(self.orders, "{line}").expect("the other process listens");
    }

    /// Waits for the next reply; what it said, if that is none.
    pub(crate) async fn reply(&mut self) -> Result<R, String> {
        let reply = tokio::time::timeout(PATIENCE * 2, self.replies.recv()).await;
        reply.expect("the other process answers").expect("the other process lives")
    }
}

impl<O, R> Process<O, R> {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the other process can be signalled");
    }

    /// Kills it, as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<O, R> Drop for Process<O, R> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In the other process: the orders, as they come. They end when the test does.
pub(crate) fn orders<O: DeserializeOwned + Send + 'static>() -> mpsc::UnboundedReceiver<O> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let order = serde_json::from_str(&line).expect("orders are well-formed");
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    orders
}

/// In the other process: answers.
pub(crate) fn say(reply: &impl Serialize) {
    println!("{}", serde_json::to_string(reply).expect("replies are plain"));
}

/// In the other process: does `work`, and ends.
pub(crate) fn run(work: impl Future<Output = ()>) -> ! {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(work);
    // Not through the runtime's end: the reading thread waits for orders for ever.
    std::process::exit(0)
}
