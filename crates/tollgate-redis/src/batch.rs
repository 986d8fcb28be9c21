//! Requests of many tasks in one: what it costs to send something is paid once for all of them.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, oneshot};

/// How many requests a packet has that is not held back for more: enough to share its costs, and few enough that the
/// server works on one packet while the next is made up.
const FULL: usize = 16;

/// What the next packet will carry, filled by everybody who has something to ask and emptied by [`send`](Self::send).
#[derive(Default)]
pub(crate) struct Batch {
    next: Mutex<Next>,
    /// Something was put into the empty one.
    begun: Notify,
    /// It is to be sent.
    ready: Notify,
    /// How many requests went this way and are not answered yet.
    under_way: AtomicUsize,
}

#[derive(Default)]
struct Next {
    commands: Pipeline,
    askers: Vec<Asker>,
    /// Nobody sends any more.
    closed: bool,
}

/// Who is told what, when the answers come.
struct Asker {
    commands: usize,
    answer: oneshot::Sender<Result<Vec<Value>, RedisError>>,
}

impl Batch {
    /// Whether nothing that came before can be overtaken by what takes another way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// Puts commands into the next packet and waits for what each is answered. They are sent even if nobody waits any
    /// more, in the order they came.
    pub(crate) async fn ask(&self, commands: impl Iterator<Item = Cmd>) -> Result<Vec<Value>, RedisError> {
        let (answer, answered) = oneshot::channel();
        self.put(commands, answer);
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    fn put(
        &self,
        commands: impl Iterator<Item = Cmd>,
        answer: oneshot::Sender<Result<Vec<Value>, RedisError>>,
    ) {
        let mut next = self.next();
        if next.closed {
            return;
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let before = next.commands.len();
        for command in commands {
            next.commands.add_command(command);
        }
        let commands = next.commands.len() - before;
        next.askers.push(Asker { commands, answer });
        let askers = next.askers.len();
        drop(next);
        match askers {
            1 => self.begun.notify_one(),
            FULL => self.ready.notify_one(),
            _ => {}
        }
    }

    /// Has the sender send what was begun when all tasks that are ready have had their turn. A task of its own, until it is
    /// aborted: it waits behind the others while the sender can be woken at once.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            self.begun.notified().await;
            others_first().await;
            self.ready.notify_one();
        }
    }

    /// Sends what there is, again and again, until it is aborted.
    pub(crate) fn send(
        self: Arc<Self>,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = ()> + Send + use<> {
        // Before it runs for the first time, too: it may be aborted then.
        let ends = Ends(self);
        async move { ends.0.send_until_the_end(connection).await }
    }

    async fn send_until_the_end(&self, connection: MultiplexedConnection) {
        let mut packets = FuturesUnordered::new();
        loop {
            tokio::select! {
                // First, so that a packet is on its way before the next is made up.
                biased;
                Some(()) = packets.next(), if !packets.is_empty() => {}
                () = self.ready.notified() => {
                    let (commands, askers) = self.taken();
                    if !askers.is_empty() {
                        packets.push(self.exchange(connection.clone(), commands, askers));
                    }
                }
            }
        }
    }

    fn taken(&self) -> (Pipeline, Vec<Asker>) {
        let mut next = self.next();
        (std::mem::take(&mut next.commands), std::mem::take(&mut next.askers))
    }

    async fn exchange(&self, mut connection: MultiplexedConnection, commands: Pipeline, askers: Vec<Asker>) {
        let answers = connection.send_packed_commands(&commands, 0, commands.len()).await;
        self.under_way.fetch_sub(askers.len(), Ordering::AcqRel);
        match answers {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for asker in askers {
                    let _ = asker.answer.send(Ok(answers.by_ref().take(asker.commands).collect()));
                }
            }
            Err(error) => {
                for asker in askers {
                    let _ = asker.answer.send(Err(error.clone()));
                }
            }
        }
    }

    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody waits for answers that cannot come.
struct Ends(Arc<Batch>);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut next = self.0.next();
        next.closed = true;
        next.askers.clear();
    }
}

fn closed() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe))
}

/// Lets all tasks that are ready have their turn.
async fn others_first() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
