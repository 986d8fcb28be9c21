//! What of a message is for the next one only, and what the service is told of who asked.

use std::net::IpAddr;

use http::header::{
    CONNECTION, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Body;

use crate::token_header::as_services_read;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What the two sides are to change to, if the client asks for it. To another HTTP nobody changes: requests within it would
/// not be seen here.
pub(super) fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol =
        headers.get(UPGRADE).filter(|_| named_by_connection(headers).any(|name| name == UPGRADE))?;
    let text = protocol.to_str().ok()?.to_ascii_lowercase();
    let carries_requests =
        |name: &str| ["h2", "http", "tls"].iter().any(|kind| name.trim().starts_with(kind));
    (!text.split(',').any(carries_requests)).then(|| protocol.clone())
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok())
}

/// Takes away what is between two neighbours alone. Lengths and chunks are made anew.
pub(super) fn strip(headers: &mut HeaderMap, keep: Option<HeaderValue>) {
    for name in named_by_connection(headers).collect::<Vec<_>>() {
        headers.remove(name);
    }
    let accepts_trailers = headers.get(TE).is_some_and(|value| value == "trailers");
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if accepts_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = keep {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// Says that a body of unknown length comes in chunks. Who sends it on would take a GET for one without a body otherwise.
pub(super) fn measure(headers: &mut HeaderMap, body: &impl Body) {
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Takes away what the client says of where the request came from: it may say anything.
pub(super) fn disbelieve(headers: &mut HeaderMap) {
    let claims = |name: &HeaderName| {
        let name = as_services_read(name);
        matches!(&*name, "forwarded" | "x-real-ip") || name.starts_with("x-forwarded-")
    };
    for name in headers.keys().filter(|name| claims(name)).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Tells the service who asked, and for which host.
pub(super) fn introduce(headers: &mut HeaderMap, client: IpAddr, authority: &HeaderValue) {
    // A proxy between this one and the client, if it is trusted, has said who the client is.
    let before = headers.get_all(FORWARDED_FOR).into_iter().filter_map(|value| value.to_str().ok());
    let all: Vec<String> = before.map(str::to_owned).chain([client.to_string()]).collect();
    if let Ok(all) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, all);
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    if let Some(host) = headers.insert(HOST, authority.clone()) {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    // The proxy itself says that it goes on.
    headers.remove(EXPECT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_neighbours_is_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "1"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-yours", "2"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(wanted_upgrade(&headers), None, "connection does not name it");
        strip(&mut headers, None);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-yours"]);
    }

    #[test]
    fn nobody_changes_to_another_http() {
        for (protocol, passes) in [
            ("websocket", true),
            ("h2c", false),
            ("H2C", false),
            ("HTTP/2.0", false),
            ("TLS/1.2, x", false),
            ("x, h2c", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade, HTTP2-Settings"));
            headers.insert(UPGRADE, HeaderValue::from_static(protocol));
            assert_eq!(wanted_upgrade(&headers).is_some(), passes, "{protocol}");
        }
    }

    #[test]
    fn the_service_hears_who_asked() {
        let (client, inner) = (IpAddr::from([127, 0, 0, 1]), HeaderValue::from_static("inner:80"));
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("shop.example"));
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("10.0.0.1"));
        let mut disbelieved = headers.clone();
        disbelieve(&mut disbelieved);
        introduce(&mut disbelieved, client, &inner);
        assert_eq!(disbelieved[FORWARDED_FOR], "127.0.0.1");
        introduce(&mut headers, client, &inner);
        assert_eq!(headers[FORWARDED_FOR], "10.0.0.1, 127.0.0.1");
        assert_eq!(
            (&headers[HOST], &headers[FORWARDED_HOST]),
            (&"inner:80".parse().unwrap(), &"shop.example".parse().unwrap())
        );
    }
}
