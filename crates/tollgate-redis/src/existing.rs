//! The URL of a Redis that a program already has a client for.

use redis::{Client, ConnectionAddr};
use tollgate_core::url::encoded;
use tollgate_core::{Error, Result};

/// The URL that reaches what `client` reaches, for [`tollgate::connect`]: it contains the password.
///
/// An open connection cannot be shared. Renewals need connections that the keeper's thread drives, so that a blocked
/// executor of the program loses no lock.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://:s3cret@127.0.0.1:6380/2")?;
/// assert_eq!(tollgate_redis::url_of(&client)?, "redis://:s3cret@127.0.0.1:6380/2");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Unsupported` for a Unix socket, for certificates that only the client has (write the URL with `?ca=FILE`), and for a client
/// that does not verify its server.
///
/// [`tollgate::connect`]: https://docs.rs/tollgate/latest/tollgate/fn.connect.html
pub fn url_of(client: &Client) -> Result<String> {
    let info = client.get_connection_info();
    let (scheme, host, port) = match info.addr() {
        ConnectionAddr::Tcp(host, port) => ("redis", host, port),
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None } => ("rediss", host, port),
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            return Err(Error::unsupported(
                "this client does not verify the server's certificate; write the URL, rediss://HOST",
            ));
        }
        ConnectionAddr::TcpTls { .. } => {
            return Err(Error::unsupported(
                "the certificates of this client cannot be read from it; write the URL, \
                 rediss://HOST?ca=FILE",
            ));
        }
        _ => {
            return Err(Error::unsupported(
                "locks connect to a Redis by host and port; write the URL, redis://HOST:PORT",
            ));
        }
    };
    let settings = info.redis_settings();
    let user = settings.username().map(encoded).unwrap_or_default();
    let login =
        settings.password().map(|password| format!("{user}:{}@", encoded(password))).unwrap_or_default();
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    Ok(format!("{scheme}://{login}{host}:{port}/{}", settings.db()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisConfig;

    #[test]
    fn the_url_says_what_the_client_was_opened_with() {
        for url in
            ["redis://h:6379/0", "redis://u:p%40ss%2F%3A@h:1/3", "rediss://:x@h:2/0", "redis://[::1]:6379/0"]
        {
            assert_eq!(url_of(&Client::open(url).unwrap()).unwrap(), url);
            RedisConfig::from_url(url).unwrap();
        }
    }

    #[test]
    fn what_a_url_cannot_say_is_refused() {
        for url in ["unix:///run/redis.sock", "rediss://h/#insecure"] {
            let error = url_of(&Client::open(url).unwrap()).unwrap_err();
            assert_eq!(error.kind(), tollgate_core::ErrorKind::Unsupported, "{url}");
        }
    }
}
