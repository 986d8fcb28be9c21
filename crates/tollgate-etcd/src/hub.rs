//! All watches of a client, in one stream for each runtime that watches.
//!
//! Whoever waits hears on its own runtime, over the connection that it asks over: that spares two wakes of another thread for each
//! hand-over. What watches over held locks is on the keeper, and so are its watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream;
use tokio::runtime::{Handle, Id};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::error::Failure;
use crate::keys::Span;
use crate::links::Links;
use crate::parked::Parked;
use crate::wire::watch_client::WatchClient;
use crate::wire::watch_create_request::FilterType;
use crate::wire::watch_request::RequestUnion;
use crate::wire::{
    Event, ResponseHeader, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};

/// How often a kept watch may tell of something that nobody wants to know; with the next time it is ended.
const UNHEARD: u32 = 2;

/// All watches of a client. A stream is opened with a runtime's first; when it breaks, every watch in it is told.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Inner>);

struct Inner {
    links: Links,
    board: Mutex<Board>,
    /// Locked before the board, never after it.
    parked: Mutex<Parked>,
}

#[derive(Default)]
struct Board {
    /// Each runtime's.
    streams: HashMap<Id, Stream>,
    watches: HashMap<i64, Listener>,
    last_id: i64,
    last_stream: u64,
}

/// A stream that is open, or about to be.
#[derive(Clone)]
struct Stream {
    number: u64,
    requests: UnboundedSender<WatchRequest>,
}

/// Who is told of a watch, and the stream that it is in.
struct Listener {
    signals: UnboundedSender<Signal>,
    stream: Stream,
    /// Whether it is in place.
    created: bool,
    /// How often it told of something while nobody had it; none if somebody has it.
    unheard: Option<u32>,
}

/// Tells all watches of a stream when that ends, also with the runtime it was on.
struct Ends {
    hub: Hub,
    number: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.hub.lose(self.number);
    }
}

/// What a watch is told.
#[derive(Debug)]
pub(crate) enum Signal {
    /// It is in place.
    Created(Since),
    /// Something happened.
    Events(Vec<Event>),
    /// It tells of nothing any more: look at everything again.
    Broken,
}

/// Since when a watch tells of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since {
    /// Of everything after this revision.
    pub(crate) revision: i64,
    /// Which member tells.
    pub(crate) member: u64,
}

/// What is watched, and from when on.
pub(crate) struct What {
    pub(crate) span: Span,
    /// Only what is deleted.
    pub(crate) deletions: bool,
    /// From this revision on; from now on if it is zero, which etcd can do at once.
    pub(crate) from: i64,
}

/// A watch. Dropping it cancels it.
pub(crate) struct Watch {
    /// Where its stream is.
    pub(crate) runtime: Id,
    ids: Vec<i64>,
    pub(crate) create: WatchCreateRequest,
    sender: UnboundedSender<Signal>,
    hub: Hub,
    signals: UnboundedReceiver<Signal>,
    /// The revision after which it tells of everything, once it is in place.
    since: Option<i64>,
}

impl Watch {
    /// What it is told next. `Broken` is told once.
    pub(crate) async fn signal(&mut self) -> Signal {
        let signal = self.signals.recv().await.unwrap_or(Signal::Broken);
        if let Signal::Created(since) = &signal {
            self.since.get_or_insert(since.revision);
        }
        signal
    }

    /// What happened next, or `Broken`.
    pub(crate) async fn event(&mut self) -> Signal {
        loop {
            match self.signal().await {
                Signal::Created(_) => {}
                other => return other,
            }
        }
    }

    /// The revision of what happened next, if that was after `known`; none if it broke.
    pub(crate) async fn event_after(&mut self, known: i64) -> Option<i64> {
        loop {
            let Signal::Events(events) = self.event().await else { return None };
            let kvs = events.iter().filter_map(|event| event.kv.as_ref());
            if let Some(latest) = kvs.map(|found| found.mod_revision).max()
                && latest > known
            {
                return Some(latest);
            }
        }
    }

    /// Makes it once more, for those who are in a hurry.
    ///
    /// A watch that is made in the moment of a write is put aside by etcd, and told of nothing until a loop comes round that
    /// runs every 100 ms. That two in a row are is rare.
    pub(crate) fn double(&mut self) {
        self.ids.push(self.hub.create(&self.create, &self.sender));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut board = self.hub.board();
        for id in &self.ids {
            board.cancel(*id);
        }
    }
}

impl Board {
    /// Ends a watch, and answers whom it told.
    fn cancel(&mut self, id: i64) -> Option<UnboundedSender<Signal>> {
        let Listener { stream, signals, .. } = self.watches.remove(&id)?;
        let cancel = RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id });
        // If the stream is gone, so is the watch.
        let _ = stream.requests.send(WatchRequest { request_union: Some(cancel) });
        Some(signals)
    }

    /// A stream refuses new watches. Who we are was told once for all of it, and etcd has forgotten that meanwhile: the watches
    /// that are there stay, others need another stream. Not every version says which one it refused.
    fn close_to_newcomers(&mut self, number: u64) {
        self.streams.retain(|_, stream| stream.number != number);
        let refused = |watch: &Listener| watch.stream.number == number && !watch.created;
        for (_, watch) in self.watches.extract_if(|_, watch| refused(watch)) {
            let _ = watch.signals.send(Signal::Broken);
        }
    }
}

impl Hub {
    pub(crate) fn new(links: Links) -> Self {
        Self(Arc::new(Inner { links, board: Mutex::default(), parked: Mutex::default() }))
    }

    /// Keeps a watch for the next one who wants the same.
    pub(crate) fn park(&self, mut watch: Watch) {
        let mut board = self.board();
        for id in watch.ids.drain(1..) {
            board.cancel(id);
        }
        let Some(listener) = board.watches.get_mut(&watch.ids[0]) else { return drop(board) };
        listener.unheard = Some(0);
        drop(board);
        let replaced = self.parked().put(watch);
        drop(replaced);
    }

    /// A watch that was kept on this runtime and tells of the same, of all that happened after `known`.
    pub(crate) fn parked_for(&self, what: &What, known: i64) -> Option<Watch> {
        let watch = self.parked().take(&(Handle::current().id(), what.span.key.clone()))?;
        // It may have been made for another claim, which had the same key later.
        if watch.since.is_none_or(|since| since > known) {
            return None;
        }
        self.board().watches.get_mut(&watch.ids[0])?.unheard = None;
        Some(watch)
    }

    /// Starts to watch.
    pub(crate) fn watch(&self, what: What) -> Watch {
        let (sender, signals) = mpsc::unbounded_channel();
        let create = WatchCreateRequest {
            key: what.span.key.into(),
            range_end: what.span.end.into(),
            start_revision: what.from,
            filters: if what.deletions { vec![FilterType::Noput.into()] } else { Vec::new() },
            ..WatchCreateRequest::default()
        };
        let ids = vec![self.create(&create, &sender)];
        let runtime = Handle::current().id();
        Watch { runtime, ids, create, sender, hub: self.clone(), signals, since: None }
    }

    /// Asks for a watch that tells `sender`, over a new stream if there is none.
    fn create(&self, create: &WatchCreateRequest, sender: &UnboundedSender<Signal>) -> i64 {
        let mut board = self.board();
        board.last_id += 1;
        let id = board.last_id;
        let (runtime, mut opened) = (Handle::current(), None);
        let stream = match board.streams.get(&runtime.id()) {
            Some(stream) => stream.clone(),
            None => {
                let (requests, receiver) = mpsc::unbounded_channel();
                board.last_stream += 1;
                let stream = Stream { number: board.last_stream, requests };
                board.streams.insert(runtime.id(), stream.clone());
                opened = Some((stream.number, receiver));
                stream
            }
        };
        let create = WatchCreateRequest { watch_id: id, ..create.clone() };
        // If the stream has just ended, everybody is told.
        let _ =
            stream.requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        board.watches.insert(id, Listener { signals: sender.clone(), stream, created: false, unheard: None });
        drop(board);
        if let Some((number, receiver)) = opened {
            // A runtime that is ending drops it at once.
            let ends = Ends { hub: self.clone(), number };
            runtime.spawn(async move { ends.hub.serve(number, receiver).await });
        }
        id
    }

    /// Serves one stream to its end.
    async fn serve(&self, number: u64, requests: UnboundedReceiver<WatchRequest>) {
        let Ok(link) = self.0.links.link().await else { return };
        let requests =
            stream::unfold(requests, async |mut requests| Some((requests.recv().await?, requests)));
        let mut client = WatchClient::with_origin(link.channel(), link.origin());
        let mut answers = match client.watch(self.0.links.request(requests)).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => {
                let _ = self.0.links.react(&link, Failure::from(status).why).await;
                return;
            }
        };
        loop {
            match answers.message().await {
                Ok(Some(answer)) => self.tell(number, answer),
                Ok(None) => return,
                Err(status) => {
                    let _ = self.0.links.react(&link, Failure::from(status).why).await;
                    return;
                }
            }
        }
    }

    /// Passes on what came over the stream with this number.
    fn tell(&self, stream: u64, answer: WatchResponse) {
        let mut board = self.board();
        if answer.canceled {
            if let Some(watch) = board.watches.remove(&answer.watch_id) {
                let _ = watch.signals.send(Signal::Broken);
            }
            if answer.created && answer.compact_revision == 0 {
                board.close_to_newcomers(stream);
            }
            return;
        }
        // Who has dropped a watch is not told any more.
        let Some(watch) = board.watches.get_mut(&answer.watch_id) else { return };
        if answer.created {
            watch.created = true;
            let header =
                answer.header.unwrap_or(ResponseHeader { revision: i64::MAX, ..ResponseHeader::default() });
            let since = Since { revision: header.revision, member: header.member_id };
            let _ = watch.signals.send(Signal::Created(since));
        }
        if !answer.events.is_empty() {
            let _ = watch.signals.send(Signal::Events(answer.events));
            watch.unheard = watch.unheard.map(|unheard| unheard + 1);
            if watch.unheard.is_some_and(|unheard| unheard > UNHEARD) {
                let signals = board.cancel(answer.watch_id);
                let _ = signals.map(|signals| signals.send(Signal::Broken));
            }
        }
    }

    /// The stream with this number has ended.
    fn lose(&self, number: u64) {
        let mut board = self.board();
        board.streams.retain(|_, stream| stream.number != number);
        for (_, watch) in board.watches.extract_if(|_, watch| watch.stream.number == number) {
            let _ = watch.signals.send(Signal::Broken);
        }
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        drop(std::mem::take(&mut *self.parked()));
        let mut board = self.board();
        board.streams.clear();
        for (_, watch) in board.watches.drain() {
            let _ = watch.signals.send(Signal::Broken);
        }
    }

    fn parked(&self) -> MutexGuard<'_, Parked> {
        self.0.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
