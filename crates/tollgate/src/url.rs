//! URLs: which engine, where, and how.

use tollgate_core::{Error, Result};

/// The parameters that every URL takes.
const EVERYWHERE: &[&str] = &["namespace", "timeout"];

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
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::invalid(format!(
                "{url:?} is not a URL of an engine: it has no scheme; for a folder write file:{url}"
            )));
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
    #[cfg(any(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    ))]
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
            feature = "mysql",
            feature = "postgres",
            feature = "redis",
            feature = "zookeeper"
        )),
        allow(dead_code)
    )]
    pub(crate) fn check_params(&self, known: &[&str]) -> Result<()> {
        for (key, _) in &self.params {
            if !known.contains(key) && !EVERYWHERE.contains(key) {
                let known = [known, EVERYWHERE].concat().join(", ");
                return Err(Error::invalid(format!(
                    "{}: URLs have no parameter {key:?} (known: {known})",
                    self.scheme
                )));
            }
        }
        for (place, (key, _)) in self.params.iter().enumerate() {
            if self.params[..place].iter().any(|(before, _)| before == key) {
                return Err(Error::invalid(format!("the parameter {key:?} is there twice; say it once")));
            }
        }
        Ok(())
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
        assert!(message.contains("\"prefix\" is there twice") && !message.contains("b:"), "{message}");
    }

    #[test]
    fn what_is_not_a_url_says_what_to_write() {
        let message = Url::parse("/tmp/locks").unwrap_err().to_string();
        assert!(message.contains("file:/tmp/locks"), "{message}");
        assert!(Url::parse("file:x?a").unwrap_err().to_string().contains("a=VALUE"));
    }
}
