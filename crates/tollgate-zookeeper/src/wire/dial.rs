//! How a connection is found: every server in turn, several at once if they are slow, and a handshake with one.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, OptionFuture};
use futures_util::stream::FuturesUnordered;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tollgate_core::url::Host;
use tollgate_core::{Clock, Moment};

use super::carrier::{Carrier, Plain};
use super::fault::Code;
use super::jute::{Reader, frame_length};
use super::ops::{AUTH_XID, Hello, Request, Welcome, answer};

/// How long a server is waited for before the next is tried, too.
const STAGGER: Duration = Duration::from_millis(250);
/// How long a server may take at first to let a session go on if there is no other, which one that is starting may forget; or to
/// make one if there are others: each that is given up for the next is there for its whole time.
const ALONE: Duration = Duration::from_secs(1);
/// No answer to a handshake is longer.
const LONGEST: usize = 4096;

/// Servers, and what they are told of us.
#[derive(Debug)]
pub(crate) struct Dialer {
    hosts: Vec<Host>,
    /// Which of them is the next.
    next: usize,
    /// How often each was tried: of several addresses of one name another one comes first each time.
    tries: Vec<usize>,
    tls: Option<Arc<ClientConfig>>,
    /// A user and a password.
    login: Option<String>,
    clock: Arc<dyn Clock>,
    /// How long a handshake may take, at first and now. Longer each time when all were too slow.
    first: Duration,
    patience: Duration,
    /// How long anything may take.
    most: Duration,
}

/// A server that has given us a session, or lets one go on.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) carrier: Carrier,
    /// When it was asked.
    pub(crate) asked: Moment,
    pub(crate) welcome: Welcome,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no such session any more.
    Expired,
    /// It does not accept who we are.
    Denied,
    /// Nobody answered as a ZooKeeper that serves us.
    Nobody(io::Error),
}

type Connecting = BoxFuture<'static, (usize, io::Result<Carrier>)>;
type Shaking = BoxFuture<'static, (usize, Result<Met, Refusal>)>;

impl Dialer {
    /// `hosts` are asked in an order of our own, so that not all clients come to the first. Nothing may take longer than
    /// `most`.
    pub(crate) fn new(
        hosts: &[Host],
        tls: Option<Arc<ClientConfig>>,
        login: Option<String>,
        clock: Arc<dyn Clock>,
        most: Duration,
    ) -> Self {
        let (random, mut order) = (RandomState::new(), (0..hosts.len()).collect::<Vec<_>>());
        order.sort_by_key(|number| random.hash_one(number));
        let hosts: Vec<_> = order.into_iter().map(|number| hosts[number].clone()).collect();
        let first = if hosts.len() > 1 { ALONE.min(most) } else { most };
        let tries = vec![0; hosts.len()];
        Self { hosts, next: 0, tries, tls, login, clock, first, patience: first, most }
    }

    /// From now on a session waits for it: nothing may take longer than `most`.
    pub(crate) fn hurry(&mut self, most: Duration) {
        let first = if self.hosts.len() > 1 { STAGGER } else { ALONE };
        (self.most, self.first) = (most, first.min(most));
        self.patience = self.first;
    }

    /// Asks each server once. Drops what it has begun if it is dropped.
    pub(crate) async fn dial(&mut self, hello: &Hello) -> Result<Met, Refusal> {
        let count = self.hosts.len();
        let mut left: VecDeque<usize> = (0..count).map(|number| (self.next + number) % count).collect();
        let mut connecting: FuturesUnordered<Connecting> = FuturesUnordered::new();
        let mut connected: VecDeque<(usize, Carrier)> = VecDeque::new();
        // One at a time: a session that is asked for at two servers goes to and fro.
        let mut shaking: OptionFuture<Shaking> = None.into();
        let mut busy = false;
        let (mut last, mut too_slow) = (io::Error::other("no server was named"), false);
        loop {
            if !busy && let Some((number, carrier)) = connected.pop_front() {
                (shaking, busy) = (Some(self.shake(number, carrier, hello)).into(), true);
            }
            if !busy && connecting.is_empty() {
                match left.pop_front() {
                    Some(number) => connecting.push(self.connect(number)),
                    None => break,
                }
            }
            tokio::select! {
                Some((number, met)) = &mut shaking, if busy => {
                    (shaking, busy) = (None.into(), false);
                    match met {
                        Err(Refusal::Nobody(error)) => {
                            too_slow |= error.kind() == io::ErrorKind::TimedOut;
                            last = error;
                        }
                        settled => {
                            // The next time another one comes first.
                            self.next = (number + 1) % count;
                            self.patience = self.first;
                            return settled;
                        }
                    }
                }
                Some((number, carrier)) = connecting.next(), if !connecting.is_empty() => match carrier {
                    Ok(carrier) => connected.push_back((number, carrier)),
                    Err(error) => {
                        last = error;
                        connecting.extend(left.pop_front().map(|number| self.connect(number)));
                    }
                },
                () = tokio::time::sleep(STAGGER), if !busy && !left.is_empty() => {
                    connecting.extend(left.pop_front().map(|number| self.connect(number)));
                }
            }
        }
        if too_slow {
            self.patience = (self.patience * 2).min(self.most);
        }
        Err(Refusal::Nobody(last))
    }

    fn connect(&mut self, number: usize) -> Connecting {
        let (host, tls, turn) = (self.hosts[number].clone(), self.tls.clone(), self.tries[number]);
        self.tries[number] = turn.wrapping_add(1);
        let connecting = tokio::time::timeout(self.most, connect(host, tls, turn));
        connecting.map(move |result| (number, result.unwrap_or_else(|_| Err(silent())))).boxed()
    }

    fn shake(&self, number: usize, carrier: Carrier, hello: &Hello) -> Shaking {
        let auth = self.login.as_ref().map(|login| Request::auth("digest", login.as_bytes()));
        let (hello, clock) = (hello.frame(), self.clock.clone());
        let shaking = tokio::time::timeout(self.patience, shake(carrier, hello, auth, clock));
        let in_time = |result: Result<_, _>| result.unwrap_or_else(|_| Err(Refusal::Nobody(silent())));
        shaking.map(move |result| (number, in_time(result))).boxed()
    }
}

async fn connect(host: Host, tls: Option<Arc<ClientConfig>>, turn: usize) -> io::Result<Carrier> {
    let mut addresses: Vec<_> = lookup_host((host.name.as_str(), host.port)).await?.collect();
    let first = turn.checked_rem(addresses.len()).unwrap_or(0);
    addresses.rotate_left(first);
    let stream = TcpStream::connect(&addresses[..]).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Carrier::Plain(Plain::new(stream))) };
    let name = ServerName::try_from(host.name).map_err(io::Error::other)?;
    Ok(Carrier::Encrypted(Box::new(TlsConnector::from(tls).connect(name, stream).await?)))
}

async fn shake(
    mut carrier: Carrier,
    mut hello: Vec<u8>,
    auth: Option<Request>,
    clock: Arc<dyn Clock>,
) -> Result<Met, Refusal> {
    let has_auth = auth.is_some();
    hello.extend(auth.into_iter().flat_map(|auth| auth.frame(AUTH_XID)));
    let asked = clock.now();
    carrier.write_all(&hello).await?;
    carrier.flush().await?;
    let welcome = answer::welcome(&frame(&mut carrier).await?).map_err(|_| foreign())?;
    if welcome.timeout_ms == 0 {
        return Err(Refusal::Expired);
    }
    if has_auth {
        let head = answer::head(&mut Reader(&frame(&mut carrier).await?)).map_err(|_| foreign())?;
        match head.code {
            Code(0) if head.xid == AUTH_XID => {}
            Code::AUTH_FAILED | Code::SASL_REQUIRED => return Err(Refusal::Denied),
            _ => return Err(foreign().into()),
        }
    }
    Ok(Met { carrier, asked, welcome })
}

async fn frame(carrier: &mut Carrier) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    carrier.read_exact(&mut length).await?;
    let length = frame_length(length).ok().filter(|length| *length <= LONGEST).ok_or_else(foreign)?;
    let mut frame = vec![0; length];
    carrier.read_exact(&mut frame).await?;
    Ok(frame)
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Nobody(error)
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server does not answer")
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server does not answer like a ZooKeeper")
}
