//! `redlock://` URLs: several hosts, and what they have in common.

use tollgate_core::{BoxFuture, Error, Result, parse_duration};
use tollgate_redis::{Initialized, RedlockConfig};

use crate::url::Url;

/// The schemes that name a Redlock.
pub(crate) const SCHEMES: &[&str] = &["redlock", "redlocks"];

/// What a `redlock://` or `redlocks://` URL says: `redlock://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/DB`. A user and
/// password before the first host are for all that have none of their own.
pub(crate) fn config(url: &Url<'_>) -> Result<RedlockConfig> {
    let (scheme, params): (_, &[&str]) = match url.scheme {
        "redlocks" => ("rediss", &["prefix", "max_ttl", "ca", "cert", "key"]),
        _ => ("redis", &["prefix", "max_ttl"]),
    };
    url.check_params(params)?;
    let wrong =
        || Error::invalid("a Redlock URL names its nodes: redlock://HOST:PORT,HOST:PORT,HOST:PORT/DB");
    let rest = url.rest.strip_prefix("//").ok_or_else(wrong)?;
    // A password may have a slash in it only if it is written as %2F.
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    let nodes: Vec<&str> = hosts.split(',').collect();
    let common = nodes[0].rsplit_once('@').map(|(credentials, _)| credentials);
    let mut urls = Vec::new();
    for node in nodes {
        let (credentials, host) = match node.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (common, node),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let credentials = credentials.map(|credentials| format!("{credentials}@")).unwrap_or_default();
        urls.push(format!("{scheme}://{credentials}{host}/{database}"));
    }
    let mut config = RedlockConfig::new(urls);
    config.tls = url.tls_files()?;
    if let Some(prefix) = url.value("prefix")? {
        config.prefix = prefix;
    }
    if let Some(max_ttl) = url.param("max_ttl") {
        config.max_ttl =
            parse_duration(max_ttl).map_err(|wrong| Error::invalid(format!("max_ttl: {wrong}")))?;
    }
    Ok(config)
}

/// Makes voters of the nodes of a `redlock://` URL on their first start, as `tollgate redlock-init` does.
///
/// A new node looks like one that forgot everything, so without this it waits until every lock has ended that it could
/// have known. Say that there were none only if that is so.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// tollgate::redlock_init("redlock://a,b,c").await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Unavailable` if a node cannot be reached, and `Config` if some of the nodes have been used before.
pub fn redlock_init(url: &str) -> BoxFuture<'_, Result<Initialized>> {
    Box::pin(async move { init(url).await.map_err(|error| error.during("initialize")) })
}

async fn init(url: &str) -> Result<Initialized> {
    let url = Url::parse(url)?;
    if !SCHEMES.contains(&url.scheme) {
        return Err(Error::invalid(format!(
            "only the nodes of a redlock:// URL need to be initialised, not those of {}:",
            url.scheme
        )));
    }
    crate::connect::check_runtime(&url)?;
    tollgate_redis::redlock_init(&config(&url)?).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn nodes(url: &str) -> Vec<String> {
        config(&Url::parse(url).unwrap()).unwrap().nodes
    }

    #[test]
    fn every_node_gets_the_database_and_its_own_or_the_common_password() {
        let plain = nodes("redlock://a:1,b:2,c/5");
        assert_eq!(plain, ["redis://a:1/5", "redis://b:2/5", "redis://c/5"]);
        let common = nodes("redlocks://u:p@a,b,v:q@c");
        assert_eq!(common, ["rediss://u:p@a/", "rediss://u:p@b/", "rediss://v:q@c/"]);
    }

    #[test]
    fn parameters_are_read_and_others_refused() {
        let url = Url::parse("redlock://a,b,c?max_ttl=1m&prefix=x:").unwrap();
        let config = config(&url).unwrap();
        assert_eq!((config.prefix.as_str(), config.max_ttl), ("x:", Duration::from_secs(60)));
        for wrong in
            ["redlock:a,b,c", "redlock://a,,c", "redlock://a,b,c?maxttl=1s", "redlock://a,b,c?max_ttl=5"]
        {
            assert!(super::config(&Url::parse(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}
