//! A proxy before an HTTP service that knows nothing of tokens.

mod clients;
mod exchange;
mod headers;
mod lingering;
mod route;
mod tunnel;
mod upload;
mod upstream;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tollgate_core::{BoxFuture, Error, Gate};

pub use self::clients::possible_connections;
use self::clients::{Answering, Client, Clients, UnderWay, Watched};
use self::exchange::{Outcome, Outlives, Turn, exchange};
pub use self::route::Resources;
use self::upload::Upload;
use self::upstream::Connections;
pub use self::upstream::Upstream;
use crate::answer::{Answer, Bounds};
use crate::problem::{self, Problem};
use crate::token_header::{overrides_method, shown};
use crate::turnstile::{DRAIN, Passage, Turnstile};

/// How long a client may take for the head of a request.
const FOR_HEAD: Duration = Duration::from_secs(30);
/// How long nobody is let in when no connection can be taken, because too many files are open.
const BREATH: Duration = Duration::from_millis(50);
/// How requests ended, as the `metrics` facade knows it.
const REQUESTS: &str = "tollgate_fence_proxy_requests_total";

/// What a proxy does.
///
/// ```
/// use std::time::Duration;
/// use tollgate_fence::{ProxyConfig, Resources, Upstream};
///
/// let upstream = Upstream::parse("http://127.0.0.1:8080", &Default::default())?;
/// let mut config = ProxyConfig::new(upstream, Resources::parse(&["/orders/{id}/*=orders/{id}"])?);
/// config.drain = Duration::from_secs(3);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// The service.
    pub upstream: Upstream,
    /// What requests are about.
    pub resources: Resources,
    /// Methods that need no token: GET, HEAD and OPTIONS unless said otherwise. Who shows one is checked all the same.
    pub unguarded: Vec<Method>,
    /// How long a request waits for those with smaller tokens; 10 s unless said.
    pub drain: Duration,
    /// How long the service may take to read what is there of a request, and then to begin its answer; a minute unless said.
    /// To wait for the client does not count. A service whose connection broke may still be at work for as long, and for as
    /// long an answer is read whose client has gone away.
    pub timeout: Duration,
    /// How many clients may be connected, and how many connections to the service there may be. Unless said, what the limit on
    /// open files leaves room for beside the store. One more client closes the connection that has been idle for longest; if
    /// all of them have a request under way it waits until it is taken.
    pub connections: usize,
    /// Whether what clients say in `Forwarded`, `X-Forwarded-…` and `X-Real-IP` is passed on: only if a proxy that is trusted
    /// stands before this one, and nothing else reaches it. Otherwise such headers are removed, and made anew.
    pub trust_forwarded: bool,
}

impl ProxyConfig {
    /// The usual, before `upstream`.
    pub fn new(upstream: Upstream, resources: Resources) -> Self {
        let unguarded = vec![Method::GET, Method::HEAD, Method::OPTIONS];
        Self {
            upstream,
            resources,
            unguarded,
            drain: DRAIN,
            timeout: Duration::from_secs(60),
            connections: clients::usual_connections(),
            trust_forwarded: false,
        }
    }

    /// Says which methods need no token, as they are written on a command line: `GET,HEAD`, or nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be a method.
    pub fn unguard(&mut self, methods: &str) -> Result<(), Error> {
        let names = methods.split(',').map(str::trim).filter(|name| !name.is_empty());
        let methods = names.map(|name| {
            // They are written in capitals, and another spelling would be another method.
            let method =
                name.parse().ok().filter(|_| !name.contains(|letter: char| letter.is_ascii_lowercase()));
            method.ok_or_else(|| {
                Error::invalid(format!("{name:?} is not an HTTP method; write GET,HEAD,OPTIONS"))
            })
        });
        self.unguarded = methods.collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// A proxy that forwards a request only with a token that is not stale, and in order.
///
/// - 428 without a token, 400 for what is no token, 412 for a stale one, with both numbers, 503 if the gate cannot be asked or
///   requests with smaller tokens are not answered in time. Every answer of the proxy's own has the header `Fencing-Problem`;
///   one without it is the service's.
/// - A larger token is forwarded only when every forwarded request with a smaller one was answered to its end, or the service
///   has closed its connection. A client that goes away ends nothing, and one that does not read its answer keeps nobody
///   waiting. That holds for one proxy: of several before one service
///   each keeps the order of its own requests alone, and a stale one that is under way in one may come behind a newer
///   one of the other. So run one.
/// - Nothing is repeated: what was sent and not answered is a 502 that says so.
/// - Bodies stream both ways. Upgrades (WebSockets) pass with a token, whatever the method, until a larger one comes.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_fence::{Proxy, ProxyConfig, Resources, Upstream};
///
/// let gate = tollgate::gate("file:/var/lib/marks").await?;
/// let upstream = Upstream::parse("http://127.0.0.1:8080", &Default::default())?;
/// let proxy = Proxy::new(Some(gate), ProxyConfig::new(upstream, Resources::parse(&["shop"])?));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
/// proxy.serve(listener, std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
pub struct Proxy {
    turnstile: Option<Arc<Turnstile>>,
    clients: Arc<Clients>,
    connections: Arc<Connections>,
    config: ProxyConfig,
}

type Sent = Response<Either<Answer<Incoming, Turn>, Full<Bytes>>>;
/// The same, and until when it is under way.
type Sending = Response<Answering<Either<Answer<Incoming, Turn>, Full<Bytes>>>>;

impl Proxy {
    /// A proxy that asks `gate`. Without one everything is forwarded as it comes, to measure what a gate costs.
    pub fn new(gate: Option<Arc<dyn Gate>>, config: ProxyConfig) -> Self {
        let turnstile = gate.map(|gate| Turnstile::new(gate, config.drain));
        // Half of what those wait who wait for it, so that they see the end of it.
        let bounds = Bounds { awaited: config.drain / 2, alone: config.timeout };
        let connections =
            Connections::new(config.upstream.clone(), config.connections, config.timeout, bounds);
        let clients = Clients::new(config.connections);
        Self { turnstile, clients, connections: Arc::new(connections), config }
    }

    /// Serves the clients that connect, until `stop` completes; then finishes what is under way, and returns.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let this = Arc::new(self);
        let mut stop = std::pin::pin!(stop);
        let (stopping, stopped) = watch::channel(false);
        // Everybody has a sender, and nobody sends: it ends when all are gone.
        let (alive, mut all) = mpsc::channel::<Infallible>(1);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Before another one is accepted: those that are not have no descriptor here.
                    tokio::select! {
                        biased;
                        () = &mut stop => break,
                        () = this.clients.make_room() => {}
                    }
                    let client = this.clients.enter();
                    let connection = this.clone().boxed_connection(stream, peer, client, stopped.clone());
                    let alive = alive.clone();
                    tokio::spawn(async move {
                        connection.await;
                        drop(alive);
                    });
                }
                Err(error) => {
                    tracing::warn!(target: "tollgate", %error, "no connection can be taken");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
        drop((listener, alive));
        // Whoever hears nobody has nothing to finish.
        let _ = stopping.send(true);
        let _ = all.recv().await;
        if let Some(turnstile) = &this.turnstile {
            turnstile.emptied().await;
        }
    }

    /// Boxed here, so that this crate compiles it: `serve` is generic, and is compiled where it is called.
    fn boxed_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        client: Client,
        stopped: watch::Receiver<bool>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(self.connection(stream, peer, client, stopped))
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        client: Client,
        mut stopped: watch::Receiver<bool>,
    ) {
        let _ = stream.set_nodelay(true);
        let stream = TokioIo::new(Watched::new(stream, client.clone()));
        let asks = client.clone();
        let serve = service_fn(move |request| {
            let (this, under_way) = (self.clone(), asks.begin());
            async move { Ok::<_, Infallible>(this.answer(request, peer, under_way).await) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(FOR_HEAD);
        let mut connection = std::pin::pin!(server.serve_connection(stream, serve).with_upgrades());
        // How it ends is the client's business. To make room it is dropped: one that never said anything does not end
        // when it is asked to.
        tokio::select! {
            biased;
            () = client.is_closing() => return,
            _ = connection.as_mut() => return,
            _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            biased;
            () = client.is_closing() => {}
            _ = connection => {}
        }
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr, under_way: UnderWay) -> Sending {
        let mut under_way = Some(under_way);
        let answered = self.forward(request, peer, &mut under_way).await;
        let outcome = answered.as_ref().err().map_or("forwarded", Problem::word);
        metrics::counter!(REQUESTS, "outcome" => outcome).increment(1);
        let sent = answered.unwrap_or_else(|problem| problem.response(|text| Either::Right(Full::new(text))));
        sent.map(|body| Answering::new(body, under_way))
    }

    /// What is answered. A connection that goes on in another protocol takes `under_way` with it.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        under_way: &mut Option<UnderWay>,
    ) -> Result<Sent, Problem> {
        if request.method() == Method::CONNECT {
            let detail = "this proxy serves one service, and opens no tunnels to others";
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "connect", detail));
        }
        let upgrade = headers::wanted_upgrade(request.headers());
        let client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let (mut parts, body) = request.into_parts();
        // Also of who is refused the body is read.
        let (upload, progress) = Upload::new(&parts.headers, body);
        let passage = self.passage(&parts, upgrade.is_some()).await?;
        parts.uri = self.target(&parts.method, &parts.uri)?;
        parts.version = http::Version::HTTP_11;
        headers::strip(&mut parts.headers, upgrade);
        headers::measure(&mut parts.headers, &upload);
        if !self.config.trust_forwarded {
            headers::disbelieve(&mut parts.headers);
        }
        headers::introduce(&mut parts.headers, peer.ip(), &self.config.upstream.authority);
        let watch = passage.as_ref().map(Passage::watch);
        progress.begin();
        let guarded = passage.is_some();
        let request = Request::from_parts(parts, upload);
        let exchange = exchange(self.connections.clone(), request, passage, progress.clone());
        let late = progress.late(self.config.timeout);
        let outcome = if guarded {
            let exchange = Outlives::new(exchange);
            tokio::select! { biased; outcome = exchange => outcome, () = late => Err(self.late()) }
        } else {
            tokio::select! { biased; outcome = exchange => outcome, () = late => Err(self.late()) }
        };
        match outcome? {
            Outcome::Switched(response, work) => {
                tunnel::open(response, client, work, watch, under_way.take())
            }
            Outcome::Answered(mut response) => {
                headers::strip(response.headers_mut(), None);
                problem::disown(response.headers_mut());
                Ok(response.map(Either::Left))
            }
        }
    }

    async fn passage(
        &self,
        parts: &http::request::Parts,
        upgrades: bool,
    ) -> Result<Option<Passage>, Problem> {
        let Some(turnstile) = &self.turnstile else { return Ok(None) };
        match shown(&parts.headers)? {
            Some(fence) => turnstile.enter(&self.config.resources.of(parts)?, fence).await.map(Some),
            // What comes after an upgrade may change anything, and nobody here sees it.
            None if self.config.unguarded.contains(&parts.method) && !upgrades => {
                if overrides_method(&parts.headers) { Err(Problem::method_override()) } else { Ok(None) }
            }
            None => Err(Problem::missing()),
        }
    }

    /// The same path, below the one that the service is at.
    fn target(&self, method: &Method, uri: &Uri) -> Result<Uri, Problem> {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let base = &self.config.upstream.base;
        if path == "*" && !(method == Method::OPTIONS && base.is_empty()) {
            let detail = "* is not a path here: it is valid only with OPTIONS, and only for a service that \
                          is forwarded as a whole";
            return Err(Problem::malformed(detail));
        }
        if !base.is_empty() && route::has_dots(uri.path()) {
            let detail = "this path may lead outside the part of the service that is forwarded; write it \
                          without . and .. segments";
            return Err(Problem::malformed(detail));
        }
        let target = if base.is_empty() { path.parse() } else { format!("{base}{path}").parse() };
        target.map_err(|_| Problem::malformed("this path cannot be forwarded"))
    }

    fn late(&self) -> Problem {
        let detail = format!(
            "the service did not read the request, or did not begin to answer it, within {:?}; the request \
             may have been executed, and requests with larger tokens wait for it",
            self.config.timeout
        );
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "late", detail)
    }
}
