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
    /// Somebody waits for it at this very moment.
    ///
    /// A watch that is made while etcd writes is put aside by it, and told of nothing until a loop comes round that it runs
    /// every 100 ms. So two are made, one after the other: hardly ever are both put aside.
    pub(crate) urgent: bool,
}

/// One watch, or two that are the same. Dropping it cancels it.
pub(crate) struct Watch {
    ids: Vec<i64>,
    hub: Hub,
    signals: UnboundedReceiver<Signal>,
}

impl Watch {
    /// What it is told next. `Broken` is told once.
    pub(crate) async fn signal(&mut self) -> Signal {
        self.signals.recv().await.unwrap_or(Signal::Broken)
    }

    /// The same, but that it is in place is told only when all of it is.
    pub(crate) async fn first_signal(&mut self) -> Signal {
        for _ in 1..self.ids.len() {
            match self.signal().await {
                Signal::Created(_) => {}
                other => return other,
            }
        }
        self.signal().await
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
        let mut board = self.board();
        let first = board.last_id + 1;
        let ids: Vec<i64> = (first..=first + i64::from(what.urgent)).collect();
        board.last_id += i64::from(what.urgent) + 1;
        board.watches.extend(ids.iter().map(|id| (*id, sender.clone())));
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
        let create = WatchCreateRequest {
            key: what.span.key.into(),
            range_end: what.span.end.into(),
            start_revision: what.from,
            filters: if what.deletions { vec![FilterType::Noput.into()] } else { Vec::new() },
            ..WatchCreateRequest::default()
        };
        for id in &ids {
            let create = WatchCreateRequest { watch_id: *id, ..create.clone() };
            // If the stream has just ended, everybody is told.
            let _ = stream.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        }
        Watch { ids, hub: self.clone(), signals }
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
        board.watches.clear();
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
