//! Decodes the rows that statements and procedures answer.

use std::time::Duration;

use mysql_async::Row;
use tollgate_core::queued::{Acquired, Wait};
use tollgate_core::{Age, Contention, Error, ErrorKind, Moment, Result, Token};
use tollgate_sql::{Seen, Ticket};

/// The queue position of a waiter whose look found nothing to do; `None` if it has to ask.
pub(crate) fn nothing_to_do(row: &Row) -> Option<Wait> {
    let has_to_ask: Option<i64> = row.get::<Option<i64>, _>(0).flatten();
    let (ahead, free_in) = (number(row, 1)?, number(row, 2));
    let free_in = free_in.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
    (has_to_ask == Some(0)).then(|| Wait {
        ahead: u32::try_from(ahead).unwrap_or(0),
        free_in,
        foreign: false,
        told: false,
    })
}

/// The answer of the procedure `acquire`.
pub(crate) fn acquired(rows: &[Row]) -> Result<Acquired<Ticket>> {
    let row = rows.first().ok_or_else(|| unexpected("an acquire was answered with no row"))?;
    let outcome = text(row, 0);
    let age = number(row, 6).map(|age| Age(age.unsigned_abs()));
    let ahead = number(row, 4);
    let free_in = number(row, 5).map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
    let wanted = |at| number(row, at).ok_or_else(|| unexpected("an acquire was answered without a number"));
    match outcome.as_str() {
        "g" => {
            let token = Token::new(wanted(1)?.unsigned_abs())?;
            Ok(Acquired::Granted { token, sent: Moment::from_nanos(wanted(2)?.unsigned_abs()), age })
        }
        "q" => {
            let ahead = u32::try_from(ahead.unwrap_or(0)).unwrap_or(0);
            Ok(Acquired::Queued {
                place: Ticket(wanted(3)?),
                wait: Wait { ahead, free_in, foreign: false, told: false },
                age,
            })
        }
        "b" => {
            let ahead = ahead.and_then(|ahead| usize::try_from(ahead).ok());
            Ok(Acquired::Busy { contention: Contention { ahead, retry_after: free_in }, age })
        }
        other => Err(unexpected(&format!("an acquire was answered with {other:?}"))),
    }
}

/// A row of `inspect` or `page`. A name that is not UTF-8 is not a Tollgate lock.
pub(crate) fn seen(row: &Row) -> Option<Seen> {
    let name: Vec<u8> = row.get::<Option<Vec<u8>>, _>(0).flatten()?;
    Some(Seen {
        name: String::from_utf8(name).ok()?,
        mode: text(row, 1).chars().next()?,
        places: number(row, 2).unwrap_or(0),
        token: number(row, 3),
        left_ms: number(row, 5).unwrap_or(0),
        details: text(row, 6),
    })
}

pub(crate) fn number(row: &Row, at: usize) -> Option<i64> {
    row.get::<Option<i64>, _>(at).flatten()
}

fn text(row: &Row, at: usize) -> String {
    let bytes = row.get::<Option<Vec<u8>>, _>(at).flatten().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, what)
}
