//! Reads the parameters of a URL's query, with the same strictness and the same answers as a body.

use serde_json::{Map, Value};

use super::{Reader, Request, read, reader};
use crate::problem::Problem;
use crate::problem_kind::ProblemKind;

/// Reads the part of a URL behind the question mark; nothing is the same as an empty one.
///
/// A `%` that is not followed by two hexadecimal digits, or bytes that are not UTF-8, are a problem
/// of the kind `malformed` (400); an unknown or repeated parameter is one of the kind `invalid`
/// (422).
///
/// ```
/// use tollgate_proto::{LocksQuery, parse_query};
///
/// let query: LocksQuery = parse_query("prefix=orders%2F&limit=10")?;
/// assert_eq!((query.prefix.as_str(), query.limit), ("orders/", 10));
/// # Ok::<(), tollgate_proto::Problem>(())
/// ```
pub fn parse_query<T: Request>(query: &str) -> Result<T, Problem> {
    let mut parameters = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if parameters.contains_key(&name) {
            return Err(Problem::new(
                ProblemKind::Invalid,
                format!("the parameter {} is there twice; say it once", reader::echo(&name)),
            ));
        }
        parameters.insert(name, Value::String(value));
    }
    read(Reader::of_query(parameters))
}

fn decoded(text: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = digit().zip(digit()).ok_or_else(malformed)?;
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

fn malformed() -> Problem {
    let detail = "the query cannot be read; write UTF-8 with %XX for what is not a letter or a digit";
    Problem::new(ProblemKind::Malformed, detail)
}
