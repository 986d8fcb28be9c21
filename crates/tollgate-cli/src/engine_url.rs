//! The engine's URL: from the command line, the environment, or a file.

use clap::Args;
use tollgate::{Error, ErrorKind, Result};

use crate::passwords;

/// The environment variable that names the engine.
pub(crate) const URL: &str = "TOLLGATE_URL";
/// The environment variable that names a file whose first line is the URL: for secrets that are
/// mounted as files.
pub(crate) const URL_FILE: &str = "TOLLGATE_URL_FILE";
/// Set in the environment of a command from which the URL was removed.
pub(crate) const URL_WITHHELD: &str = "TOLLGATE_URL_WITHHELD";
/// The engine if no URL is given.
const DEFAULT: &str = "file:";

/// The engine, as `--url`.
#[derive(Debug, Default, Args)]
pub(crate) struct UrlArg {
    /// The engine: file:DIR, etcd://HOST, zookeeper://HOST, postgres://HOST/DATABASE,
    /// mysql://HOST/DATABASE, mariadb://HOST/DATABASE, redis://HOST, redis-sentinel://HOST/SERVICE,
    /// redis-cluster://HOST, redlock://HOST,HOST,HOST, tollgate://HOST or memory:. Without it
    /// $TOLLGATE_URL, else the first line of the file $TOLLGATE_URL_FILE, else file: alone.
    ///
    /// file:DIR is for the processes of this host; file: alone keeps its files in
    /// $XDG_STATE_HOME/tollgate, or ~/.local/state/tollgate. Locks of memory: are visible to one
    /// process only: among the commands that take --url only bench and doctor accept it.
    ///
    /// One Redis is redis://HOST:PORT/DB, redis-sentinel://HOST,HOST/SERVICE or
    /// redis-cluster://HOST,HOST; encrypted rediss://, rediss-sentinel:// and rediss-cluster://. A
    /// majority of independent Redis servers is redlock://HOST,HOST,HOST, encrypted redlocks://.
    /// The members of an etcd cluster are etcd://HOST,HOST,HOST, encrypted etcds://. The servers of
    /// a ZooKeeper are zookeeper://HOST,HOST,HOST/CHROOT, encrypted zookeepers://. A database is
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE (or postgresql://), encrypted with
    /// ?sslmode=require, or mysql://USER:PASSWORD@HOST:PORT/DATABASE (mariadb:// for MariaDB),
    /// encrypted with ?ssl-mode=required. A server that tollgate serve runs is tollgate://HOST:PORT,
    /// or tollgate+unix:PATH.
    ///
    /// All users of this host can see the command line in the list of processes: write a URL with a
    /// password into $TOLLGATE_URL or $TOLLGATE_URL_FILE. A password that the URL leaves out is
    /// looked for where the engine's own tools look: $PGPASSWORD, $PGPASSFILE and ~/.pgpass,
    /// $MYSQL_PWD, $REDISCLI_AUTH, $ETCDCTL_PASSWORD.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

impl UrlArg {
    /// The URL that was asked for, or the default.
    pub(crate) fn resolve(&self) -> Result<String> {
        let url = self.given()?.unwrap_or_else(|| DEFAULT.to_owned());
        passwords::complete(of_server(url))
    }

    /// The URL as it was given; `None` if it was given nowhere.
    pub(crate) fn given(&self) -> Result<Option<String>> {
        if let Some(url) = &self.url {
            return Ok(Some(url.clone()));
        }
        if let Some(url) = variable(URL)? {
            return Ok(Some(url));
        }
        if let Some(path) = variable(URL_FILE)? {
            return first_line(&path).map(Some);
        }
        if std::env::var_os(URL_WITHHELD).is_some() {
            return Err(Error::invalid(format!(
                "no engine is named: the tollgate run around this command removed {URL} from its environment; pass --url to \
                 this command, or --pass-url to that tollgate run"
            )));
        }
        Ok(None)
    }
}

/// The engine, as an argument or as `--url`.
#[derive(Debug, Args)]
pub(crate) struct EngineArg {
    /// The engine, as with --url.
    #[arg(value_name = "URL", conflicts_with = "url")]
    engine: Option<String>,

    #[command(flatten)]
    url: UrlArg,
}

/// A lock server announces itself as http://HOST:PORT; its native protocol is on the same port.
fn of_server(url: String) -> String {
    match url.strip_prefix("http://") {
        Some(server) => format!("tollgate://{}", server.trim_end_matches('/')),
        None => url,
    }
}

impl EngineArg {
    /// The URL that was asked for, or the default.
    pub(crate) fn resolve(&self) -> Result<String> {
        self.either().resolve()
    }

    /// The URL that was asked for; an error that shows `example` if there is none.
    pub(crate) fn required(&self, example: &str) -> Result<String> {
        let url = self.either().given()?;
        let url =
            url.ok_or_else(|| Error::invalid(format!("no engine is named; write for example {example}")))?;
        passwords::complete(of_server(url))
    }

    fn either(&self) -> UrlArg {
        UrlArg { url: self.engine.clone().or_else(|| self.url.url.clone()) }
    }
}

/// An environment variable, if it is set and not empty.
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Error::invalid(format!("{name} is not UTF-8"))),
    }
}

fn first_line(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Config, format!("{URL_FILE} names {path:?}, which cannot be read"))
            .caused_by(error)
    })?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(Error::new(
            ErrorKind::Config,
            format!("the first line of {path:?} is empty; write the URL there"),
        ));
    }
    Ok(line.to_owned())
}
