//! The header that carries a token: `Fencing-Token: 42`, or `Fencing-Token: 42;shared`.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Fence, Token};

use crate::problem::Problem;

/// The header that a holder shows its token in.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// What a holder writes into [`FENCING_TOKEN`]: `42`, or `42;shared` for the token of a shared lock.
///
/// ```
/// use tollgate::{Fence, Token};
///
/// let fence = Fence::shown(Token::new(42)?, false);
/// assert_eq!(tollgate_fence::header_value(fence), "42;shared");
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn header_value(fence: Fence) -> HeaderValue {
    let number = fence.token().get();
    match fence.is_exclusive() {
        true => HeaderValue::from(number),
        false => HeaderValue::try_from(format!("{number};shared")).expect("digits and letters"),
    }
}

/// What a request shows; nothing if it shows nothing.
pub(crate) fn shown(headers: &HeaderMap) -> Result<Option<Fence>, Problem> {
    let mut values = headers.get_all(FENCING_TOKEN).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::malformed("the request has several Fencing-Token headers; send one"));
    }
    value.to_str().ok().and_then(parse).map(Some).ok_or_else(|| {
        Problem::malformed(
            "Fencing-Token must be a number from 1 to 2^53 - 1, followed by ;shared for a shared lock",
        )
    })
}

/// Headers in which frameworks look for a method that counts more than the request's own.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// Whether a request asks for another method than its own.
pub(crate) fn overrides_method(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| OVERRIDES.contains(&&*as_services_read(name)))
}

/// A header's name as a service may read it that tells `-` and `_` not apart, as those behind CGI and its kin do.
pub(crate) fn as_services_read(name: &HeaderName) -> Cow<'_, str> {
    let name = name.as_str();
    if name.contains('_') { name.replace('_', "-").into() } else { name.into() }
}

fn parse(text: &str) -> Option<Fence> {
    let (number, exclusive) = match text.split_once(';') {
        None => (text, true),
        Some((number, kind)) if kind.trim() == "shared" => (number.trim_end(), false),
        Some(_) => return None,
    };
    // Nothing but digits, and no zero before them: one token is written in one way.
    if number.starts_with('0') || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Fence::shown(Token::new(number.parse().ok()?).ok()?, exclusive))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (FENCING_TOKEN, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_token_is_read_as_it_is_written() {
        for (text, token, exclusive) in [
            ("42", 42, true),
            ("42;shared", 42, false),
            ("42 ; shared", 42, false),
            ("9007199254740991", (1 << 53) - 1, true),
        ] {
            let fence = shown(&headers(&[text])).ok().flatten().unwrap();
            assert_eq!((fence.token().get(), fence.is_exclusive()), (token, exclusive), "{text}");
            assert_eq!(parse(header_value(fence).to_str().unwrap()), Some(fence));
        }
        assert!(shown(&HeaderMap::new()).is_ok_and(|none| none.is_none()));
    }

    #[test]
    fn what_is_no_token_is_malformed() {
        for wrong in [
            "",
            " ",
            "x",
            "-1",
            "+1",
            "0",
            "042",
            "1.0",
            "1e3",
            "0x1",
            "1 2",
            "1,2",
            "1, 2",
            "1;",
            "1;exclusive",
            "1;shared;shared",
            ";shared",
            "9007199254740992",
            "18446744073709551616",
            "99999999999999999999999",
            "１",
        ] {
            let Ok(value) = HeaderValue::from_bytes(wrong.as_bytes()) else { panic!("{wrong}") };
            let headers: HeaderMap = [(FENCING_TOKEN, value)].into_iter().collect();
            assert_eq!(shown(&headers).unwrap_err().status(), http::StatusCode::BAD_REQUEST, "{wrong:?}");
        }
        assert!(shown(&headers(&["1", "1"])).is_err(), "two headers");
    }
}
