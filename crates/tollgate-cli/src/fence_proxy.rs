//! `tollgate fence-proxy`: a proxy before an HTTP service that refuses stale tokens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::net::TcpListener;
use tollgate::{Error, ErrorKind, Gate, Result};
use tollgate_fence::{Issued, Proxy, ProxyConfig, Resources, TlsFiles, Upstream, possible_connections};

use crate::exit::Exit;
use crate::signals::Signals;
use crate::{connect, log, metrics, tell};

/// Forward requests to an HTTP service, and refuse requests with a stale fencing token.
///
/// Holders send their token with every request that changes something: `Fencing-Token: 42`, or
/// `42;shared` for the token of a shared lock. The proxy answers 428 to a request without a token,
/// 400 to a malformed token, 412 with both numbers to a stale token, and 503 if the store cannot be
/// reached or requests with smaller tokens are not answered in time. These answers have the header
/// `Fencing-Problem`; answers without it are the service's own. GET, HEAD and OPTIONS need no
/// token, but a token that they carry is checked: so read with your token before you write. A
/// WebSocket needs a token too, and so does a request that asks for another method with
/// X-HTTP-Method-Override.
///
/// A larger token is forwarded only when every request with a smaller token was answered, also when
/// the client of that request has gone away. That holds for one proxy: run one proxy before each
/// service. Without --engine callers are trusted not to invent tokens: a single request with the
/// token 9007199254740991 locks out all other holders for good.
///
/// SIGTERM and SIGINT end the proxy when all requests in progress are answered; a second signal
/// ends it at once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FenceProxyArgs {
    /// The address to listen on. Port 0 picks a free port.
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,

    /// The service: http://HOST:PORT, or https://HOST.
    #[arg(short, long, value_name = "URL")]
    upstream: String,

    /// The store of the marks: file:DIR, postgres://…, mysql:// or mariadb://…, redis://… (also
    /// redis-sentinel:// and redis-cluster://), or memory:, which forgets the marks when the proxy
    /// ends.
    #[arg(short, long, value_name = "URL", env = "TOLLGATE_STORE", hide_env_values = true)]
    store: String,

    /// The resource that is fenced: one NAME for all paths, or patterns of paths; the first pattern
    /// that matches decides.
    ///
    /// `/orders/{id}/*=orders/{id}` makes every order a resource: {id} matches one segment of a
    /// path, and * at the end matches everything that follows. A request that needs a token is
    /// refused if no pattern matches its path. May be repeated.
    #[arg(short, long, value_name = "NAME|PATTERN=NAME", required_unless_present = "resource_header")]
    resource: Vec<String>,

    /// Take the resource from this header. Callers are trusted to name the resource that they
    /// change.
    #[arg(long, value_name = "HEADER", conflicts_with = "resource")]
    resource_header: Option<String>,

    /// Methods that need no token, separated by commas; '' for none.
    #[arg(long, value_name = "METHODS", default_value = "GET,HEAD,OPTIONS")]
    unguarded: String,

    /// How long a request waits for requests with smaller tokens to be answered.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration, default_value = "10s")]
    drain: Duration,

    /// How long the service may take to read a request and to begin its answer (504 after that).
    /// Requests with larger tokens wait for the service even after a 504; if its connection broke,
    /// they wait as long as this.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration, default_value = "60s")]
    timeout: Duration,

    /// The maximum number of connected clients, and of connections to the service.
    ///
    /// By default it is what the limit on open files leaves room for: about half of the files that
    /// remain after a reserve for the store, and at most 16384. When one client more connects, the
    /// connection that has been idle for longest is closed; if all connections have a request in
    /// progress, the new client waits until it is accepted.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,

    /// Pass on the headers Forwarded, X-Forwarded-… and X-Real-IP of clients: only if nothing but a
    /// proxy of yours reaches this proxy.
    #[arg(long)]
    trust_forwarded: bool,

    /// The engine that the locks are on: a token that it never gave is refused, and so is a new
    /// token whose holder has already lost the lock. The name of the resource is the name of the
    /// lock.
    #[arg(long, value_name = "URL")]
    engine: Option<String>,

    /// The certificate of the authority that signed the certificate of an https:// service, if the
    /// system does not trust that authority.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,

    /// Check the arguments, and whether the store and the engine answer, then exit.
    #[arg(long)]
    check: bool,

    /// How much to log on stderr while the proxy runs; each refusal is a line of level warn.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "warn")]
    log: log::Level,

    /// Serve metrics for Prometheus at /metrics on this address.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,

    /// Print the address that the proxy listens on as JSON.
    #[arg(long)]
    json: bool,

    /// Forward everything without a gate, to measure what the gate costs.
    #[arg(long, hide = true)]
    ungated: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate fence-proxy --check -u http://127.0.0.1:8080 -s file:m -r shop
  tollgate fence-proxy --check -u http://app -s file:m -r '/o/{id}/*=o/{id}'";

pub(crate) async fn run(args: FenceProxyArgs) -> Result<Exit> {
    allow_all_files();
    let config = config(&args)?;
    let mut signals = Signals::listen()?;
    log::install(args.log)?;
    let numbers = match args.metrics.filter(|_| !args.check) {
        Some(address) => Some(counted(address).await?),
        None => None,
    };
    let gate = tokio::select! {
        gate = gate(&args) => gate?,
        signal = signals.next() => return Ok(Exit::of_signal(signal)),
    };
    if args.check {
        return Ok(Exit::OK);
    }
    let (listener, address) = listen(args.listen).await?;
    tell::note(&guarding(&args, address));
    let says = match (args.json, numbers) {
        (true, None) => json!({ "listening": address }).to_string(),
        (true, Some(numbers)) => json!({ "listening": address, "metrics": numbers }).to_string(),
        (false, None) => format!("listening on {address}"),
        (false, Some(numbers)) => format!("listening on {address}, metrics on {numbers}"),
    };
    tell::line(&says).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = Proxy::new(gate, config).serve(listener, async {
        // The sender may be dropped by then.
        let _ = stopped.await;
    });
    let ended = async {
        ending(&mut signals).await;
        tell::note("finishing the requests in progress; a second signal ends the proxy at once");
        let _ = stop.send(());
        ending(&mut signals).await
    };
    tokio::select! {
        () = serving => Ok(Exit::OK),
        signal = ended => Ok(Exit::of_signal(signal)),
    }
}

/// Raises the limit on open files as far as it may be raised. The default is low for programs that
/// cannot use more files; this one can.
fn allow_all_files() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, there is room for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let message = format!(
            "cannot listen on {address}; is the port taken, or does the address belong to another machine?"
        );
        Error::new(ErrorKind::Unavailable, message).caused_by(error)
    })?;
    let address = listener.local_addr().unwrap_or(address);
    Ok((listener, address))
}

/// Starts the metrics. To be called before anything connects: a recorder that is installed later
/// misses what was counted before.
async fn counted(address: SocketAddr) -> Result<SocketAddr> {
    let (listener, address) = listen(address).await?;
    metrics::serve(listener)?;
    Ok(address)
}

/// The note at the start: where the proxy listens, the service, and what is fenced.
fn guarding(args: &FenceProxyArgs, address: SocketAddr) -> String {
    let fenced = match &args.resource_header {
        Some(header) => format!("the resource that the header {header} names"),
        None => args.resource.join(", "),
    };
    // The URL may contain a password.
    let store =
        args.store.split_once("://").map_or(args.store.clone(), |(engine, _)| format!("{engine}://…"));
    format!("{address} forwards to {}; fenced: {fenced}; marks in {store}", args.upstream)
}

/// Waits for a signal that ends the proxy.
async fn ending(signals: &mut Signals) -> i32 {
    loop {
        let signal = signals.next().await;
        if [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP].contains(&signal) {
            return signal;
        }
    }
}

fn config(args: &FenceProxyArgs) -> Result<ProxyConfig> {
    let files = TlsFiles { ca: args.upstream_ca.clone(), ..TlsFiles::default() };
    let resources = match &args.resource_header {
        Some(header) => Resources::by_header(header)?,
        None => Resources::parse(&args.resource)?,
    };
    let mut config = ProxyConfig::new(Upstream::parse(&args.upstream, &files)?, resources);
    config.unguard(&args.unguarded)?;
    for (limit, option) in [(args.drain, "--drain"), (args.timeout, "--timeout")] {
        if limit.is_zero() {
            return Err(Error::invalid(format!(
                "{option} of zero leaves no time for a request; write 1s, or more"
            )));
        }
    }
    (config.drain, config.timeout) = (args.drain, args.timeout);
    config.trust_forwarded = args.trust_forwarded;
    if let Some(most) = args.max_connections {
        config.connections = usize::try_from(most).unwrap_or(usize::MAX);
        let possible = possible_connections();
        if config.connections > possible {
            let message = format!(
                "the limit on open files leaves room for {possible} connections of clients, and as many to the service; raise the \
                 limit with `ulimit -n`, or lower --max-connections"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
    }
    Ok(config)
}

async fn gate(args: &FenceProxyArgs) -> Result<Option<Arc<dyn Gate>>> {
    if args.ungated {
        return Ok(None);
    }
    let gate = tollgate::gate(&args.store).await?;
    if args.store.starts_with("memory:") {
        tell::note("marks in memory: are forgotten when the proxy ends; stale tokens pass after that");
    }
    Ok(Some(match &args.engine {
        Some(url) => Arc::new(Issued::new(gate, connect::connect(url).await?)?),
        None => gate,
    }))
}
