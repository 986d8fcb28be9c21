//! The schemes of URLs: which engine, and the feature that it needs.

use tollgate_core::Error;

/// A kind of engine.
struct Engine {
    schemes: &'static [&'static str],
    feature: &'static str,
    /// Whether the feature is enabled.
    is_built: bool,
    /// What to write.
    example: &'static str,
}

/// Every kind of engine, built or not.
const ENGINES: &[Engine] = &[
    engine(&["file"], "file", cfg!(feature = "file"), "file:DIR"),
    engine(&["memory"], "memory", cfg!(feature = "memory"), "memory:"),
    engine(&["redis", "rediss"], "redis", cfg!(feature = "redis"), "redis://HOST"),
    engine(
        &["redis-sentinel", "rediss-sentinel"],
        "redis",
        cfg!(feature = "redis"),
        "redis-sentinel://HOST/SERVICE",
    ),
    engine(&["redis-cluster", "rediss-cluster"], "redis", cfg!(feature = "redis"), "redis-cluster://HOST"),
    engine(&["redlock", "redlocks"], "redis", cfg!(feature = "redis"), "redlock://HOST,HOST,HOST"),
    engine(&["etcd", "etcds"], "etcd", cfg!(feature = "etcd"), "etcd://HOST,HOST"),
    engine(&["zookeeper", "zookeepers"], "zookeeper", cfg!(feature = "zookeeper"), "zookeeper://HOST,HOST"),
    engine(&["mysql", "mariadb"], "mysql", cfg!(feature = "mysql"), "mysql://HOST/DATABASE"),
    engine(&["postgres", "postgresql"], "postgres", cfg!(feature = "postgres"), "postgres://HOST/DATABASE"),
    engine(&["tollgate", "tollgate+unix"], "server", cfg!(feature = "server"), "tollgate://HOST"),
];

const fn engine(
    schemes: &'static [&'static str],
    feature: &'static str,
    is_built: bool,
    example: &'static str,
) -> Engine {
    Engine { schemes, feature, is_built, example }
}

/// Why there is no engine for a scheme: its feature is not enabled, or it is no engine's.
pub(crate) fn unknown(scheme: &str) -> Error {
    unknown_among(ENGINES, scheme)
}

/// An error if the feature of this scheme's engine is not enabled.
pub(crate) fn check_is_built(scheme: &str) -> Result<(), Error> {
    match ENGINES.iter().find(|engine| engine.schemes.contains(&scheme)) {
        Some(engine) if !engine.is_built => Err(unknown(scheme)),
        _ => Ok(()),
    }
}

/// Whether the engine of this scheme is reached over a network, by a driver that needs Tokio.
pub(crate) fn needs_tokio(scheme: &str) -> bool {
    !["file", "memory"].contains(&scheme) && ENGINES.iter().any(|engine| engine.schemes.contains(&scheme))
}

fn unknown_among(engines: &[Engine], scheme: &str) -> Error {
    if let Some(engine) = engines.iter().find(|engine| engine.schemes.contains(&scheme)) {
        let feature = engine.feature;
        return Error::unsupported(format!(
            "{scheme}: URLs need the feature `{feature}` of the crate tollgate, which is not enabled: add {feature:?} to its \
             features in Cargo.toml"
        ));
    }
    let known: Vec<_> =
        engines.iter().filter(|engine| engine.is_built).map(|engine| engine.example).collect();
    let named = if is_scheme(scheme) {
        format!("no engine has the URL scheme {scheme:?}")
    } else {
        "this is not a URL".to_owned()
    };
    Error::invalid(format!("{named}; the known engines are {}", known.join(", ")))
}

/// Whether this may be the scheme of a URL. What is not may be a password, and is not repeated.
pub(crate) fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c))
}

#[cfg(test)]
mod tests {
    use tollgate_core::ErrorKind;

    use super::*;

    #[test]
    fn a_feature_that_is_not_enabled_is_named() {
        let engines = [engine(&["redis", "rediss"], "redis", false, "redis://HOST")];
        let error = unknown_among(&engines, "rediss");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`redis`") && error.to_string().contains("Cargo.toml"), "{error}");
        let error = unknown_among(&engines, "rediis");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("rediis"), "{error}");
    }

    #[test]
    fn what_is_no_scheme_is_not_repeated() {
        for secret in ["s3cret@host", "S3CRET", "s3 cret", "3s", ""] {
            let message = unknown_among(ENGINES, secret).to_string();
            assert!(secret.is_empty() || !message.contains(secret), "{message}");
        }
    }

    #[test]
    fn engines_behind_a_network_need_tokio() {
        assert!(
            needs_tokio("redis")
                && needs_tokio("mariadb")
                && needs_tokio("etcds")
                && needs_tokio("tollgate+unix")
        );
        assert!(!needs_tokio("file") && !needs_tokio("memory") && !needs_tokio("nonsense"));
    }
}
