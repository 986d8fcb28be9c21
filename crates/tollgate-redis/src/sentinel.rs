//! Sentinels: who is the primary now.

use std::sync::Arc;

use redis::{AsyncConnectionConfig, Cmd};
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Result};

use crate::config::Login;
use crate::endpoint::{Endpoint, Speech};
use crate::error::{lacks_command, of_connect};
use crate::wire::{SHORT, Wire};

/// Servers that watch over a primary and its replicas.
pub(crate) struct Sentinel {
    pub(crate) sentinels: Vec<Host>,
    /// How sentinels are spoken to.
    pub(crate) to_sentinels: Speech,
    /// Whose primary.
    pub(crate) service: String,
    /// How the primary is spoken to.
    pub(crate) to_primary: Speech,
}

impl Sentinel {
    /// Those at `sentinels`, to whom we are `login`, and whose primary is spoken to by `speech`.
    pub(crate) fn new(sentinels: &[Host], login: &Login, service: &str, speech: Speech) -> Self {
        let to_sentinels = Speech { login: login.info(), ..speech.clone() };
        let (sentinels, service) = (sentinels.to_vec(), service.to_owned());
        Self { sentinels, to_sentinels, service, to_primary: speech }
    }

    /// Asks one sentinel after the other. A server that says of itself that it is no primary is none, whatever they
    /// say: a fail-over may be under way.
    pub(crate) async fn primary(&self) -> Result<Endpoint> {
        let mut troubles = Vec::new();
        for host in &self.sentinels {
            match self.ask(host).await {
                Ok(primary) => return Ok(primary),
                Err(error) => troubles.push(error),
            }
        }
        let message = format!(
            "no sentinel could name a primary of {:?} that answers as a primary; a fail-over may be under \
             way",
            self.service
        );
        // What the last one said is most likely what a person has to know.
        let denied = troubles.iter().position(|error| error.kind() == ErrorKind::Denied);
        match denied.map(|index| troubles.swap_remove(index)).or_else(|| troubles.pop()) {
            Some(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Config) => Err(error),
            Some(error) => Err(Error::new(ErrorKind::Unavailable, message).caused_by(error)),
            None => Err(Error::invalid("name at least one sentinel: redis-sentinel://HOST:26379/SERVICE")),
        }
    }

    async fn ask(&self, host: &Host) -> Result<Endpoint> {
        let sentinel = Endpoint::new(host.clone(), self.to_sentinels.clone());
        let mut question = Cmd::new();
        question.arg("SENTINEL").arg("get-master-addr-by-name").arg(&self.service);
        let asked = once::<Option<(String, u16)>>(&sentinel, &question).await;
        let answer = asked.map_err(|error| match error.kind() {
            _ if lacks_command(&error) => {
                let message = format!("{host} is not a sentinel; name sentinels, or write redis://{host}");
                Error::new(ErrorKind::Config, message).caused_by(error)
            }
            ErrorKind::Denied => {
                let message = format!(
                    "the sentinel {host} refuses this client: {}. Sentinels have users of their own: \
                     ?sentinel_user=USER&sentinel_password=PASSWORD",
                    error.message()
                );
                Error::new(ErrorKind::Denied, message).caused_by(error)
            }
            _ => error,
        })?;
        let (name, port) = answer.ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                format!(
                    "the sentinel {host} knows no service named {:?}; see SENTINEL MASTERS",
                    self.service
                ),
            )
        })?;
        let primary = Endpoint::new(Host { name, port }, self.to_primary.clone());
        let mut role = Cmd::new();
        role.arg("ROLE");
        let answer: redis::Value = once(&primary, &role).await?;
        match answer.as_sequence().and_then(|words| words.first()) {
            Some(redis::Value::BulkString(role)) if role == b"master" => Ok(primary),
            _ => Err(Error::new(
                ErrorKind::Unavailable,
                format!("{} is not the primary yet; a fail-over is under way", primary.address()),
            )),
        }
    }
}

/// One question over a connection of its own.
pub(crate) async fn once<T: redis::FromRedisValue>(endpoint: &Endpoint, question: &Cmd) -> Result<T> {
    let config = AsyncConnectionConfig::new();
    let asked = async {
        let wire = Wire::open(endpoint, config, Arc::default(), Arc::default(), SHORT).await?;
        let mut connection = wire.connection();
        question.query_async(&mut connection).await.map_err(of_connect)
    };
    tokio::time::timeout(crate::links::TO_CONNECT / 3, asked).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("{} does not answer", endpoint.address())))
    })
}
