//! One connection through the proxy: two ways, and what is expected back.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::counts::{Counters, add};
use super::outbox::{Next, Outbox, Waits};
use super::protocol::{Answer, Conversation, Garbled, Protocol};
use super::rule::{Close, Deed, Outcome, Trap};
use super::switches::{Direction, Fate, Flow, Switches, Way};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// What all connections of a proxy share.
pub(super) struct Shared {
    pub(super) upstream: SocketAddr,
    pub(super) protocol: Box<dyn Protocol>,
    pub(super) switches: Arc<Switches>,
    pub(super) counters: Counters,
}

/// Asks a connection to end; what waits for the sender's end hears when it has.
pub(super) struct Cut {
    pub(super) close: Close,
    pub(super) done: std::sync::mpsc::Sender<()>,
}

/// A reply that is to come.
struct Expected {
    fate: ReplyFate,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy)]
enum ReplyFate {
    Passes,
    Lost,
    CutInstead(Close),
}

/// Both ends of a connection, and what they have said.
struct Connection {
    shared: Arc<Shared>,
    conversation: Mutex<Box<dyn Conversation>>,
    expected: Mutex<VecDeque<Expected>>,
}

/// Serves a client until either end or the test is done with it.
pub(super) async fn serve(
    mut client: TcpStream,
    shared: Arc<Shared>,
    mut cuts: mpsc::UnboundedReceiver<Cut>,
) {
    let mut engine = None;
    let (how, asked) = tokio::select! {
        biased;
        Some(cut) = cuts.recv() => (cut.close, Some(cut.done)),
        how = converse(&mut client, &mut engine, shared) => (how, None),
    };
    close(&client, how);
    engine.iter().for_each(|engine| close(engine, how));
    drop((client, engine));
    // Only now: who asked relies on it.
    drop(asked);
}

/// Has a socket close like this when it is dropped. One that lingers for no time forgets what it has not
/// sent, and says RST.
pub(super) fn close(socket: &impl AsFd, how: Close) {
    if how == Close::Abruptly {
        // A socket that cannot be set up any more is closed already.
        let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }
}

async fn converse(client: &mut TcpStream, engine: &mut Option<TcpStream>, shared: Arc<Shared>) -> Close {
    let Ok(upstream) = TcpStream::connect(shared.upstream).await else { return Close::Abruptly };
    let engine = engine.insert(upstream);
    for socket in [&*client, &*engine] {
        // Without it small frames wait for each other; a closed socket will say so soon enough.
        let _ = socket.set_nodelay(true);
    }
    let conversation = Mutex::new(shared.protocol.conversation());
    let connection = Connection { shared, conversation, expected: Mutex::default() };
    let ((from_client, to_client), (from_engine, to_engine)) = (client.split(), engine.split());
    let requests = Pump::new(&connection, Direction::Requests).run(from_client, to_engine);
    let replies = Pump::new(&connection, Direction::Replies).run(from_engine, to_client);
    match futures_util::future::try_join(requests, replies).await {
        Ok(((), ())) => Close::Gently,
        Err(close) => close,
    }
}

/// One way of a connection.
struct Pump<'a> {
    connection: &'a Connection,
    direction: Direction,
    changes: watch::Receiver<()>,
    inbox: Vec<u8>,
    outbox: Outbox,
    /// Bytes fell into a hole that delivers nothing.
    lost_some: bool,
}

impl<'a> Pump<'a> {
    fn new(connection: &'a Connection, direction: Direction) -> Self {
        let changes = connection.shared.switches.changes();
        let (inbox, outbox) = (Vec::new(), Outbox::default());
        Self { connection, direction, changes, inbox, outbox, lost_some: false }
    }

    /// Passes on until there is no more; an error says how the whole connection is to be closed. It goes on
    /// reading whatever cannot be written yet: what a sender has sent is on its way, though it hangs up.
    async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Close> {
        let (mut ended, mut nobody_listens) = (false, false);
        loop {
            // Before anything is looked at, so that no change is missed.
            self.changes.borrow_and_update();
            let way = self.connection.shared.switches.way(self.direction);
            if self.lost_some && way.flow == Flow::Open {
                return Err(Close::Abruptly);
            }
            if nobody_listens {
                self.outbox.clear();
            }
            let next = if way.flow == Flow::Open { self.outbox.next() } else { Next::Held };
            let (bytes, due) = match next {
                Next::Cut(close) => return Err(close),
                Next::Nothing if ended => {
                    // The other end may be gone.
                    let _ = to.shutdown().await;
                    return Ok(());
                }
                Next::Nothing | Next::Held => (None, None),
                Next::At(due) => (None, Some(due)),
                Next::Write(bytes) => (Some(bytes), None),
            };
            self.inbox.reserve(CHUNK);
            tokio::select! {
                biased;
                // The switches live as long as the proxy.
                _ = self.changes.changed() => {}
                written = to.write(bytes.unwrap_or_default()), if bytes.is_some() => match written {
                    Ok(written) => self.outbox.wrote(written),
                    // A client that is gone still gets its replies counted; without an engine nothing goes on.
                    Err(_) if self.direction == Direction::Replies => nobody_listens = true,
                    Err(_) => return Err(Close::Abruptly),
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                read = from.read_buf(&mut self.inbox), if !ended => {
                    match read {
                        Ok(0) | Err(_) => ended = true,
                        Ok(read) => add(self.bytes(), read),
                    }
                    self.sort(ended).map_err(|garbled| {
                        eprintln!("proxy: {garbled}");
                        Close::Abruptly
                    })?;
                }
            }
        }
    }

    fn bytes(&self) -> &AtomicU64 {
        match self.direction {
            Direction::Requests => &self.connection.shared.counters.bytes_out,
            Direction::Replies => &self.connection.shared.counters.bytes_back,
        }
    }

    /// Moves whole frames from the inbox to the outbox, or wherever they belong.
    fn sort(&mut self, ended: bool) -> Result<(), Garbled> {
        // It may have changed while nothing was there to read.
        let way = self.connection.shared.switches.way(self.direction);
        if let Flow::Hole(Fate::Lost) = way.flow {
            self.lost_some |= !self.inbox.is_empty();
            self.inbox.clear();
            return Ok(());
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut sorted = 0;
        while let Some(length) = match self.direction {
            Direction::Requests => self.request(&inbox[sorted..], way)?,
            Direction::Replies => self.answer(&inbox[sorted..], way)?,
        } {
            sorted += length;
        }
        if ended {
            // Half a frame: the other end is to see what this one did.
            self.outbox.push(&inbox[sorted..], waits(way));
            sorted = inbox.len();
        }
        inbox.drain(..sorted);
        self.inbox = inbox;
        Ok(())
    }

    /// Takes the first request, if it is whole, and tells its length.
    fn request(&mut self, bytes: &[u8], way: Way) -> Result<Option<usize>, Garbled> {
        let shared = &self.connection.shared;
        let Some(request) = self.connection.conversation().request(bytes)? else { return Ok(None) };
        let frame = &bytes[..request.length];
        add(&shared.counters.requests, 1);
        let (deed, trap) = match shared.switches.judge(frame) {
            None => {
                self.outbox.push(frame, waits(way));
                if request.answered {
                    self.connection.expect(ReplyFate::Passes, None);
                }
                return Ok(Some(request.length));
            }
            Some(caught) => caught,
        };
        let outcome = Outcome(trap.clone());
        let fate = match deed {
            Deed::Lose => {
                self.connection.conversation().lost();
                return Ok(Some(request.length));
            }
            Deed::LoseAndCut(close) => {
                self.outbox.push_cut(close);
                return Ok(Some(request.length));
            }
            Deed::LoseReply => ReplyFate::Lost,
            Deed::CutInsteadOfReply(close) => ReplyFate::CutInstead(close),
            Deed::Hold | Deed::Delay(_) | Deed::Repeat | Deed::RepeatElsewhere => ReplyFate::Passes,
        };
        self.outbox.push(
            frame,
            match deed {
                Deed::Hold => Waits::For(trap.clone()),
                Deed::Delay(delay) => Waits::Until(Instant::now() + way.delay + delay),
                _ => waits(way),
            },
        );
        match deed {
            Deed::Repeat => {
                self.connection.conversation().repeated();
                self.outbox.push(frame, waits(way));
                if request.answered {
                    self.connection.expect(fate, None);
                    self.connection.expect(ReplyFate::Lost, Some(outcome));
                }
            }
            Deed::RepeatElsewhere => {
                if request.answered {
                    self.connection.expect(fate, None);
                }
                let greeting = self.connection.conversation().greeting();
                tokio::spawn(repeat(greeting, frame.to_vec(), shared.clone(), trap, outcome));
            }
            _ if request.answered => self.connection.expect(fate, Some(outcome)),
            _ => {}
        }
        Ok(Some(request.length))
    }

    /// Takes the first frame of the engine, if it is whole, and tells its length.
    fn answer(&mut self, bytes: &[u8], way: Way) -> Result<Option<usize>, Garbled> {
        let shared = &self.connection.shared;
        let length = match self.connection.conversation().answer(bytes)? {
            None => return Ok(None),
            Some(Answer::Part(length)) => {
                let fate = self.connection.expected().front().map_or(ReplyFate::Passes, |next| next.fate);
                if let ReplyFate::Passes = fate {
                    self.outbox.push(&bytes[..length], waits(way));
                }
                length
            }
            Some(Answer::Confirmation(length)) => {
                add(&shared.counters.replies, 1);
                self.outbox.push(&bytes[..length], waits(way));
                length
            }
            Some(Answer::Push(length)) => {
                add(&shared.counters.pushes, 1);
                if !shared.switches.discards_push() {
                    self.outbox.push(&bytes[..length], waits(way));
                }
                length
            }
            Some(Answer::Reply(length)) => {
                add(&shared.counters.replies, 1);
                // An engine that greets its clients speaks before it was asked.
                let expected = self.connection.expected().pop_front();
                let fate = expected.as_ref().map_or(ReplyFate::Passes, |expected| expected.fate);
                match fate {
                    ReplyFate::Passes => self.outbox.push(&bytes[..length], waits(way)),
                    ReplyFate::Lost => {}
                    ReplyFate::CutInstead(close) => self.outbox.push_cut(close),
                }
                if let Some(outcome) = expected.and_then(|expected| expected.outcome) {
                    outcome.answered();
                }
                length
            }
        };
        Ok(Some(length))
    }
}

fn waits(way: Way) -> Waits {
    if way.delay.is_zero() { Waits::Nothing } else { Waits::Until(Instant::now() + way.delay) }
}

impl Connection {
    fn conversation(&self) -> MutexGuard<'_, Box<dyn Conversation>> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, VecDeque<Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, fate: ReplyFate, outcome: Option<Outcome>) {
        self.expected().push_back(Expected { fate, outcome });
    }
}

/// Sends a copy of a request when it is let go, and reads the reply that nobody gets.
async fn repeat(greeting: Vec<u8>, frame: Vec<u8>, shared: Arc<Shared>, trap: Arc<Trap>, outcome: Outcome) {
    let mut changes = shared.switches.changes();
    while !trap.is_let_go() {
        if changes.changed().await.is_err() {
            return;
        }
    }
    let answered = async {
        let mut engine = TcpStream::connect(shared.upstream).await.ok()?;
        engine.write_all(&[&greeting[..], &frame].concat()).await.ok()?;
        let mut conversation = shared.protocol.conversation();
        let mut sent = [&greeting[..], &frame].concat();
        while !greeting.is_empty() && !sent.is_empty() {
            let request = conversation.request(&sent).ok()??;
            sent.drain(..request.length);
        }
        let mut bytes = Vec::new();
        loop {
            match conversation.answer(&bytes).ok()? {
                // The greeting is answered first.
                Some(Answer::Confirmation(length)) if !greeting.is_empty() => drop(bytes.drain(..length)),
                Some(_) => return Some(()),
                None if engine.read_buf(&mut bytes).await.ok()? == 0 => return None,
                None => {}
            }
        }
    };
    if answered.await == Some(()) {
        outcome.answered();
    }
}
