//! The service behind the proxy: where it is, and connections to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode, Uri};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tollgate_core::tls::{self, TlsFiles};
use tollgate_core::url::Host;
use tollgate_core::{Error, Result};

use super::lingering::{Lingering, Work};
use super::route::has_dots;
use super::upload::Upload;
use crate::answer::Bounds;
use crate::problem::Problem;

/// How long it may take to connect.
const TO_CONNECT: Duration = Duration::from_secs(5);
/// For how long a connection is kept that nobody uses. Services close theirs, and what is sent at that moment is lost.
const IDLE: Duration = Duration::from_secs(2);
/// How many are kept.
const KEPT: usize = 256;
/// How soon it is looked again whether one that was given back is ready.
const SOON: Duration = Duration::from_millis(10);
/// How long a request waits for a connection when there are as many as there may be.
const FOR_ROOM: Duration = Duration::from_secs(5);

/// The service behind a proxy.
///
/// ```
/// let service = tollgate_fence::Upstream::parse("http://127.0.0.1:8080/api", &Default::default())?;
/// assert!(tollgate_fence::Upstream::parse("ftp://127.0.0.1", &Default::default()).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Upstream {
    host: Host,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(super) authority: HeaderValue,
    /// What paths begin with there, without a slash at the end.
    pub(super) base: String,
}

impl Upstream {
    /// `http://HOST:PORT/BASE`, or `https://…`, with whoever signs its certificate in `files`.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no such URL, `Config` for files that cannot be read.
    pub fn parse(url: &str, files: &TlsFiles) -> Result<Self> {
        // What was written is not repeated: there may be a password in it.
        let wrong = || Error::invalid("this is not the URL of a service; write http://HOST:PORT");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(Error::invalid(
                "the URL of the service must not have a user or password, because clients send their own; \
                 write http://HOST:PORT",
            ));
        }
        if uri.query().is_some() {
            return Err(Error::invalid("the URL of the service must not have a ?query; leave it out"));
        }
        if has_dots(uri.path()) {
            return Err(Error::invalid(
                "the path of the service must not contain . or .. segments; write the resolved path",
            ));
        }
        // A port that is none would be left out silently, and another service answer.
        let has_port = !authority.as_str().ends_with(authority.host());
        if url.contains('#') || has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong());
        }
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let server = ServerName::try_from(name.clone()).map_err(|_| wrong())?;
                (Some((tls::client(files, &["http/1.1"])?, server)), 443)
            }
            _ => return Err(wrong()),
        };
        Ok(Self {
            host: Host { name, port: authority.port_u16().unwrap_or(port) },
            tls,
            authority: HeaderValue::try_from(authority.as_str()).map_err(|_| wrong())?,
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// A connection over which one request goes at a time.
pub(super) struct Line {
    pub(super) sender: SendRequest<Upload>,
    pub(super) work: Work,
    used: Option<Instant>,
}

impl Line {
    pub(super) fn is_fresh(&self) -> bool {
        self.used.is_none()
    }
}

/// All of them.
pub(super) struct Connections {
    upstream: Upstream,
    /// How long the service may still be at work whose connection is gone.
    patience: Duration,
    /// For how long answers are read on.
    pub(super) bounds: Bounds,
    idle: Mutex<Vec<Line>>,
    /// One permit for each connection, until the service is done with what it was sent.
    room: Arc<Semaphore>,
    given_back: Notify,
}

impl Connections {
    /// At most `most` at a time.
    pub(super) fn new(upstream: Upstream, most: usize, patience: Duration, bounds: Bounds) -> Self {
        let room = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Self { upstream, patience, bounds, idle: Mutex::default(), room, given_back: Notify::new() }
    }

    /// One that is there, or a new one.
    pub(super) async fn line(&self) -> Result<Line, Problem> {
        let found = tokio::time::timeout(FOR_ROOM, async {
            loop {
                if let Some(line) = self.take() {
                    return Ok(line);
                }
                tokio::select! {
                    biased;
                    place = self.room.clone().acquire_owned() => return Err(place),
                    () = self.given_back.notified() => {}
                    // One that was given back may not be ready yet.
                    () = tokio::time::sleep(SOON) => {}
                }
            }
        });
        match found.await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(Ok(place))) => self.open_in(place).await,
            Ok(Err(Err(_))) | Err(_) => Err(Problem::full()),
        }
    }

    fn take(&self) -> Option<Line> {
        let mut idle = self.idle();
        idle.retain(|line| !line.sender.is_closed() && line.used.is_some_and(|used| used.elapsed() < IDLE));
        // The last one: the others may rest until they are too old.
        let place = idle.iter().rposition(|line| line.sender.is_ready())?;
        Some(idle.swap_remove(place))
    }

    pub(super) fn give_back(&self, mut line: Line) {
        line.used = Some(Instant::now());
        let mut idle = self.idle();
        if !line.sender.is_closed() && idle.len() < KEPT {
            idle.push(line);
            self.given_back.notify_one();
        }
    }

    /// A new one, whatever is there.
    pub(super) async fn open(&self) -> Result<Line, Problem> {
        let place = match self.room.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                // The one that has rested for longest makes room.
                let oldest = {
                    let mut idle = self.idle();
                    if idle.is_empty() { None } else { Some(idle.remove(0)) }
                };
                drop(oldest);
                let place = tokio::time::timeout(FOR_ROOM, self.room.clone().acquire_owned()).await;
                place.ok().and_then(Result::ok).ok_or_else(Problem::full)?
            }
        };
        self.open_in(place).await
    }

    async fn open_in(&self, place: OwnedSemaphorePermit) -> Result<Line, Problem> {
        let opened = tokio::time::timeout(TO_CONNECT, self.connect(place)).await;
        opened.unwrap_or_else(|_| Err(unreachable("the service did not accept the connection in time")))
    }

    async fn connect(&self, place: OwnedSemaphorePermit) -> Result<Line, Problem> {
        let Upstream { host, tls, .. } = &self.upstream;
        let failed = |error: std::io::Error| unreachable(&error.to_string());
        let found = tokio::net::lookup_host((host.name.as_str(), host.port)).await.map_err(failed)?;
        let found: Vec<_> = found.collect();
        let stream = Lingering::connect(&found, self.patience, place).await.map_err(failed)?;
        let work = stream.work();
        let sender = match tls {
            None => speak(TokioIo::new(stream), work.clone()).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(config.clone());
                let secure = connector.connect(name.clone(), stream).await;
                let secure =
                    secure.map_err(|error| unreachable(&tls::insecure(host, "http", error).to_string()))?;
                speak(TokioIo::new(secure), work.clone()).await
            }
        };
        let sender = sender.map_err(|error| unreachable(&error.to_string()))?;
        Ok(Line { sender, work, used: None })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn speak<T: Read + Write + Unpin + Send + 'static>(
    io: T,
    work: Work,
) -> hyper::Result<SendRequest<Upload>> {
    let (sender, connection) = http1::handshake(io).await?;
    tokio::spawn(async move {
        // What goes wrong is told to whoever sends.
        tokio::select! {
            _ = connection.with_upgrades() => {}
            () = work.is_cut() => {}
        }
    });
    Ok(sender)
}

fn unreachable(why: &str) -> Problem {
    tracing::warn!(target: "tollgate", why, "the service cannot be reached");
    let detail = format!("the service cannot be reached ({why}); nothing was sent to it");
    Problem::new(StatusCode::BAD_GATEWAY, "unreachable", detail)
}
