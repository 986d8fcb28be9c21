//! Opens connections: one host of the URL after the other, each within a time limit of its own.
//!
//! The driver's own `connect` has one limit for the TCP connection and none for the login, so that a first host which
//! accepts and stays silent keeps every client from the second. It also says nothing of what it has found out: here the
//! client remembers which host took writes last.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_core::tls::TlsFiles;
use tollgate_core::{Error, ErrorKind, OwnerId, Result};

use crate::carrier::Carrier;
use crate::config::{PostgresConfig, TO_CONNECT};
use crate::driven::Driven;
use crate::error::{is_of_tls, of_connect, only_reads, silent_at, unreachable};
use crate::libpq::USUAL_PORT;
use crate::screen::{Screened, ScreenedTls};

/// How long each host has at most if there is another one to try.
const TO_TRY_ONE: Duration = Duration::from_secs(2);
/// How often one host is asked if a pooler was about to lend a process that has just ended.
const TRIES: u32 = 3;

/// Which hosts have proved good, shared by all connections of a client.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    /// Hosts with a smaller number are tried first. Those that were never tried have 0.
    ranks: Mutex<HashMap<String, i64>>,
}

impl Ranks {
    fn ranks(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promote(&self, candidate: &Candidate) {
        let mut ranks = self.ranks();
        let first = ranks.values().copied().min().unwrap_or(0).min(0);
        ranks.insert(candidate.key(), first - 1);
    }

    fn demote(&self, candidate: &Candidate) {
        let mut ranks = self.ranks();
        let last = ranks.values().copied().max().unwrap_or(0).max(0);
        ranks.insert(candidate.key(), last + 1);
    }

    fn sort(&self, candidates: &mut [Candidate]) {
        let ranks = self.ranks();
        candidates.sort_by_key(|candidate| ranks.get(&candidate.key()).copied().unwrap_or(0));
    }
}

/// A host of the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    /// Where it is.
    host: Host,
    port: u16,
    /// The name that its certificate has to be for.
    name: String,
}

impl Candidate {
    fn key(&self) -> String {
        format!("{:?} {}", self.host, self.port)
    }
}

/// The hosts of a URL, in its order.
fn candidates(server: &Config) -> Result<Vec<Candidate>> {
    let (hosts, addresses, ports) = (server.get_hosts(), server.get_hostaddrs(), server.get_ports());
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(Error::invalid("hostaddr must name as many addresses as there are hosts"));
    }
    let count = hosts.len().max(addresses.len());
    if ports.len() > 1 && ports.len() != count {
        return Err(Error::invalid("name one port for all hosts, or one for each"));
    }
    let candidate = |at: usize| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(USUAL_PORT);
        let address = addresses.get(at).map(ToString::to_string);
        let name = match hosts.get(at) {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(_)) => String::new(),
            None => address.clone().unwrap_or_default(),
        };
        let host = match address {
            Some(address) => Host::Tcp(address),
            None => hosts[at].clone(),
        };
        Candidate { host, port, name }
    };
    Ok((0..count).map(candidate).collect())
}

/// A host that is being tried. A caller with little patience may give up before a silent host's time is over; the next
/// caller has to begin with another host then, or it would get no further.
struct Trial<'a> {
    ranks: &'a Ranks,
    candidate: &'a Candidate,
    settled: bool,
}

impl Trial<'_> {
    fn succeeded(mut self) {
        self.settled = true;
        self.ranks.promote(self.candidate);
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.ranks.demote(self.candidate);
        }
    }
}

/// Connects to a host of `server` that is as its `target_session_attrs` says.
pub(crate) async fn dial(config: &PostgresConfig, server: &Config) -> Result<Driven> {
    let (connection, ()) = dial_over(config, server, |carrier| Ok((carrier, ()))).await?;
    Ok(connection)
}

/// The same over what `carry` makes of a socket. Answers with what else that makes, too.
pub(crate) async fn dial_over<S, X>(
    config: &PostgresConfig,
    server: &Config,
    carry: impl Fn(Carrier) -> std::io::Result<(S, X)> + Send + Sync,
) -> Result<(Driven, X)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut candidates = candidates(server)?;
    if server.get_load_balance_hosts() == LoadBalanceHosts::Random {
        candidates.sort_by_cached_key(|_| OwnerId::random().to_bits());
    }
    config.ranks.sort(&mut candidates);
    let (mut away, mut refused) = (None, None);
    for candidate in &candidates {
        let trial = Trial { ranks: &config.ranks, candidate, settled: false };
        match try_host(config, server, candidate, candidates.len(), &carry).await {
            Ok(connected) => {
                trial.succeeded();
                return Ok(connected);
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => drop(away.get_or_insert(error)),
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    Err(match (away, refused) {
        // A host that is away may be the one that takes writes: a standby's refusal ends no wait.
        (Some(away), Some(refused)) => Error::new(
            ErrorKind::Unavailable,
            format!("{}; another host of the URL was reached: {}", away.message(), refused.message()),
        )
        .caused_by(refused),
        (Some(error), None) | (None, Some(error)) => error,
        (None, None) => Error::invalid("the URL names no server; write postgres://HOST/DATABASE"),
    })
}

/// How long each of this many `places` has, so that the last one gets its try although all others stay silent.
fn limit_of_each(config: &PostgresConfig, server: &Config, places: usize) -> Duration {
    let share = |whole: Duration| match u64::try_from(places) {
        // Whole milliseconds, because messages show them.
        Ok(places) if places > 1 => Duration::from_millis(whole.as_millis() as u64 / places),
        _ => whole,
    };
    match server.get_connect_timeout() {
        // As libpq does it: this is the limit of each host, not of all.
        Some(asked) => config.timeout.map_or(*asked, |timeout| share(timeout).min(*asked)),
        None => {
            let share = share(config.timeout.map_or(TO_CONNECT, |timeout| timeout.min(TO_CONNECT)));
            if places > 1 { share.min(TO_TRY_ONE) } else { share }
        }
    }
}

/// Tries each address of one of the URL's `hosts`.
async fn try_host<S, X>(
    config: &PostgresConfig,
    server: &Config,
    candidate: &Candidate,
    hosts: usize,
    carry: &Carry<'_, S, X>,
) -> Result<(Driven, X)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = limit_of_each(config, server, hosts);
    let addresses = match &candidate.host {
        Host::Unix(_) => Vec::new(),
        Host::Tcp(name) => {
            let resolving = tokio::net::lookup_host((name.as_str(), candidate.port));
            let found = tokio::time::timeout(limit, resolving).await;
            let found = found.map_err(|_| silent_at(config, limit))?;
            found.map_err(|error| unreachable(config, error))?.collect()
        }
    };
    let places: Vec<Option<SocketAddr>> = match addresses.is_empty() {
        true => vec![None],
        false => addresses.into_iter().map(Some).collect(),
    };
    let limit = limit_of_each(config, server, hosts * places.len());
    let mut last = None;
    for place in places {
        let target = Target { config, server, candidate, place, encrypts: config.tls.is_some() };
        match tokio::time::timeout(limit, patiently(target, carry)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(failure)) => match failure.into_error(config) {
                away if away.kind() == ErrorKind::Unavailable => last = Some(away),
                // The server at another address of this host says the same.
                refused => return Err(refused),
            },
            Err(_) => last = Some(silent_at(config, limit)),
        }
    }
    Err(last.unwrap_or_else(|| silent_at(config, limit)))
}

/// Why there is no connection.
enum Failure {
    /// Nothing was reached.
    Network(std::io::Error),
    /// What the server or the driver said.
    Driver(tokio_postgres::Error),
    /// Anything else.
    Other(Error),
}

impl Failure {
    fn into_error(self, config: &PostgresConfig) -> Error {
        match self {
            Self::Network(error) => unreachable(config, error),
            Self::Driver(error) => of_connect(error, config),
            Self::Other(error) => error,
        }
    }
}

/// Connects, and again if a pooler was about to lend a process that has just ended: PgBouncer says it of the one that comes, and
/// the next gets another.
///
/// With `sslmode=prefer`, the same without encryption if there can be none.
async fn patiently<S, X>(mut target: Target<'_>, carry: &Carry<'_, S, X>) -> Result<(Driven, X), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut tries = 1;
    loop {
        match attempt(target, carry).await {
            Err(Failure::Driver(error))
                if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) && tries < TRIES =>
            {
                tries += 1;
            }
            Err(Failure::Driver(error))
                if target.encrypts && target.config.may_be_plain && is_of_tls(&error) =>
            {
                target.encrypts = false;
            }
            opened => return opened,
        }
    }
}

/// What a socket is wrapped in, and what is kept of it beside the connection.
type Carry<'a, S, X> = dyn Fn(Carrier) -> std::io::Result<(S, X)> + Send + Sync + 'a;

/// One address, and how to greet what is there.
#[derive(Clone, Copy)]
struct Target<'a> {
    config: &'a PostgresConfig,
    server: &'a Config,
    candidate: &'a Candidate,
    /// None for a socket in a folder.
    place: Option<SocketAddr>,
    encrypts: bool,
}

/// One connection to one address.
async fn attempt<S, X>(target: Target<'_>, carry: &Carry<'_, S, X>) -> Result<(Driven, X), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Target { config, server, candidate, place, encrypts } = target;
    let carrier = match (&candidate.host, place) {
        (Host::Unix(folder), _) => Carrier::unix(folder, candidate.port).await,
        (Host::Tcp(_), Some(address)) => Carrier::tcp(address, server).await,
        (Host::Tcp(_), None) => Err(std::io::Error::other("this name has no address")),
    };
    let carrier = carrier.map_err(Failure::Network)?;
    // As libpq does it: what does not leave the machine is not encrypted.
    let encrypts = config.tls.as_ref().filter(|_| encrypts && !matches!(carrier, Carrier::Unix(_)));
    let encrypts = match encrypts.map(|files| encryption(server, files, &candidate.name)).transpose() {
        Err(_) if config.may_be_plain => None,
        encrypts => encrypts.map_err(Failure::Other)?,
    };
    let guards_password = server.get_password().is_some() && !config.plain_password && !carrier.is_private();
    let (socket, extra) = carry(carrier).map_err(Failure::Network)?;
    let mut login = server.clone();
    login.ssl_mode(if encrypts.is_some() { SslMode::Require } else { SslMode::Disable });
    let mut connection = match encrypts {
        None => {
            let socket = Screened::new(socket, guards_password);
            let (client, connection) = login.connect_raw(socket, NoTls).await.map_err(Failure::Driver)?;
            Driven::new(client, connection)
        }
        Some(mut tls) => {
            let made = MakeTlsConnect::<S>::make_tls_connect(&mut tls, &candidate.name);
            let tls = made.map_err(|error| Failure::Other(no_name(&candidate.name, &error)))?;
            let tls = ScreenedTls::new(tls);
            let (client, connection) = login.connect_raw(socket, tls).await.map_err(Failure::Driver)?;
            Driven::new(client, connection)
        }
    };
    if server.get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
        let said = connection.simple("show transaction_read_only").await;
        let said =
            said.map_err(|trouble| Failure::Other(trouble.not_done().into_error("the connection setup")))?;
        let reads = said.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0) == Some("on"),
            _ => false,
        });
        if reads {
            return Err(Failure::Other(only_reads(config)));
        }
    }
    Ok((connection, extra))
}

/// How a connection to the server called `name` is encrypted.
fn encryption(server: &Config, files: &TlsFiles, name: &str) -> Result<MakeRustlsConnect> {
    let protocols: &[&str] = match server.get_ssl_negotiation() {
        SslNegotiation::Direct => &["postgresql"],
        _ => &[],
    };
    ServerName::try_from(name).map_err(|error| no_name(name, &error))?;
    Ok(MakeRustlsConnect::new((*tollgate_core::tls::client(files, protocols)?).clone()))
}

fn no_name(name: &str, error: &dyn std::error::Error) -> Error {
    Error::invalid(format!("{name:?} cannot be the name of a server with a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Vec<Candidate> {
        candidates(&PostgresConfig::from_url(url).unwrap().server).unwrap()
    }

    #[test]
    fn the_host_that_took_writes_last_is_tried_first_and_one_that_failed_last() {
        let ranks = Ranks::default();
        let order = |ranks: &Ranks| {
            let mut sorted = of("postgres://u@a,b,c/d");
            ranks.sort(&mut sorted);
            sorted.iter().map(|candidate| candidate.name.as_str()).collect::<String>()
        };
        let [a, b, c]: [Candidate; 3] = of("postgres://u@a,b,c/d").try_into().unwrap();
        assert_eq!(order(&ranks), "abc");
        ranks.promote(&b);
        assert_eq!(order(&ranks), "bac");
        ranks.demote(&a);
        assert_eq!(order(&ranks), "bca");
        drop(Trial { ranks: &ranks, candidate: &b, settled: false });
        assert_eq!(order(&ranks), "cab");
        Trial { ranks: &ranks, candidate: &a, settled: false }.succeeded();
        assert_eq!(order(&ranks), "acb");
        ranks.promote(&c);
        assert_eq!(order(&ranks), "cab");
    }

    #[test]
    fn every_host_has_its_port() {
        let ports = |url| of(url).iter().map(|candidate| candidate.port).collect::<Vec<_>>();
        assert_eq!(ports("postgres://u@a:1,b:2/d"), [1, 2]);
        assert_eq!(ports("postgres://u@a,b/d"), [5432, 5432]);
    }

    /// The first host accepts the connection, and says nothing.
    #[tokio::test]
    async fn a_silent_first_host_leaves_time_of_the_timeout_for_the_others() {
        let listen = || tokio::net::TcpListener::bind("127.0.0.1:0");
        let [first, second, third] = [listen().await, listen().await, listen().await].map(Result::unwrap);
        let hosts = [&first, &second, &third].map(|listener| listener.local_addr().unwrap().to_string());
        for parameters in ["", "?connect_timeout=10"] {
            let url = format!("postgres://u@{}/d{parameters}", hosts.join(","));
            let mut config = PostgresConfig::from_url(&url).unwrap();
            let timeout = Duration::from_millis(1500);
            config.timeout = Some(timeout);
            let server = config.server.clone();
            tokio::select! {
                _ = tokio::time::timeout(timeout, dial(&config, &server)) => panic!("{url}: the last has no try"),
                accepted = third.accept() => drop(accepted.unwrap()),
            }
        }
    }

    #[test]
    fn the_hosts_share_what_there_is_to_connect() {
        let limit = |url: &str, timeout: Option<u64>, places| {
            let mut config = PostgresConfig::from_url(url).unwrap();
            config.timeout = timeout.map(Duration::from_secs);
            limit_of_each(&config, &config.server, places).as_millis()
        };
        let usual = "postgres://u@h/d";
        assert_eq!([1, 2, 3].map(|places| limit(usual, None, places)), [5000, 2000, 1666]);
        assert_eq!([1, 2, 4].map(|places| limit(usual, Some(2), places)), [2000, 1000, 500]);
        assert_eq!([1, 2].map(|places| limit(usual, Some(60), places)), [5000, 2000]);
        let asked = "postgres://u@h/d?connect_timeout=3";
        assert_eq!([1, 2].map(|places| limit(asked, None, places)), [3000, 3000]);
        assert_eq!([1, 2].map(|places| limit(asked, Some(60), places)), [3000, 3000]);
        assert_eq!([1, 2].map(|places| limit(asked, Some(2), places)), [2000, 1000]);
    }
}
