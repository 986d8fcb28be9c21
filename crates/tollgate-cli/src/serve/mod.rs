//! `tollgate serve`: the lock server.

mod folder;
mod settings;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tollgate::{Error, ErrorKind, Result};
use tollgate_server::durable::{Options, RedbStore, StoreError};
use tollgate_server::http::Api;
use tollgate_server::listen::{self, Hosts, Listener, Server};
use tollgate_server::{OverService, Running, Service, TableService};

use crate::exit::Exit;
use crate::signals::Signals;
use crate::{connect, passwords, take, tell};
use settings::Settings;

pub(crate) use settings::Given;

/// The ttl that clients ask for, unless they name one.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// How long a stop waits for calls that are under way; a stop takes at most 10 s in all.
const PATIENCE: Duration = Duration::from_secs(8);

/// Run a lock server: an HTTP API for every language, with locks that survive a crash.
///
/// Without options the server listens on 127.0.0.1:7420 and keeps its locks in
/// $XDG_STATE_HOME/tollgate/server, or ~/.local/state/tollgate/server. When it is ready, it prints
/// its address. Then `curl -f -d '{"name": "backup"}' http://127.0.0.1:7420/v1/acquire` takes a
/// lock, and GET /openapi.json describes the API. With --check-config nothing is served.
///
/// SIGTERM and SIGINT stop the server: calls that are under way are answered, all locks stay held,
/// and the server exits with code 0 within 10 s. After a crash, `sync` knows every lock that was
/// granted; `grace` grants nothing until every such lock has expired.
///
/// Every option can also stand in the file of --config, with underscores, and in the environment as
/// TOLLGATE_SERVE_ followed by its name in capitals. An option on the command line wins over the
/// environment, and the environment wins over the file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    given: Given,

    /// Read settings from this TOML file.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_SERVE_CONFIG")]
    config: Option<std::path::PathBuf>,

    /// Print the settings in effect, and exit.
    #[arg(long)]
    check_config: bool,

    /// Print the address as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate serve --check-config
  tollgate serve -d ./locks --durability grace --check-config
  tollgate serve --store redis://127.0.0.1/ --check-config";

pub(crate) async fn run(args: ServeArgs) -> Result<Exit> {
    let settings = Settings::of(args.given, args.config.as_deref())?;
    if args.check_config {
        tell::line(settings.shown().trim_end()).await?;
        return Ok(Exit::OK);
    }
    allow_all_files();
    let signals = Signals::listen()?;
    LocalSet::new().run_until(serve(settings, args.json, signals)).await
}

/// A connection is an open file; the soft limit of most systems allows 1 024.
fn allow_all_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If that fails, there is room for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn serve(settings: Settings, json: bool, signals: Signals) -> Result<Exit> {
    match settings.store.clone() {
        Some(url) => serve_over(&url, settings, json, signals).await,
        None => serve_table(settings, json, signals).await,
    }
}

/// Serves the locks of another engine.
async fn serve_over(url: &str, settings: Settings, json: bool, mut signals: Signals) -> Result<Exit> {
    let url = passwords::complete(url.to_owned())?;
    let locks = match connect::connect_or_end(&url, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let service = match settings.read_only {
        true => OverService::read_only(locks.clone()),
        false => OverService::new(locks.clone())?,
    };
    let (listeners, address) = listeners(&settings).await?;
    let server = server(&settings, Rc::new(service.clone()), None);
    let (stop, stopped) = watch::channel(false);
    let listening = tokio::task::spawn_local(listen::serve(Rc::new(server), listeners, stopped, PATIENCE));
    let (store, read_only) = (settings::without_secrets(&url), settings.read_only);
    let line = match json {
        true => json!({ "url": address, "unix": settings.unix, "store": store, "read_only": read_only })
            .to_string(),
        false if read_only => format!("tollgate: serving {address} (read-only, {store})"),
        false => format!("tollgate: serving {address} ({store})"),
    };
    tell::line(&line).await?;
    let signal = signals.next().await;
    tell::note(&format!("stopping (signal {signal}): held locks stay held"));
    service.stop();
    stop.send_replace(true);
    let _ = listening.await;
    // Claims that still wait are withdrawn.
    drop(service);
    take::close(&locks).await;
    Ok(Exit::OK)
}

fn server(settings: &Settings, service: Rc<dyn Service>, native: Option<TableService>) -> Server {
    let (hosts, limits) = (Hosts::new(settings.hosts()), settings.limits());
    Server { api: Api::new(service), native, hosts, limits }
}

/// Serves locks of our own.
async fn serve_table(settings: Settings, json: bool, mut signals: Signals) -> Result<Exit> {
    // First everything that may fail for another reason than the store: opening the store ends the
    // clean stop of the last run.
    let (listeners, url) = listeners(&settings).await?;
    let folder = folder::Folder::lock(&settings.data)?;
    let is_new = folder.check(settings.token_floor.is_some())?;
    let store = RedbStore::open(&folder.store()).map_err(|error| {
        if is_new {
            folder.forget();
        }
        of_store(error)
    })?;
    let options = Options {
        durability: settings.durability,
        token_floor: settings.token_floor,
        longest: settings.max_ttl,
    };
    let (service, running) = TableService::open(store, &options).map_err(of_store)?;
    folder.mark()?;
    let server = server(&settings, Rc::new(service.clone()), Some(service.clone()));
    let (stop, stopped) = watch::channel(false);
    let listening = tokio::task::spawn_local(listen::serve(Rc::new(server), listeners, stopped, PATIENCE));
    let mut driving = tokio::task::spawn_local(Running::run(running));
    let announced = announce(&settings, &url, json, &service).await;
    let ended = tokio::select! {
        biased;
        // Nothing can be told to the program that started the server: it stops cleanly.
        () = std::future::ready(()), if announced.is_err() => {
            service.stop();
            stop.send_replace(true);
            driving.await
        }
        signal = signals.next() => {
            tell::note(&format!("stopping (signal {signal}): no new locks; held locks stay held"));
            service.stop();
            stop.send_replace(true);
            driving.await
        }
        ended = &mut driving => {
            stop.send_replace(true);
            ended
        }
    };
    let ended = ended.map_err(|error| {
        Error::new(ErrorKind::Unexpected, "the server's loop ended unexpectedly").caused_by(error)
    })?;
    // Calls that were under way are answered even when the disk has failed.
    let _ = listening.await;
    if let Some(path) = &settings.unix {
        let _ = std::fs::remove_file(path);
    }
    ended.map_err(of_store)?;
    announced.map(|()| Exit::OK)
}

/// Prints the one line that says that the server is ready.
async fn announce(settings: &Settings, url: &str, json: bool, service: &TableService) -> Result<()> {
    let (durability, data) = (settings.durability_word(), settings.data.display());
    if let Some(wait) = service.wait() {
        tell::note(&format!(
            "the last run did not stop cleanly, or --token-floor was raised: nothing is granted for {:.1} s, \
             until every lock of the time before has expired",
            wait.as_secs_f64()
        ));
    }
    if settings.max_ttl < DEFAULT_TTL {
        tell::note(&format!(
            "--max-ttl {:?} is shorter than the ttl that clients ask for by default (30 s): they have to name a \
             shorter one",
            settings.max_ttl
        ));
    }
    let line = match json {
        true => json!({ "url": url, "unix": settings.unix, "durability": durability, "data": settings.data })
            .to_string(),
        false => format!("tollgate: serving {url} ({durability}, {data})"),
    };
    tell::line(&line).await?;
    Ok(())
}

/// Opens the sockets; the URL of the first.
async fn listeners(settings: &Settings) -> Result<(Vec<Listener>, String)> {
    if settings.listen.ip().is_unspecified() && settings.hosts().is_empty() {
        tell::note(
            "requests from other machines are refused (403) until --host names what they call this server",
        );
    }
    let address = settings.listen;
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let message = format!(
            "cannot listen on {address}; is another server running, or does the address belong to another \
             machine? --listen chooses another address"
        );
        Error::new(ErrorKind::Unavailable, message).caused_by(error)
    })?;
    let address = listener.local_addr().unwrap_or(address);
    let mut listeners = vec![Listener::Tcp(listener)];
    if let Some(path) = &settings.unix {
        listeners.push(Listener::Unix(unix(path)?));
    }
    Ok((listeners, format!("http://{address}")))
}

/// Opens a Unix socket that only this user may use. The socket of a server that is gone is replaced.
fn unix(path: &std::path::Path) -> Result<UnixListener> {
    let cannot = |error| {
        let message = format!("cannot listen on the Unix socket {}; --unix chooses another", path.display());
        Error::new(ErrorKind::Unavailable, message).caused_by(error)
    };
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(cannot)?;
    }
    let listener = UnixListener::bind(path).map_err(cannot)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(cannot)?;
    Ok(listener)
}

fn of_store(error: StoreError) -> Error {
    let kind = match error {
        StoreError::Newer { .. } => ErrorKind::Config,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, error.to_string())
}
