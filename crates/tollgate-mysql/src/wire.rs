//! How a connection begins, how much is read over it, and how it ends.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll, Waker};

use mysql_async::prelude::{FromRow, Protocol, Queryable};
use mysql_async::{Conn, DriverError, OptsBuilder, QueryResult, Row, Value};
use tollgate_core::{Error, ErrorKind, Result};

use crate::config::MySqlConfig;
use crate::error::{Trouble, of_connect, overlong};

/// How much is read of what one statement is answered with.
const LONGEST_ANSWER: usize = 64 << 20;
/// What a row and each of its values cost in memory beside the values' bytes: many small ones are no less than a large one.
const OVERHEAD: usize = 64;

/// A connection that is hung up when this is dropped.
///
/// The driver's own goes on reading in the background then, for as long as an unwanted answer comes.
#[derive(Debug)]
pub(crate) struct Wire(Option<Conn>);

impl Wire {
    /// Connects as `options` say, unless that would show the password to others.
    ///
    /// A server may ask for the password itself, encrypted with a key that the server sends, too, and that the driver believes.
    /// So any server that answers at that address could have it.
    pub(crate) async fn open(config: &MySqlConfig, options: OptsBuilder) -> Result<Self> {
        let addresses = resolved(config).await?;
        let is_private = addresses.iter().all(|address| address.to_canonical().is_loopback());
        let has_password = config.login.password.as_ref().is_some_and(|password| !password.is_empty());
        if has_password && config.tls.is_none() && !is_private && !config.plain_password {
            let message = format!(
                "the password would go to {} over an unencrypted connection, and an impostor server could \
                 ask for it: it is not sent. Encrypt with ?ssl-mode=required, or add \
                 ?plain_password=allow to the URL if this network is private",
                config.host
            );
            return Err(Error::new(ErrorKind::Denied, message));
        }
        // Those that were judged, and no others that the name may have in the next moment.
        let opened = Conn::new(options.resolved_ips(Some(addresses))).await;
        Ok(Self(Some(opened.map_err(|error| of_connect(error, config))?)))
    }
}

/// The addresses of the server.
async fn resolved(config: &MySqlConfig) -> Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((config.host.name.as_str(), config.host.port)).await;
    found.map(|addresses| addresses.map(|address| address.ip()).collect()).map_err(|error| {
        let message = format!("the name {:?} has no address; correct the URL", config.host.name);
        Error::new(ErrorKind::Unavailable, message).caused_by(error)
    })
}

impl Deref for Wire {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Wire {
    fn deref_mut(&mut self) -> &mut Conn {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(connection) = self.0.take() else { return };
        // Says goodbye if nothing is on its way, which takes one turn. What takes longer is left: the socket is closed.
        let leaving = std::pin::pin!(connection.disconnect());
        let (Poll::Ready(_) | Poll::Pending) = leaving.poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// All rows that `sql` is answered with.
pub(crate) async fn queried<R: FromRow>(
    connection: &mut Conn,
    sql: &str,
) -> std::result::Result<Vec<R>, Trouble> {
    let mut result = connection.query_iter(sql).await.map_err(Trouble::of)?;
    let rows = collected(&mut result).await?;
    result.drop_result().await.map_err(Trouble::of)?;
    Ok(rows)
}

/// The first row that `sql` is answered with.
pub(crate) async fn first<R: FromRow>(
    connection: &mut Conn,
    sql: &str,
) -> std::result::Result<Option<R>, Trouble> {
    Ok(queried(connection, sql).await?.into_iter().next())
}

/// All rows of an answer, if they are not too many. If they are, the connection cannot be used any more.
pub(crate) async fn collected<R: FromRow, P: Protocol>(
    result: &mut QueryResult<'_, '_, P>,
) -> std::result::Result<Vec<R>, Trouble> {
    let (mut rows, mut read) = (Vec::new(), 0);
    if result.is_empty() {
        return Ok(rows);
    }
    while let Some(row) = result.next().await.map_err(Trouble::of)? {
        read += size(&row);
        if read > LONGEST_ANSWER {
            return Err(overlong(LONGEST_ANSWER));
        }
        let converted = R::from_row_opt(row).map_err(|error| DriverError::FromRow { row: error.0 });
        rows.push(converted.map_err(|error| Trouble::of(error.into()))?);
    }
    Ok(rows)
}

fn size(row: &Row) -> usize {
    let values = (0..row.len()).map(|at| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => bytes.len() + OVERHEAD,
        _ => OVERHEAD,
    });
    values.sum::<usize>() + OVERHEAD
}
