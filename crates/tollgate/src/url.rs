//! URLs: which engine, where, and how.

use tollgate_core::{Error, Result};

/// The parameters that every URL takes.
const EVERYWHERE: &[&str] = &["namespace", "timeout"];

/// Parts of the names of settings whose values are secret.
const SECRETS: &[&str] = &["pass", "pwd", "token", "secret"];

/// A URL taken apart: `scheme:rest?key=value&…`.
///
/// A parser of our own, because a URL here may name several hosts, and a folder is taken as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) rest: &'a str,
    pub(crate) params: Vec<(&'a str, &'a str)>,
}

impl<'a> Url<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self> {
        if is_settings(url) {
            return Err(Error::invalid(
                "this is not an engine URL but a list of settings; write a DSN of PostgreSQL as \
                 postgres://USER:PASSWORD@HOST:PORT/DATABASE, and a folder as file:FOLDER",
            ));
        }
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::invalid(match url.contains('@') {
                // It may be a password.
                true => {
                    "this is not an engine URL: it has no scheme; write for example redis://HOST".to_owned()
                }
                false => {
                    format!("{url:?} is not an engine URL: it has no scheme; for a folder write file:{url}")
                }
            }));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut params = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let param = pair.split_once('=').ok_or_else(|| {
                // It may be a part of a password that has a question mark.
                let pair = if url.contains('@') || url.contains("password") { "NAME" } else { pair };
                Error::invalid(format!(
                    "a parameter has no value; write {pair}=VALUE, and ? & in a password as %3F %26"
                ))
            })?;
            params.push(param);
        }
        Ok(Self { scheme, rest, params })
    }

    /// The value of a parameter, which is there once.
    pub(crate) fn param(&self, key: &str) -> Option<&'a str> {
        self.params.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// The value of a parameter, without its percent-encoding.
    #[cfg(any(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(crate) fn value(&self, key: &str) -> Result<Option<String>> {
        self.param(key).map(tollgate_core::url::decoded).transpose()
    }

    /// The files that an encrypted connection is to be made with.
    #[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
    pub(crate) fn tls_files(&self) -> Result<tollgate_core::tls::TlsFiles> {
        let file = |key| Ok::<_, Error>(self.value(key)?.map(std::path::PathBuf::from));
        Ok(tollgate_core::tls::TlsFiles { ca: file("ca")?, cert: file("cert")?, key: file("key")? })
    }

    /// Refuses parameters that nobody read, or that are there twice: a typing error must not change what a lock means.
    #[cfg_attr(
        not(any(
            feature = "etcd",
            feature = "file",
            feature = "memory",
            feature = "redis",
            feature = "server",
            feature = "zookeeper"
        )),
        allow(dead_code)
    )]
    pub(crate) fn check_params(&self, known: &[&str]) -> Result<()> {
        self.check_params_beside(known, &[])
    }

    /// The same where there are others, too many to be listed, that the backend reads.
    pub(crate) fn check_params_beside(&self, known: &[&str], others: &[&str]) -> Result<()> {
        for (key, _) in &self.params {
            if !known.contains(key) && !EVERYWHERE.contains(key) && !others.contains(key) {
                let known = [known, EVERYWHERE].concat().join(", ");
                // It may be a part of a password that has a question mark.
                let may_be_secret = !key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
                    || self.params.iter().any(|(key, value)| key.contains('@') || value.contains('@'));
                let which =
                    if may_be_secret { "such parameter".to_owned() } else { format!("parameter {key:?}") };
                return Err(Error::invalid(format!(
                    "{}: URLs have no {which} (known: {known}); write ? & in a password as %3F %26",
                    self.scheme
                )));
            }
        }
        for (place, (key, _)) in self.params.iter().enumerate() {
            if self.params[..place].iter().any(|(before, _)| before == key) {
                return Err(Error::invalid(format!("the parameter {key:?} appears twice; give it once")));
            }
        }
        Ok(())
    }
}

/// Whether a text is a list of settings, as libpq and other drivers take it: `host=db password=secret`. It is not
/// repeated in messages, because it may contain a password. No URL scheme contains an equals sign.
fn is_settings(text: &str) -> bool {
    let before_colon = text.split(':').next().unwrap_or(text);
    let Some((first, _)) = before_colon.split_once('=') else { return false };
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_- ".contains(c));
    let lower = before_colon.to_ascii_lowercase();
    is_name(first) || SECRETS.iter().any(|secret| lower.contains(secret))
}

/// Says each of these once in the life of a program, however often it connects.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn warn_once(notes: &[String]) {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    for note in notes {
        if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(note.clone()) {
            tracing::warn!(target: "tollgate", "{note}");
        }
    }
}

/// Whether a password may go over a connection that is not encrypted.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn plain_password(url: &Url<'_>) -> Result<bool> {
    match url.param("plain_password") {
        None | Some("refuse") => Ok(false),
        Some("allow") => Ok(true),
        Some(other) => Err(Error::invalid(format!(
            "?plain_password={other} is unknown; write refuse (the default) or allow"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_without_changing_it() {
        let url = Url::parse("file:/var/lib/my locks/50%?a=b&c=d=e").unwrap();
        assert_eq!((url.scheme, url.rest), ("file", "/var/lib/my locks/50%"));
        assert_eq!(url.params, [("a", "b"), ("c", "d=e")]);
        assert!(url.check_params(&["a", "c"]).is_ok());
        assert!(url.check_params(&["a"]).is_err());
    }

    #[test]
    fn a_parameter_that_is_there_twice_is_named_and_its_value_is_not() {
        let twice = Url::parse("redis://h/?prefix=a:&namespace=n&prefix=b:").unwrap();
        let message = twice.check_params(&["prefix"]).unwrap_err().to_string();
        assert!(message.contains("\"prefix\" appears twice") && !message.contains("b:"), "{message}");
    }

    #[test]
    fn what_is_not_a_url_says_what_to_write() {
        let message = Url::parse("/tmp/locks").unwrap_err().to_string();
        assert!(message.contains("file:/tmp/locks"), "{message}");
        assert!(Url::parse("file:x?a").unwrap_err().to_string().contains("a=VALUE"));
    }

    #[test]
    fn a_list_of_settings_is_not_repeated_because_it_may_contain_a_password() {
        for settings in [
            "host=127.0.0.1 port=1 user=u password=geheim",
            "host=127.0.0.1 PassWord = 'geheim' user=u",
            "host=db password=geheim:rest",
            "password=geheim",
            "Server=db;Uid=u;Pwd=geheim;",
            "sslpassword=geheim host=::1",
            "/tmp/locks?token=geheim&namespace=a",
            "//db/shop?passwd=geheim",
            "db/shop?Secret=geheim",
        ] {
            let message = Url::parse(settings).unwrap_err().to_string();
            assert!(!message.contains("geheim") && message.contains("postgres://"), "{settings}: {message}");
        }
        assert!(Url::parse("/tmp/a=b").unwrap_err().to_string().contains("file:/tmp/a=b"));
        Url::parse("postgres://db/shop?password=secret").unwrap();
    }
}
