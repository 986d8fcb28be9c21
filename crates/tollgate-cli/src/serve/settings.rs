//! The server's settings: from the command line, the environment, a file, and the defaults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Deserializer, Serialize};
use tollgate::{Error, ErrorKind, Result, Token};
use tollgate_server::durable::Durability;
use tollgate_server::listen::Limits;

/// The longest ttl of `sync`, unless it is configured.
const SYNC_MAX_TTL: Duration = Duration::from_secs(3600);
/// The longest ttl of `grace`, unless it is configured: a restart after a crash waits that long.
const GRACE_MAX_TTL: Duration = Duration::from_secs(300);

/// What was given in one place; what was not given there is `None`.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Given {
    /// The address to listen on. Port 0 picks a free port.
    ///
    /// Without access rules the server listens on loopback addresses only.
    #[arg(short, long, value_name = "ADDRESS", env = "TOLLGATE_SERVE_LISTEN")]
    listen: Option<SocketAddr>,

    /// Also listen on this Unix socket, for this user.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_SERVE_UNIX")]
    unix: Option<PathBuf>,

    /// The folder that the locks are kept in.
    #[arg(short, long, value_name = "DIR", env = "TOLLGATE_SERVE_DATA")]
    data: Option<PathBuf>,

    /// When a lock is on the disk: `sync` before it is granted, `grace` only at a clean stop.
    ///
    /// `grace` is several times faster. After a crash it grants nothing for as long as the longest
    /// lock may still be held.
    #[arg(long, value_name = "MODE", env = "TOLLGATE_SERVE_DURABILITY", value_parser = durability)]
    #[serde(default)]
    durability: Option<Durability>,

    /// Keep no locks here: serve the locks of this engine (redis://, redlock://, etcd://,
    /// postgres://, mysql://). Several servers may run over one engine.
    #[arg(long, value_name = "URL", env = "TOLLGATE_SERVE_STORE", hide_env_values = true, conflicts_with_all = ["data", "durability", "token_floor"])]
    store: Option<String>,

    /// Only show the locks of --store, and change none: any engine can be shown.
    #[arg(long, env = "TOLLGATE_SERVE_READ_ONLY")]
    #[serde(default)]
    read_only: bool,

    /// The longest time to live that a client may ask for, with its lock-delay: 1h by default, 5m
    /// with `grace`.
    #[arg(long, value_name = "DURATION", env = "TOLLGATE_SERVE_MAX_TTL", value_parser = crate::args::ttl)]
    #[serde(default, deserialize_with = "duration")]
    max_ttl: Option<Duration>,

    /// After a backup was restored: the largest token that any client or resource has seen. All
    /// later tokens are larger, and nothing is granted until every lost lock has expired.
    #[arg(long, value_name = "N", env = "TOLLGATE_SERVE_TOKEN_FLOOR", value_parser = token)]
    #[serde(default)]
    token_floor: Option<Token>,

    /// Serve requests for this name too (the Host header); may be repeated. Loopback names and the
    /// address of --listen are always served.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_SERVE_HOST", value_delimiter = ',')]
    #[serde(default)]
    host: Vec<String>,

    /// Listen beyond loopback although there are no access rules: every program that reaches
    /// the server can take and break every lock.
    #[arg(long, env = "TOLLGATE_SERVE_INSECURE")]
    #[serde(default)]
    insecure: bool,

    /// How many connections may be open.
    #[arg(long, value_name = "N", env = "TOLLGATE_SERVE_CONNECTIONS")]
    connections: Option<usize>,

    /// How many connections one address may have open; those from this machine are not counted.
    #[arg(long, value_name = "N", env = "TOLLGATE_SERVE_CONNECTIONS_PER_ADDRESS")]
    connections_per_address: Option<usize>,
}

/// The settings in effect.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) listen: SocketAddr,
    pub(super) unix: Option<PathBuf>,
    pub(super) store: Option<String>,
    pub(super) read_only: bool,
    pub(super) data: PathBuf,
    pub(super) durability: Durability,
    pub(super) max_ttl: Duration,
    pub(super) token_floor: Option<Token>,
    host: Vec<String>,
    insecure: bool,
    connections: usize,
    connections_per_address: usize,
}

impl Settings {
    /// Of the command line and the environment, then of the file, then the defaults.
    pub(super) fn of(given: Given, file: Option<&Path>) -> Result<Self> {
        let file = file.map_or_else(|| Ok(Given::default()), read)?;
        let durability = given.durability.or(file.durability).unwrap_or(Durability::Sync);
        let max_ttl = match durability {
            Durability::Sync => SYNC_MAX_TTL,
            Durability::Grace => GRACE_MAX_TTL,
        };
        let defaults = Limits::default();
        let settings = Self {
            listen: given.listen.or(file.listen).unwrap_or_else(|| ([127, 0, 0, 1], 7420).into()),
            unix: given.unix.or(file.unix),
            store: given.store.or(file.store),
            read_only: given.read_only || file.read_only,
            data: given.data.or(file.data).map_or_else(default_folder, Ok)?,
            durability,
            max_ttl: given.max_ttl.or(file.max_ttl).unwrap_or(max_ttl),
            token_floor: given.token_floor.or(file.token_floor),
            host: if given.host.is_empty() { file.host } else { given.host },
            insecure: given.insecure || file.insecure,
            connections: given.connections.or(file.connections).unwrap_or(defaults.connections),
            connections_per_address: given
                .connections_per_address
                .or(file.connections_per_address)
                .unwrap_or(defaults.connections_per_address),
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{} can be reached from other machines, and there are no access rules: everything that \
                     reaches the server could take and break every lock. Listen on 127.0.0.1, or pass \
                     --insecure where the network itself keeps strangers out",
                    self.listen
                ),
            ));
        }
        if self.read_only && self.store.is_none() {
            let message = "--read-only shows the locks of another engine: name it with --store URL";
            return Err(Error::new(ErrorKind::Config, message));
        }
        if self.connections == 0 || self.connections_per_address == 0 {
            return Err(Error::new(
                ErrorKind::Config,
                "a limit of 0 connections serves no client; use at least 1",
            ));
        }
        Ok(())
    }

    /// The names that requests may be addressed to, besides loopback.
    pub(super) fn hosts(&self) -> Vec<String> {
        let address = Some(self.listen.ip()).filter(|address| !address.is_unspecified());
        self.host.iter().cloned().chain(address.map(|address| address.to_string())).collect()
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            ..Limits::default()
        }
    }

    pub(super) fn durability_word(&self) -> &'static str {
        match self.durability {
            Durability::Sync => "sync",
            Durability::Grace => "grace",
        }
    }

    /// The settings as a file that has the same effect.
    pub(super) fn shown(&self) -> String {
        /// What the file has, in this order.
        #[derive(Serialize)]
        struct Shown<'a> {
            listen: SocketAddr,
            #[serde(skip_serializing_if = "Option::is_none")]
            unix: Option<&'a Path>,
            #[serde(skip_serializing_if = "Option::is_none")]
            store: Option<String>,
            read_only: bool,
            data: &'a Path,
            durability: Durability,
            max_ttl: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            token_floor: Option<Token>,
            host: &'a [String],
            insecure: bool,
            connections: usize,
            connections_per_address: usize,
        }
        let shown = Shown {
            listen: self.listen,
            unix: self.unix.as_deref(),
            store: self.store.as_deref().map(without_secrets),
            read_only: self.read_only,
            data: &self.data,
            durability: self.durability,
            max_ttl: format!("{}ms", self.max_ttl.as_millis()),
            token_floor: self.token_floor,
            host: &self.host,
            insecure: self.insecure,
            connections: self.connections,
            connections_per_address: self.connections_per_address,
        };
        toml::to_string(&shown).unwrap_or_default()
    }
}

/// A URL without its user, password and parameters.
pub(super) fn without_secrets(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
            format!("{scheme}://{hosts}")
        }
        None => bare.to_owned(),
    }
}

fn read(file: &Path) -> Result<Given> {
    let config = |message: String| Error::new(ErrorKind::Config, message);
    let text = std::fs::read_to_string(file).map_err(|error| {
        config(format!("the configuration {} cannot be read", file.display())).caused_by(error)
    })?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let message = error.message().replace('\n', " ");
        config(format!("the configuration {} is wrong in line {line}: {message}", file.display()))
    })
}

fn default_folder() -> Result<PathBuf> {
    let folder = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("tollgate/server")).ok_or_else(|| {
        let message = "neither XDG_STATE_HOME nor HOME is set; choose a folder with --data";
        Error::new(ErrorKind::Config, message)
    })
}

fn durability(text: &str) -> std::result::Result<Durability, String> {
    match text {
        "sync" => Ok(Durability::Sync),
        "grace" => Ok(Durability::Grace),
        _ => Err("expected sync or grace".to_owned()),
    }
}

fn token(text: &str) -> std::result::Result<Token, String> {
    let number: u64 = text.parse().map_err(|_| "a token is a whole number".to_owned())?;
    Token::new(number).map_err(|error| error.to_string())
}

/// A duration as the command line takes it, like `30s`.
fn duration<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    crate::args::ttl(&text).map(Some).map_err(serde::de::Error::custom)
}
