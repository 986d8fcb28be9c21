//! Where a server is, and how it is spoken to.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisConnectionInfo, RedisError};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Result};

use crate::error::{is_of_login, of_connect, too_old};
use crate::sentinel::Sentinel;
use crate::stream::Carrier;

/// How long a server may take to answer a TLS greeting: less than to connect.
const TO_SECURE: Duration = Duration::from_secs(3);

/// What to do about a server that is not encrypted.
pub(crate) const NOT_ENCRYPTED: &str =
    "if it does not speak TLS, write redis:// instead of rediss://, or redlock:// instead of redlocks://";

/// One server, as it is reached.
#[derive(Clone)]
pub(crate) struct Endpoint {
    host: Host,
    speech: Speech,
}

/// How servers are spoken to: who we are, and whether it is encrypted.
#[derive(Clone)]
pub(crate) struct Speech {
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

/// Which server it is at the moment.
pub(crate) enum Target {
    /// Always the same.
    Fixed(Endpoint),
    /// Always the same, but others of its cluster may take over what it has.
    Member(Endpoint),
    /// Whichever is the primary now.
    Primary(Sentinel),
}

impl Target {
    pub(crate) async fn endpoint(&self) -> Result<Endpoint> {
        match self {
            Self::Fixed(endpoint) | Self::Member(endpoint) => Ok(endpoint.clone()),
            Self::Primary(sentinel) => sentinel.primary().await,
        }
    }
}

impl Endpoint {
    pub(crate) fn new(host: Host, speech: Speech) -> Self {
        Self { host, speech }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn address(&self) -> String {
        self.host.to_string()
    }

    pub(crate) fn login(&self) -> &RedisConnectionInfo {
        &self.speech.login
    }

    pub(crate) async fn connect(&self) -> Result<Carrier> {
        let stream = TcpStream::connect((self.host.name.as_str(), self.host.port))
            .await
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| self.unreachable(error))?;
        let Some(tls) = &self.speech.tls else { return Ok(Carrier::Plain(stream)) };
        let name = ServerName::try_from(self.host.name.clone()).map_err(|error| {
            Error::invalid(format!("{} is not a name that a certificate can have", self.host.name))
                .caused_by(error)
        })?;
        let securing = TlsConnector::from(tls.clone()).connect(name, stream);
        // A Redis that does not speak TLS waits for the end of what it takes for a command.
        let secured = tokio::time::timeout(TO_SECURE, securing).await.map_err(|_| {
            let message =
                format!("{} did not answer a TLS greeting within {TO_SECURE:?}; {NOT_ENCRYPTED}", self.host);
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let secured = secured.map_err(|error| self.insecure(error))?;
        Ok(Carrier::Encrypted(Box::new(secured)))
    }

    fn unreachable(&self, error: std::io::Error) -> Error {
        let message =
            format!("Redis at {} cannot be reached; is it running, and is the address right?", self.host);
        Error::new(ErrorKind::Unavailable, message).caused_by(error)
    }

    fn insecure(&self, error: std::io::Error) -> Error {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (kind, message) = match tls {
            Some(rustls::Error::InvalidMessage(_)) => {
                (ErrorKind::Config, format!("{} does not speak TLS on this port; {NOT_ENCRYPTED}", self.host))
            }
            Some(rustls::Error::InvalidCertificate(_)) => (
                ErrorKind::Config,
                format!(
                    "the certificate of {} is not trusted; name the authority that signed it with ?ca=FILE",
                    self.host
                ),
            ),
            Some(rustls::Error::AlertReceived(_)) => (
                ErrorKind::Denied,
                format!(
                    "{} rejected the client certificate; give one that it trusts with ?cert=FILE&key=FILE",
                    self.host
                ),
            ),
            _ => (
                ErrorKind::Unavailable,
                format!("the TLS handshake with {} failed; does it speak TLS on this port?", self.host),
            ),
        };
        Error::new(kind, message).caused_by(error)
    }

    /// How URLs of such a server begin.
    fn scheme(&self) -> &'static str {
        if self.is_encrypted() { "rediss" } else { "redis" }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.speech.tls.is_some()
    }

    /// It only knows where others are.
    pub(crate) fn of_sentinel(&self) -> Error {
        let message = format!(
            "{0} is a sentinel and has no locks; write {1}-sentinel://{0}/SERVICE",
            self.host,
            self.scheme()
        );
        Error::new(ErrorKind::Config, message)
    }

    /// What answers speaks something else.
    pub(crate) fn is_no_redis(&self, error: RedisError) -> Error {
        let message = format!("the server at {} is not a Redis; is the port right?", self.host);
        Error::new(ErrorKind::Config, message).caused_by(error)
    }

    /// What went wrong before the first request.
    pub(crate) fn of_greeting(&self, error: RedisError) -> Error {
        if self.speech.tls.is_none() && error.is_connection_dropped() {
            let message = format!(
                "{} closed the connection at the first request; if it requires TLS, write rediss:// \
                 instead of redis://; if it has reached its limit of clients, close some, or raise its \
                 maxclients",
                self.host
            );
            return Error::new(ErrorKind::Unavailable, message).caused_by(error);
        }
        if self.speech.tls.is_some() && error.is_io_error() {
            let message = format!(
                "{} closed the connection; if it requires a client certificate, give one with \
                 ?cert=FILE&key=FILE",
                self.host
            );
            return Error::new(ErrorKind::Denied, message).caused_by(error);
        }
        match error.kind() {
            redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => self.is_no_redis(error),
            redis::ErrorKind::RESP3NotSupported => too_old("before 6"),
            _ if is_of_login(&error) => {
                let message = format!(
                    "{} does not accept the user or password; put them into the URL: {}://USER:PASSWORD@HOST",
                    self.host,
                    self.scheme()
                );
                Error::new(ErrorKind::Denied, message).caused_by(error)
            }
            _ => of_connect(error),
        }
    }
}
