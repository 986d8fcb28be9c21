//! All watches of a client, in one stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::error::Failure;
use crate::keys::Span;
use crate::links::Links;
use crate::wire::watch_client::WatchClient;
use crate::wire::watch_create_request::FilterType;
use crate::wire::watch_request::RequestUnion;
use crate::wire::{
    Event, ResponseHeader, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};

/// All watches of a client. The stream is opened with the first; when it breaks, every watch is told.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Inner>);

struct Inner {
    links: Links,
    board: Mutex<Board>,
}

#[derive(Default)]
struct Board {
    /// What is sent to the stream, and which stream it is; none if there is none.
    stream: Option<(u64, UnboundedSender<WatchRequest>)>,
    watches: HashMap<i64, UnboundedSender<Signal>>,
    last_id: i64,
    streams: u64,
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
    ids: Vec<i64>,
    create: WatchCreateRequest,
    sender: UnboundedSender<Signal>,
    hub: Hub,
    signals: UnboundedReceiver<Signal>,
}

impl Watch {
    /// What it is told next. `Broken` is told once.
    pub(crate) async fn signal(&mut self) -> Signal {
        self.signals.recv().await.unwrap_or(Signal::Broken)
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
            let known = board.watches.remove(id).is_some();
            if let (true, Some((_, stream))) = (known, &board.stream) {
                let cancel = RequestUnion::CancelRequest(WatchCancelRequest { watch_id: *id });
                // If the stream is gone, so is the watch.
                let _ = stream.send(WatchRequest { request_union: Some(cancel) });
            }
        }
    }
}

impl Hub {
    pub(crate) fn new(links: Links) -> Self {
        Self(Arc::new(Inner { links, board: Mutex::default() }))
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
        Watch { ids, create, sender, hub: self.clone(), signals }
    }

    /// Asks for a watch that tells `sender`, over a new stream if there is none.
    fn create(&self, create: &WatchCreateRequest, sender: &UnboundedSender<Signal>) -> i64 {
        let mut board = self.board();
        board.last_id += 1;
        let id = board.last_id;
        board.watches.insert(id, sender.clone());
        let stream = match &board.stream {
            Some((_, stream)) => stream.clone(),
            None => {
                let (sender, receiver) = mpsc::unbounded_channel();
                board.streams += 1;
                board.stream = Some((board.streams, sender.clone()));
                let (hub, number) = (self.clone(), board.streams);
                self.0.links.keeper().spawn(async move {
                    hub.serve(receiver).await;
                    hub.lose(number);
                });
                sender
            }
        };
        let create = WatchCreateRequest { watch_id: id, ..create.clone() };
        // If the stream has just ended, everybody is told.
        let _ = stream.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        id
    }

    /// Serves one stream to its end.
    async fn serve(&self, requests: UnboundedReceiver<WatchRequest>) {
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
                Ok(Some(answer)) => self.tell(answer),
                Ok(None) => return,
                Err(status) => {
                    let _ = self.0.links.react(&link, Failure::from(status).why).await;
                    return;
                }
            }
        }
    }

    fn tell(&self, answer: WatchResponse) {
        let mut board = self.board();
        if answer.canceled {
            if let Some(watch) = board.watches.remove(&answer.watch_id) {
                let _ = watch.send(Signal::Broken);
            }
            return;
        }
        // Who has dropped a watch is not told any more.
        let Some(watch) = board.watches.get(&answer.watch_id) else { return };
        if answer.created {
            let header =
                answer.header.unwrap_or(ResponseHeader { revision: i64::MAX, ..ResponseHeader::default() });
            let since = Since { revision: header.revision, member: header.member_id };
            let _ = watch.send(Signal::Created(since));
        }
        if !answer.events.is_empty() {
            let _ = watch.send(Signal::Events(answer.events));
        }
    }

    /// The stream with this number has ended.
    fn lose(&self, number: u64) {
        let mut board = self.board();
        if board.stream.as_ref().is_some_and(|(current, _)| *current == number) {
            board.stream = None;
            for (_, watch) in board.watches.drain() {
                let _ = watch.send(Signal::Broken);
            }
        }
    }

    /// Ends the stream.
    pub(crate) fn close(&self) {
        let mut board = self.board();
        board.stream = None;
        for (_, watch) in board.watches.drain() {
            let _ = watch.send(Signal::Broken);
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
