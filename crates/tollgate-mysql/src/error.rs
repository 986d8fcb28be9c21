//! What the database says when it does not do what it was asked, and what that means for a lock.

use std::time::Duration;

use mysql_async::{DriverError, IoError};
use tollgate_core::{Error, ErrorKind};

use crate::config::MySqlConfig;

/// A statement that failed.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// What the server or the driver said; nothing if nobody said anything.
    source: Option<mysql_async::Error>,
    message: Option<String>,
    /// Whether it was surely not done.
    not_done: bool,
}

/// What is said to a statement that was ended from outside: it may have committed before.
const ENDED: [u16; 7] = [1053, 1152, 1159, 1160, 1161, 1317, 1927];
/// Tables, procedures, columns and sequences that are not there.
const MISSING: [u16; 4] = [1054, 1146, 1305, 4091];
const DENIED: [u16; 7] = [1044, 1045, 1142, 1143, 1227, 1370, 1419];

impl Trouble {
    /// An answer that is an error says that nothing was done. Everything else says nothing.
    pub(crate) fn of(error: mysql_async::Error) -> Self {
        let code = code_of(&error);
        let not_done = code.is_some_and(|code| !ENDED.contains(&code));
        Self { source: Some(error), message: None, not_done }
    }

    /// The same, of something that does nothing by itself.
    pub(crate) fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    pub(crate) fn code(&self) -> Option<u16> {
        code_of(self.source.as_ref()?)
    }

    /// Whether the server answered, so that the connection can be used again.
    pub(crate) fn is_answer(&self) -> bool {
        self.code().is_some_and(|code| !ENDED.contains(&code))
    }

    /// Whether the connection broke, as one does that was closed on the other side.
    pub(crate) fn is_of_connection(&self) -> bool {
        match &self.source {
            Some(mysql_async::Error::Io(_) | mysql_async::Error::Driver(DriverError::ConnectionClosed)) => {
                true
            }
            Some(mysql_async::Error::Server(said)) => ENDED.contains(&said.code) || said.code == 4031,
            _ => false,
        }
    }

    /// Whether it was not done and may well be if it is tried again at once: a deadlock, a statement that has to be prepared
    /// again, or a procedure that is just being replaced.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.code(), Some(1213 | 1615 | 1020 | 1305))
    }

    /// How long to wait before the next try of what is passing: a procedure takes a while to be made.
    pub(crate) fn pause(&self, tries: u32) -> Duration {
        Duration::from_millis(if self.code() == Some(1305) { 50 } else { 5 }) * tries
    }

    /// Whether somebody sits on the row.
    pub(crate) fn is_blocked(&self) -> bool {
        self.code() == Some(1205)
    }

    /// Whether there are no such tables or procedures.
    pub(crate) fn is_missing(&self) -> bool {
        self.code().is_some_and(|code| MISSING.contains(&code))
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| DENIED.contains(&code))
    }

    /// What the caller is told of `what`, which was asked for.
    pub(crate) fn into_error(self, what: &str) -> Error {
        let (kind, message) = match (self.code(), self.not_done) {
            (Some(code), true) => of_code(code, what),
            (None, true) if self.message.is_some() => {
                (ErrorKind::Unavailable, self.message.clone().unwrap_or_default())
            }
            (None, true) => {
                (ErrorKind::Unavailable, format!("the database is unreachable: {what} did not take effect"))
            }
            (_, false) => (
                ErrorKind::Indeterminate,
                self.message.clone().unwrap_or_else(|| {
                    format!(
                        "the connection to the database ended before its answer; {what} may have taken \
                         effect"
                    )
                }),
            ),
        };
        self.into_error_of(kind, message)
    }

    /// The same in other words.
    pub(crate) fn into_error_of(self, kind: ErrorKind, message: impl Into<String>) -> Error {
        let error = Error::new(kind, message);
        match self.source {
            Some(source) => error.caused_by(said(source)),
            None => error,
        }
    }
}

/// What the server or the system said: the driver says it, too, and what it says is caused by it.
fn said(error: mysql_async::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        mysql_async::Error::Server(said) => said.into(),
        mysql_async::Error::Io(IoError::Io(error)) => error.into(),
        mysql_async::Error::Io(IoError::Tls(error)) => error.into(),
        mysql_async::Error::Driver(error) => error.into(),
        other => other.into(),
    }
}

fn code_of(error: &mysql_async::Error) -> Option<u16> {
    match error {
        mysql_async::Error::Server(error) => Some(error.code),
        _ => None,
    }
}

/// No answer came in time.
pub(crate) fn silent(limit: Duration) -> Trouble {
    let message =
        format!("the database did not answer within {limit:.1?}; the request may have been executed");
    Trouble { source: None, message: Some(message), not_done: false }
}

/// The answer is longer than `limit` bytes, and was not read to its end.
pub(crate) fn overlong(limit: usize) -> Trouble {
    let message = format!(
        "the server's answer is larger than {} MiB, longer than any valid answer to this request, and was \
         not read; the request may have been executed. Is the server a MySQL or MariaDB, and does only \
         tollgate write to the lock tables?",
        limit >> 20
    );
    Trouble { source: None, message: Some(message), not_done: false }
}

/// It was answered within a transaction that nobody ends. Its connection must not be used again, which ends that.
pub(crate) fn uncommitted() -> Trouble {
    let message = "the database answered and did not commit; are the lock procedures those that `tollgate \
                   sql-schema URL` prints?";
    Trouble { source: None, message: Some(message.to_owned()), not_done: false }
}

fn of_code(code: u16, what: &str) -> (ErrorKind, String) {
    match code {
        code if MISSING.contains(&code) => (
            ErrorKind::Config,
            "the lock tables are missing or do not match this version; connect again to create them, or \
             run what `tollgate sql-schema URL` prints"
                .to_owned(),
        ),
        code if DENIED.contains(&code) => (
            ErrorKind::Denied,
            format!(
                "this user lacks the right for this ({what}); grant select, insert, update, delete and \
                 execute on the database of the locks"
            ),
        ),
        1205 => (
            ErrorKind::Unavailable,
            format!("another transaction holds the row lock of this lock; {what} did not take effect"),
        ),
        1213 | 1615 | 1020 => (
            ErrorKind::Unavailable,
            format!("conflicts with other transactions outlasted all retries; {what} did not take effect"),
        ),
        1290 | 1792 | 1836 => (
            ErrorKind::Unavailable,
            "this server accepts no writes now: it is a replica, or was made read-only; name the primary"
                .to_owned(),
        ),
        4084 => {
            (ErrorKind::Unexpected, "the sequence has no tokens left; use another ?table_prefix=".to_owned())
        }
        1665 => (
            ErrorKind::Config,
            "this server's binary log is statement-based, which READ COMMITTED does not allow; set \
             binlog_format to MIXED or ROW"
                .to_owned(),
        ),
        1047 => (
            ErrorKind::Unavailable,
            format!("this node has lost its cluster and executes nothing now; {what} did not take effect"),
        ),
        1040 | 1203 | 1226 => (
            ErrorKind::Unavailable,
            format!(
                "the server has no connections left; raise max_connections, or use fewer; {what} did not \
                 take effect"
            ),
        ),
        1021 | 1030 | 1037 | 1038 | 1041 | 1114 | 1026 => (
            ErrorKind::Unavailable,
            format!("the server has exhausted a resource (disk, memory); {what} did not take effect"),
        ),
        _ => (ErrorKind::Unexpected, format!("the database refused {what}")),
    }
}

/// No connection came about.
pub(crate) fn of_connect(error: mysql_async::Error, config: &MySqlConfig) -> Error {
    let address = &config.host;
    let error = match error {
        // What the library of TLS says arrives like this.
        mysql_async::Error::Io(IoError::Io(error))
            if config.tls.is_some() && error.kind() == std::io::ErrorKind::InvalidData =>
        {
            return tollgate_core::tls::insecure(address, "mysql", error);
        }
        error => error,
    };
    let (kind, message) = match &error {
        mysql_async::Error::Server(said) => match said.code {
            1044 => (
                ErrorKind::Denied,
                format!(
                    "this user may not use the database {:?} at {address}; grant rights on it, or correct the URL",
                    config.database
                ),
            ),
            // Who has to come encrypted and does not hears the same as whoever has a wrong password.
            1045 | 1698 => (
                ErrorKind::Denied,
                format!(
                    "the database at {address} refused the user or the password; correct the URL{}",
                    if config.tls.is_none() {
                        ", or add ?ssl-mode=required if the server requires it"
                    } else {
                        ""
                    }
                ),
            ),
            1049 => (
                ErrorKind::Config,
                format!(
                    "there is no database {:?} at {address}; create it, or correct the URL",
                    config.database
                ),
            ),
            3159 => (
                ErrorKind::Denied,
                format!("the database at {address} requires encrypted connections; add ?ssl-mode=required"),
            ),
            1129 | 1130 => (
                ErrorKind::Denied,
                format!("the database at {address} accepts no connections from this host"),
            ),
            1040 | 1203 | 1226 => (
                ErrorKind::Unavailable,
                format!(
                    "the database at {address} has no connections left; raise max_connections, or use fewer"
                ),
            ),
            _ => (ErrorKind::Unavailable, format!("the database at {address} accepts no connections now")),
        },
        mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) => (
            ErrorKind::Config,
            format!("the database at {address} does not speak TLS; enable it there, or leave out ?ssl-mode="),
        ),
        _ => (
            ErrorKind::Unavailable,
            format!("no database answers at {address}; is it running, and is the address right?"),
        ),
    };
    let has_no_room = matches!(code_of(&error), Some(1040 | 1203 | 1226));
    let told = Error::new(kind, message).caused_by(self::said(error));
    if has_no_room { told.of_overload() } else { told }
}

/// No connection came about within `limit`. Servers of this kind speak first, and many others do not.
pub(crate) fn silent_at(config: &MySqlConfig, limit: Duration) -> Error {
    let message = format!(
        "the database at {} did not answer within {limit:?}; is it a MySQL or MariaDB, and is it running?",
        config.host
    );
    Error::new(ErrorKind::Unavailable, message).of_overload()
}
