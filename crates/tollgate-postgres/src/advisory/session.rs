//! One connection that a lock can hang on, driven by whoever uses it.

use std::sync::Arc;

use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::Type;
use tokio_postgres::{Config, NoTls, Row, SimpleQueryMessage, SimpleQueryRow, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_core::{Error, ErrorKind, OwnerId, Result, Token};

use super::socket::{Socket, Stream};
use super::texts::{STEPS, Step, Texts};
use crate::config::PostgresConfig;
use crate::driven::{Driven, Value};
use crate::error::{Trouble, of_connect};

/// The port of a server whose URL names none.
const USUAL_PORT: u16 = 5432;

/// Where a connection ends at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The server's process.
    pub(super) process: i32,
    /// What it is called there. No other one ever is.
    pub(super) label: Arc<str>,
}

/// What came of asking for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    In {
        token: i64,
        waited: bool,
    },
    Busy,
    /// It was another connection's process that was asked: a pooler is in between.
    ByAnother,
}

/// A connection.
pub(super) struct Session {
    connection: Driven,
    stream: Arc<Stream>,
    texts: Arc<Texts>,
    prepared: [Option<Statement>; STEPS],
    place: Place,
}

impl Session {
    /// Connects to the first server of the URL that takes writes.
    pub(super) async fn open(config: &PostgresConfig, texts: &Arc<Texts>) -> Result<Self> {
        let mut last = None;
        let mut ports = config.server.get_ports().iter().copied().cycle();
        for host in config.server.get_hosts() {
            let port = ports.next().unwrap_or(USUAL_PORT);
            match Self::open_to(config, texts, host, port).await {
                Ok(session) => return Ok(session),
                // A wrong password is wrong everywhere.
                Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::invalid("the URL names no server; write postgres://HOST/DATABASE")))
    }

    async fn open_to(config: &PostgresConfig, texts: &Arc<Texts>, host: &Host, port: u16) -> Result<Self> {
        let stream = reach(host, port).await.map_err(|error| {
            let message = format!(
                "no PostgreSQL answers at {}; is it running, and is the address right?",
                config.address()
            );
            Error::new(ErrorKind::Unavailable, message).caused_by(error)
        })?;
        let stream = Arc::new(stream);
        let label = format!("tollgate session {}", &OwnerId::random().to_hex()[..16]);
        let mut server: Config = config.server.clone();
        server.application_name(&label);
        let connection = greet(config, &server, host, Socket::new(stream.clone())).await?;
        let place = Place { process: 0, label: label.into() };
        let prepared = Default::default();
        let mut session = Self { connection, stream, texts: texts.clone(), prepared, place };
        session.introduce().await?;
        Ok(session)
    }

    async fn introduce(&mut self) -> Result<()> {
        let texts = self.texts.clone();
        let failed = |trouble: Trouble| trouble.not_done().into_error("a connection");
        let answer = self.simple(texts.introduce).await.map_err(failed)?;
        let last = answer.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let yes = |row: &SimpleQueryRow, column| Some(row.get(column)? == "t");
        let said = last.and_then(|row| Some((row.get(0)?.parse().ok()?, yes(row, 1)?, yes(row, 2)?)));
        let (process, in_recovery, is_lent) =
            said.ok_or_else(|| Error::new(ErrorKind::Unexpected, "PostgreSQL did not say who it is"))?;
        if in_recovery {
            let message = "this PostgreSQL takes no writes: it is a replica; name the primary";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        if is_lent {
            return Err(pooler());
        }
        let name = format!("select set_config('tollgate_session.label', '{}', false)", self.place.label);
        self.simple(&name).await.map_err(failed)?;
        self.place.process = process;
        Ok(())
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// What the system knows of it, for those who watch.
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether it is still there, as far as can be told without asking. Reads what came unasked.
    pub(super) fn is_usable(&mut self) -> bool {
        if self.stream.stirs() { self.connection.is_usable() } else { !self.connection.has_ended() }
    }

    /// Takes a lock, at once or in its turn.
    pub(super) async fn take(&mut self, step: Step, name: &str) -> Result<Taken, Trouble> {
        let label = self.place.label.clone();
        let rows = self.run(step, &[&name, &&*label]).await?;
        Ok(match rows.first().and_then(|row| row.get::<_, Option<i64>>(0)) {
            None => Taken::Busy,
            Some(0) => Taken::ByAnother,
            Some(number) => Taken::In { token: number.abs(), waited: number < 0 },
        })
    }

    /// Gives back whatever was taken. Answers whether that was its own to give.
    pub(super) async fn give_back(&mut self) -> Result<bool, Trouble> {
        let label = self.place.label.clone();
        Ok(!self.run(Step::Release, &[&&*label]).await?.is_empty())
    }

    /// Asks for nothing.
    pub(super) async fn ping(&mut self) -> Result<(), Trouble> {
        self.simple("").await.map(drop)
    }

    /// Runs statements without values.
    pub(super) async fn simple(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Trouble> {
        self.connection.simple(sql).await
    }

    /// Runs one statement that is not prepared.
    pub(super) async fn ask(&mut self, sql: &str, values: &[(Value<'_>, Type)]) -> Result<Vec<Row>, Trouble> {
        self.connection.unnamed(sql, values).await
    }

    async fn run(&mut self, step: Step, values: &[Value<'_>]) -> Result<Vec<Row>, Trouble> {
        let Self { connection, texts, prepared, .. } = self;
        let types: &[Type] = if step == Step::Release { &[Type::TEXT] } else { &[Type::TEXT, Type::TEXT] };
        connection.prepared(&mut prepared[step as usize], texts.of(step), types, values).await
    }
}

/// Opens a socket.
async fn reach(host: &Host, port: u16) -> std::io::Result<Stream> {
    match host {
        Host::Unix(folder) => {
            let socket = tokio::net::UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?;
            Ok(Stream::Unix(socket.into_std()?))
        }
        Host::Tcp(name) => {
            let socket = tokio::net::TcpStream::connect((name.as_str(), port)).await?;
            socket.set_nodelay(true)?;
            Ok(Stream::Tcp(socket.into_std()?))
        }
    }
}

/// Logs in over a socket.
async fn greet(config: &PostgresConfig, server: &Config, host: &Host, socket: Socket) -> Result<Driven> {
    let failed = |error| of_connect(error, config);
    let Some(files) = &config.tls else {
        let (client, connection) = server.connect_raw(socket, NoTls).await.map_err(failed)?;
        return Ok(Driven::new(client, connection));
    };
    let name = match host {
        Host::Tcp(name) => name.as_str(),
        Host::Unix(_) => "",
    };
    let mut tls = MakeRustlsConnect::new((*tollgate_core::tls::client(files, &[])?).clone());
    let tls = MakeTlsConnect::<Socket>::make_tls_connect(&mut tls, name).map_err(|error| {
        Error::invalid(format!("{name:?} cannot be the name of a server with a certificate: {error}"))
    })?;
    let (client, connection) = server.connect_raw(socket, tls).await.map_err(failed)?;
    Ok(Driven::new(client, connection))
}

/// What whoever comes through a pooler is told.
pub(super) fn pooler() -> Error {
    Error::new(
        ErrorKind::Config,
        "a pooler in between, like PgBouncer, lends server processes from one connection to the next, and advisory locks with \
         them: they would be somebody else's in the next moment. Connect past it, have it pool sessions, or leave out \
         ?style=advisory: leases work through it",
    )
}

/// The token that the sequence gave.
pub(super) fn token(number: i64) -> Result<Token> {
    Ok(Token::new(number.unsigned_abs())?)
}
