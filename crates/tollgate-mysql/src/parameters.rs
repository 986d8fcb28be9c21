//! Parameters of a URL as people have them: those of MySQL's own programs, and of the frameworks and drivers above them.
//!
//! What matters here is done. What concerns us not is left out, and noted. What would leave a connection less safe than the URL
//! asks for, if it were left out, is an error.

use std::time::Duration;

use tollgate_core::tls::TlsFiles;
use tollgate_core::{Error, Result};

use crate::config::MySqlConfig;

/// The parameters that a URL may have, beside those of Tollgate.
pub const PARAMETERS: &[&str] = &[
    // Our account, and how the connection is encrypted.
    "user",
    "password",
    "connect_timeout",
    "connectTimeout",
    "socket",
    "unix_socket",
    "unixSocket",
    "ssl-mode",
    "sslmode",
    "sslMode",
    "ssl_mode",
    "ssl",
    "tls",
    "useSSL",
    "useSsl",
    "requireSSL",
    "ssl-ca",
    "ssl_ca",
    "sslrootcert",
    "ssl-cert",
    "ssl_cert",
    "sslcert",
    "ssl-key",
    "ssl_key",
    "sslkey",
    "ssl-crl",
    "ssl_crl",
    "ssl-crlpath",
    "ssl-cipher",
    "ssl_cipher",
    "tls-version",
    "tlsVersions",
    "enabledTLSProtocols",
    "sslaccept",
    "sslidentity",
    "sslpassword",
    "verifyServerCertificate",
    "ssl_verify_cert",
    "ssl_verify_identity",
    "allowPublicKeyRetrieval",
    "get_server_public_key",
    "allowCleartextPasswords",
    "allowNativePasswords",
    "enable_cleartext_plugin",
    // What does not concern locks.
    "adapter",
    "autoReconnect",
    "autocommit",
    "cachePrepStmts",
    "characterEncoding",
    "charset",
    "checkout_timeout",
    "clientFoundRows",
    "collation",
    "columnsWithAlias",
    "compress",
    "compression",
    "conn_health_checks",
    "conn_max_age",
    "connection_limit",
    "connectionLimit",
    "dateStrings",
    "encoding",
    "init_command",
    "interpolateParams",
    "loc",
    "local_infile",
    "maxAllowedPacket",
    "max_allowed_packet",
    "max_lifetime",
    "multiStatements",
    "parseTime",
    "pool",
    "pool_size",
    "pool_timeout",
    "prepStmtCacheSize",
    "prepStmtCacheSqlLimit",
    "prepared_statements",
    "readTimeout",
    "read_timeout",
    "reaping_frequency",
    "reconnect",
    "rewriteBatchedStatements",
    "serverTimezone",
    "socketTimeout",
    "socket_timeout",
    "sql_mode",
    "statement-cache-capacity",
    "statement_cache_size",
    "strict",
    "supportBigNumbers",
    "time_zone",
    "timezone",
    "tinyInt1isBit",
    "useServerPrepStmts",
    "useUnicode",
    "use_unicode",
    "variables",
    "wait_timeout",
    "waitForConnections",
    "writeTimeout",
    "write_timeout",
    "zeroDateTimeBehavior",
];

fn wrong(name: &str, what: &str) -> Error {
    Error::invalid(format!("{name}= {what}"))
}

impl MySqlConfig {
    /// Does what these parameters of a URL say, which are known ([`PARAMETERS`](crate::PARAMETERS)) and decoded, or
    /// [notes](Self::notes) that it does not.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that makes no sense, and for what would leave the connection less safe if it were left out.
    pub fn set_parameters(&mut self, parameters: &[(&str, String)]) -> Result<()> {
        let mut encryption = Encryption::default();
        for (name, value) in parameters {
            if !self.take(name, value)? && !encryption.take(name, value)? {
                self.notes.push(left_out(name, value)?);
            }
        }
        self.notes.append(&mut encryption.notes);
        let has_files = encryption.files != TlsFiles::default();
        match encryption.wanted {
            Some(true) => self.tls = Some(encryption.files),
            _ if has_files => {
                return Err(Error::invalid(
                    "certificates are for encrypted connections; add ssl-mode=required to the URL",
                ));
            }
            _ => self.tls = None,
        }
        Ok(())
    }

    /// What of the URL is not done as it is said, and why. Without values, which may be secrets.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Takes what is said of the server and of ourselves.
    fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        let number = || value.parse::<u64>().map_err(|_| wrong(name, "must be a number, and not negative"));
        match name {
            "user" => self.login.user = value.to_owned(),
            "password" => self.login.password = Some(value.to_owned()),
            // Nothing is what is usual here: an endless wait helps no caller.
            "connect_timeout" | "connectTimeout" if number()? == 0 => {}
            "connect_timeout" => self.to_connect = Duration::from_secs(number()?),
            "connectTimeout" => self.to_connect = Duration::from_millis(number()?),
            "socket" | "unix_socket" | "unixSocket" => {
                return Err(wrong(
                    name,
                    "is not supported; name the server's address, 127.0.0.1 if it is on this machine",
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What is said of encryption, in the words of several programs.
#[derive(Debug, Default)]
struct Encryption {
    wanted: Option<bool>,
    files: TlsFiles,
    notes: Vec<String>,
}

impl Encryption {
    fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        let word = value.to_ascii_lowercase().replace('-', "_");
        match name {
            "ssl-mode" | "sslmode" | "sslMode" | "ssl_mode" => match word.as_str() {
                "required" | "require" | "verify_ca" | "verify_identity" | "verify_full" => self.want(),
                "disabled" | "disable" => {
                    self.wanted.get_or_insert(false);
                }
                "preferred" | "prefer" | "allow" => self.prefer(name),
                _ => {
                    return Err(Error::invalid(format!(
                        "ssl-mode={value:?} is unknown; write disabled, or required: then the server's \
                         certificate is checked"
                    )));
                }
            },
            "ssl" | "tls" | "useSSL" | "useSsl" | "requireSSL" => match word.as_str() {
                "true" | "1" | "require" | "required" | "skip_verify" => self.want(),
                "false" | "0" | "" => {
                    self.wanted.get_or_insert(false);
                }
                "preferred" => self.prefer(name),
                _ => return Err(wrong(name, "must be true or false; write ssl-mode=required")),
            },
            "ssl-ca" | "ssl_ca" | "sslrootcert" => self.files.ca = Some(value.into()),
            "ssl-cert" | "ssl_cert" | "sslcert" => self.files.cert = Some(value.into()),
            "ssl-key" | "ssl_key" | "sslkey" => self.files.key = Some(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// If two of them disagree, the safer one counts.
    fn want(&mut self) {
        self.wanted = Some(true);
    }

    fn prefer(&mut self, name: &str) {
        self.notes.push(format!(
            "the parameter {name} of the URL asks for encryption if the server offers it, which gives no \
             protection against attackers on the network: the connection is not encrypted, and a password \
             is sent only to this machine; write ssl-mode=required"
        ));
    }
}

/// What is noted of a parameter that is left out, unless it must not be.
fn left_out(name: &str, value: &str) -> Result<String> {
    let why = match name {
        "ssl-crl" | "ssl_crl" | "ssl-crlpath" => {
            return Err(wrong(
                name,
                "would have no effect: certificate revocation lists are not read; leave it out",
            ));
        }
        "sslpassword" | "sslidentity" => {
            return Err(wrong(
                name,
                "would have no effect; name a certificate and its key in ssl-cert= and ssl-key=",
            ));
        }
        "ssl-cipher" | "ssl_cipher" => {
            return Err(wrong(
                name,
                "would have no effect: only TLS 1.2 and 1.3 with their safe ciphers are used; leave it out",
            ));
        }
        "tls-version" | "tlsVersions" | "enabledTLSProtocols" if !value.contains("1.2") => {
            return Err(wrong(name, "must allow TLSv1.2: only 1.2 and 1.3 are used; leave it out"));
        }
        "tls-version" | "tlsVersions" | "enabledTLSProtocols" => "TLS 1.2 and 1.3 are used",
        "sslaccept" | "verifyServerCertificate" | "ssl_verify_cert" | "ssl_verify_identity" => {
            "the server's certificate is always checked"
        }
        "allowPublicKeyRetrieval"
        | "get_server_public_key"
        | "allowCleartextPasswords"
        | "enable_cleartext_plugin" => {
            "plain_password=allow decides whether a password may be sent to another machine without \
             encryption"
        }
        _ if PARAMETERS.contains(&name) => "it does not affect locks",
        _ => return Err(Error::invalid(format!("mysql: URLs have no parameter {name:?}"))),
    };
    Ok(format!("the parameter {name} of the URL is ignored: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(parameters: &[(&str, &str)]) -> Result<MySqlConfig> {
        let mut config = MySqlConfig::from_url("mysql://ann:word@db/shop").unwrap();
        let owned: Vec<_> = parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        config.set_parameters(&owned).map(|()| config)
    }

    #[test]
    fn what_matters_is_done() {
        let config = with(&[("user", "bob"), ("password", "other"), ("connectTimeout", "1500")]).unwrap();
        assert_eq!((config.login.user.as_str(), config.login.password.as_deref()), ("bob", Some("other")));
        assert_eq!(config.to_connect, Duration::from_millis(1500));
        for (name, value, encrypted) in [
            ("ssl-mode", "REQUIRED", true),
            ("sslmode", "verify-full", true),
            ("useSSL", "true", true),
            ("tls", "skip-verify", true),
            ("ssl-mode", "disabled", false),
            ("useSSL", "false", false),
            ("sslMode", "PREFERRED", false),
        ] {
            assert_eq!(with(&[(name, value)]).unwrap().tls.is_some(), encrypted, "{name}={value}");
        }
        let both = with(&[("ssl-mode", "required"), ("useSSL", "false"), ("ssl-ca", "/ca")]).unwrap();
        assert_eq!(both.tls.unwrap().ca, Some("/ca".into()));
    }

    #[test]
    fn the_rest_is_noted_or_refused() {
        let notes =
            with(&[("charset", "secret"), ("parseTime", "true"), ("sslmode", "prefer")]).unwrap().notes;
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(!notes.concat().contains("secret"), "{notes:?}");
        for (name, value) in [
            ("ssl-mode", "sometimes"),
            ("useSSL", "maybe"),
            ("ssl-crl", "/crl"),
            ("ssl-ca", "/ca"),
            ("socket", "/run/mysqld/mysqld.sock"),
            ("tls-version", "TLSv1.3"),
            ("connect_timeout", "-1"),
            ("sslmod", "required"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert!(!error.to_string().contains("unwrap"), "{name}: {error}");
        }
    }
}
