//! `tollgate fence-proxy`: stands before an HTTP service and refuses stale tokens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;
use tollgate::{Error, ErrorKind, Gate, Result};
use tollgate_fence::{Issued, Proxy, ProxyConfig, Resources, TlsFiles, Upstream};

use crate::exit::Exit;
use crate::signals::Signals;
use crate::{connect, log, metrics, tell};

/// Stand before an HTTP service, and let nobody through who has lost their lock.
///
/// Holders send their token with every request that changes something: `Fencing-Token: 42`, or `42;shared` for that of a
/// shared lock. Without one it is 428, for what is no token 400, for a stale one 412 with both numbers. If the store cannot be
/// asked, or requests with older tokens are not answered in time, it is 503. Such answers have the header `Fencing-Problem`;
/// those without it are the service's own. GET, HEAD and OPTIONS need no token, but who shows one is checked: so read with it
/// before you write. A WebSocket needs one, too.
///
/// A larger token is forwarded only when every request with a smaller one was answered, also when its client has gone away.
/// That holds for one proxy: run one before each service. Without --engine callers are trusted not to invent tokens: a
/// single 9007199254740991 shuts everybody else out for good.
///
/// SIGTERM and SIGINT end it when everything under way is answered; a second one ends it at once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FenceProxyArgs {
    /// Where to listen. Port 0 is any that is free.
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,

    /// The service: http://HOST:PORT, or https://HOST.
    #[arg(short, long, value_name = "URL")]
    upstream: String,

    /// Where marks are kept: file:DIR, postgres://…, mysql://… or redis://…
    #[arg(short, long, value_name = "URL", env = "TOLLGATE_STORE", hide_env_values = true)]
    store: String,

    /// What is fenced: one NAME for everything, or patterns of paths, of which the first that fits is taken.
    ///
    /// `/orders/{id}/*=orders/{id}` makes a resource of every order: {id} is one segment of a path, and * at the end all that
    /// follow. A request for a path that nothing fits is refused, if it needs a token. Can be said several times.
    #[arg(short, long, value_name = "NAME|PATTERN=NAME", required_unless_present = "resource_header")]
    resource: Vec<String>,

    /// Take the resource from this header. Callers are trusted to name what they change.
    #[arg(long, value_name = "HEADER", conflicts_with = "resource")]
    resource_header: Option<String>,

    /// Methods that need no token, with commas; '' for none.
    #[arg(long, value_name = "METHODS", default_value = "GET,HEAD,OPTIONS")]
    unguarded: String,

    /// How long a request waits until those with smaller tokens are answered.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration, default_value = "10s")]
    drain: Duration,

    /// How long the service may take to read a request and to begin its answer (504 then). It is waited for all the same before
    /// larger tokens pass, and as long as this if its connection broke.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration, default_value = "60s")]
    timeout: Duration,

    /// The engine that the locks are on: a token that it never gave is refused. The resource's name is the lock's name.
    #[arg(long, value_name = "URL")]
    engine: Option<String>,

    /// Who signed the certificate of an https:// service, if not somebody the system trusts.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,

    /// Look whether everything is written well and the store and the engine answer, and end.
    #[arg(long)]
    check: bool,

    /// How much to say on stderr while it runs; each refusal is a line of warn.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "warn")]
    log: log::Level,

    /// Show what is counted there, at /metrics, as Prometheus reads it.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,

    /// Say where it listens as JSON.
    #[arg(long)]
    json: bool,

    /// Forward everything, to measure what the gate costs.
    #[arg(long, hide = true)]
    ungated: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate fence-proxy --check -u http://127.0.0.1:8080 -s file:m -r shop
  tollgate fence-proxy --check -u http://app -s file:m -r '/o/{id}/*=o/{id}'";

pub(crate) async fn run(args: FenceProxyArgs) -> Result<Exit> {
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
        // Whoever asks to stop may be gone by then.
        let _ = stopped.await;
    });
    let ended = async {
        ending(&mut signals).await;
        tell::note("finishing what is under way; once more ends it at once");
        let _ = stop.send(());
        ending(&mut signals).await
    };
    tokio::select! {
        () = serving => Ok(Exit::OK),
        signal = ended => Ok(Exit::of_signal(signal)),
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let message =
            format!("nobody can listen on {address}; is the port taken, or the address another machine's?");
        Error::new(ErrorKind::Unavailable, message).caused_by(error)
    })?;
    let address = listener.local_addr().unwrap_or(address);
    Ok((listener, address))
}

/// Before anything is connected: what comes later has missed what was before.
async fn counted(address: SocketAddr) -> Result<SocketAddr> {
    let (listener, address) = listen(address).await?;
    metrics::serve(listener)?;
    Ok(address)
}

/// Where it is, before what, and what is fenced.
fn guarding(args: &FenceProxyArgs, address: SocketAddr) -> String {
    let fenced = match &args.resource_header {
        Some(header) => format!("what {header} names"),
        None => args.resource.join(", "),
    };
    // There may be a password in it.
    let store =
        args.store.split_once("://").map_or(args.store.clone(), |(engine, _)| format!("{engine}://…"));
    format!("{address} stands before {}; fenced: {fenced}; marks in {store}", args.upstream)
}

/// Waits for a signal that is to end a service.
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
                "{option} of zero leaves no time for anything; say 1s, or more"
            )));
        }
    }
    (config.drain, config.timeout) = (args.drain, args.timeout);
    Ok(config)
}

async fn gate(args: &FenceProxyArgs) -> Result<Option<Arc<dyn Gate>>> {
    if args.ungated {
        return Ok(None);
    }
    let gate = tollgate::gate(&args.store).await?;
    if args.store.starts_with("memory:") {
        tell::note("marks in memory: are forgotten when this ends, and stale tokens are let through then");
    }
    Ok(Some(match &args.engine {
        Some(url) => Arc::new(Issued::new(gate, connect::connect(url).await?)?),
        None => gate,
    }))
}
