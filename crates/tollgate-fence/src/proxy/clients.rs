//! The clients that are connected. There are only so many, and one that has nothing under way makes room for another.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often clients that fetch nothing of their answers are looked at again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a client is idle at least before it makes room: what it sends first, or next, may be on its way.
const GRACE: Duration = Duration::from_millis(200);
/// For how long a client may leave an answer that is complete unfetched, when another one waits for its place.
const UNFETCHED: Duration = Duration::from_secs(30);
/// Files that are open besides connections and the store's: standard streams, listeners, the runtime's own.
const OTHERS: u64 = 32;
/// The most files that a store in a folder keeps open, and the most that it works on at the same time, are a part of all.
const STORES: (u64, u64) = (8, 256);
/// What is not exceeded without being told so: each connection needs memory, too.
const USUALLY: usize = 16_384;

/// For how many clients, and as many connections to the service, the limit on open files leaves room.
///
/// ```
/// use tollgate_fence::{ProxyConfig, Resources, Upstream, possible_connections};
///
/// let upstream = Upstream::parse("http://127.0.0.1:8080", &Default::default())?;
/// let config = ProxyConfig::new(upstream, Resources::parse(&["shop"])?);
/// assert!(config.connections <= possible_connections().max(1));
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn possible_connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(possible(files)).unwrap_or(usize::MAX).min(tokio::sync::Semaphore::MAX_PERMITS)
}

pub(super) fn usual_connections() -> usize {
    possible_connections().clamp(1, USUALLY)
}

fn possible(files: u64) -> u64 {
    let (part, most) = STORES;
    files.saturating_sub(OTHERS + 2 * (files / part).min(most)) / 2
}

/// All of them.
pub(super) struct Clients {
    most: usize,
    connected: Mutex<Connected>,
    changed: Notify,
}

#[derive(Default)]
struct Connected {
    number: u64,
    clients: HashMap<u64, Arc<Shared>>,
}

/// A client, connected as long as one of these is there.
#[derive(Clone)]
pub(super) struct Client(Arc<Seat>);

struct Seat {
    clients: Arc<Clients>,
    number: u64,
    shared: Arc<Shared>,
}

struct Shared {
    activity: Mutex<Activity>,
    close: Notify,
}

struct Activity {
    /// How many requests are not answered yet.
    under_way: usize,
    /// The network has everything of the answers.
    flushed: bool,
    /// When the last answer was complete.
    since: Instant,
    /// It is to make room.
    closing: bool,
}

impl Activity {
    /// When it may be told to make room; nothing while it has something under way.
    fn idle_from(&self) -> Option<Instant> {
        let rest = if self.flushed { GRACE } else { UNFETCHED };
        (self.under_way == 0).then(|| self.since + rest)
    }
}

impl Clients {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), connected: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until there is room for one more. Of those that have nothing under way, the one that has been idle for longest
    /// makes it. Dropped, it may have been told to for nothing.
    pub(super) async fn make_room(&self) {
        while let Some(wait) = self.not_yet() {
            let is_late = tokio::time::timeout(wait, self.changed.notified()).await.is_err();
            if is_late && wait >= AGAIN {
                tracing::warn!(
                    target: "tollgate",
                    connections = self.most,
                    "every connection that the limit allows has a request under way; further clients wait"
                );
            }
        }
    }

    /// How long to wait at most until it is looked again whether there is room; nothing if there is.
    fn not_yet(&self) -> Option<Duration> {
        let connected = self.connected();
        if connected.clients.len() < self.most {
            return None;
        }
        let mut first: Option<(Instant, &Arc<Shared>)> = None;
        for client in connected.clients.values() {
            let activity = client.activity();
            if activity.closing {
                return Some(AGAIN);
            }
            if let Some(from) = activity.idle_from()
                && first.is_none_or(|(earliest, _)| from < earliest)
            {
                first = Some((from, client));
            }
        }
        let Some((from, client)) = first else { return Some(AGAIN) };
        let wait = from.saturating_duration_since(Instant::now());
        if wait > Duration::ZERO {
            return Some(wait.min(AGAIN));
        }
        let mut activity = client.activity();
        // A request may have come just now.
        activity.closing = activity.idle_from() == Some(from);
        drop(activity);
        client.close.notify_one();
        Some(AGAIN)
    }

    /// One more client.
    pub(super) fn enter(self: &Arc<Self>) -> Client {
        let activity = Activity { under_way: 0, flushed: true, since: Instant::now(), closing: false };
        let shared = Arc::new(Shared { activity: Mutex::new(activity), close: Notify::new() });
        let mut connected = self.connected();
        connected.number += 1;
        let number = connected.number;
        connected.clients.insert(number, shared.clone());
        drop(connected);
        Client(Arc::new(Seat { clients: self.clone(), number, shared }))
    }

    fn connected(&self) -> MutexGuard<'_, Connected> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.connected().clients.remove(&self.number);
        self.clients.changed.notify_one();
    }
}

impl Shared {
    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// A request came.
    pub(super) fn begin(&self) -> UnderWay {
        let mut activity = self.0.shared.activity();
        activity.under_way += 1;
        activity.flushed = false;
        if std::mem::take(&mut activity.closing) {
            // Another one has to make room.
            self.0.clients.changed.notify_one();
        }
        drop(activity);
        UnderWay(self.clone())
    }

    fn flushed(&self) {
        let mut activity = self.0.shared.activity();
        if activity.under_way == 0 && !std::mem::replace(&mut activity.flushed, true) {
            self.0.clients.changed.notify_one();
        }
    }

    /// Completes when the connection is to make room, and nothing is under way over it.
    pub(super) async fn is_closing(&self) {
        loop {
            self.0.shared.close.notified().await;
            if self.0.shared.activity().closing {
                return;
            }
        }
    }
}

/// A request of a client that is not answered yet, or a connection that goes on in another protocol.
pub(super) struct UnderWay(Client);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut activity = self.0.0.shared.activity();
        activity.under_way -= 1;
        activity.since = Instant::now();
    }
}

/// An answer. Its request is under way until all of it was handed on.
pub(super) struct Answering<B> {
    body: B,
    _request: Option<UnderWay>,
}

impl<B> Answering<B> {
    pub(super) fn new(body: B, request: Option<UnderWay>) -> Self {
        Self { body, _request: request }
    }
}

impl<B: Body<Data: Buf> + Unpin> Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A client's connection, which knows when its answers are on their way.
pub(super) struct Watched {
    stream: TcpStream,
    client: Client,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, client: Client) -> Self {
        Self { stream, client }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    /// Asked for only when nothing is kept back.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.client.flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_for_the_store_whatever_the_limit() {
        for files in [64, 256, 1024, 65_536, 1 << 20] {
            let connections = 2 * possible(files);
            assert!(connections > 0 && connections + OTHERS + files.min(2048) / 4 <= files, "{files}");
        }
        assert_eq!((possible(0), possible(256), possible(1024)), (0, 80, 368));
    }

    #[tokio::test(start_paused = true)]
    async fn the_client_that_is_idle_for_longest_makes_room() {
        let clients = Clients::new(3);
        let (oldest, busy, newest) = (clients.enter(), clients.enter(), clients.enter());
        let under_way = busy.begin();
        tokio::time::advance(AGAIN).await;
        // The oldest connection, and the one that was used last.
        drop(oldest.begin());
        oldest.flushed();
        tokio::time::advance(GRACE).await;
        let room = clients.make_room();
        let closing = async {
            newest.is_closing().await;
            drop(newest);
        };
        tokio::join!(room, closing);
        let another = clients.enter();
        drop(another.begin());
        // Its answer is not with the network yet.
        let room = clients.make_room();
        let closing = async {
            oldest.is_closing().await;
            drop(oldest);
        };
        tokio::join!(room, closing);
        tokio::time::advance(GRACE).await;
        let last = clients.enter();
        drop(last.begin());
        let patience = tokio::time::timeout(UNFETCHED - AGAIN, clients.make_room()).await;
        assert!(patience.is_err(), "one is at work, and the others have not fetched their answers");
        let room = clients.make_room();
        let closing = async {
            another.is_closing().await;
            drop(another);
        };
        tokio::join!(room, closing);
        drop((under_way, last));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_at_the_last_moment_is_not_cut_off() {
        let clients = Clients::new(1);
        let client = clients.enter();
        assert!(clients.not_yet().is_some() && !client.0.shared.activity().closing, "it has only just come");
        tokio::time::advance(GRACE).await;
        assert!(clients.not_yet().is_some() && client.0.shared.activity().closing);
        let under_way = client.begin();
        assert!(tokio::time::timeout(AGAIN, client.is_closing()).await.is_err());
        drop(under_way);
        client.flushed();
        let closing = async {
            client.is_closing().await;
            drop(client);
        };
        tokio::join!(clients.make_room(), closing);
    }
}
