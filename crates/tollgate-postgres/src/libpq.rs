//! URLs of a PostgreSQL as people have them: with all that libpq knows, and what frameworks add.
//!
//! What matters here is done. What concerns us not is left out, and noted. What would leave a connection less safe than the URL
//! asks for, if it were left out, is an error.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, LoadBalanceHosts, SslNegotiation};
use tollgate_core::tls::TlsFiles;
use tollgate_core::url::decoded;
use tollgate_core::{Error, Result};

use crate::passfile;

/// The port of a server whose URL names none.
pub(crate) const USUAL_PORT: u16 = 5432;

/// The parameters that a URL may have, beside those of Tollgate.
pub const PARAMETERS: &[&str] = &[
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "max_protocol_version",
    "min_protocol_version",
    "options",
    "passfile",
    "password",
    "port",
    "replication",
    "require_auth",
    "requirepeer",
    "requiressl",
    "scram_client_key",
    "scram_server_key",
    "service",
    "servicefile",
    "ssl",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslkeylogfile",
    "sslmode",
    "sslnegotiation",
    "sslpassword",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
    // Of Prisma, Rails, Django, Ecto, SQLAlchemy, pgx, sqlx, JDBC and node-postgres.
    "adapter",
    "advisory_locks",
    "binary_parameters",
    "checkout_timeout",
    "conn_health_checks",
    "conn_max_age",
    "connection_limit",
    "currentSchema",
    "default_query_exec_mode",
    "encoding",
    "idle_timeout",
    "max",
    "max_lifetime",
    "min_messages",
    "pgbouncer",
    "pool",
    "pool_max_conns",
    "pool_min_conns",
    "pool_size",
    "pool_timeout",
    "prepareThreshold",
    "prepared_statements",
    "reaping_frequency",
    "socket_timeout",
    "sslaccept",
    "sslidentity",
    "statement-cache-capacity",
    "statement_cache_size",
    "statement_limit",
    "supa",
    "uselibpqcompat",
    "variables",
];

/// What a URL says.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) server: Config,
    /// How encrypted connections are meant, and with which files.
    pub(crate) sslmode: Option<String>,
    pub(crate) files: TlsFiles,
    /// What is not done as it is said.
    pub(crate) notes: Vec<String>,
}

/// The address of a server, and our role there.
#[derive(Debug, Default)]
struct Address {
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    ports: Vec<u16>,
    dbname: Option<String>,
    passfile: Option<String>,
}

fn no_url() -> Error {
    Error::invalid("this is not a PostgreSQL URL; write postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

fn wrong(name: &str, what: &str) -> Error {
    Error::invalid(format!("{name}= {what}"))
}

/// Reads a URL.
pub(crate) fn read(url: &str) -> Result<Said> {
    let rest = ["postgres://", "postgresql://"].into_iter().find_map(|scheme| url.strip_prefix(scheme));
    let (place, query) = rest.map(|rest| rest.split_once('?').unwrap_or((rest, ""))).ok_or_else(no_url)?;
    let mut said =
        Said { server: Config::new(), sslmode: None, files: TlsFiles::default(), notes: Vec::new() };
    let mut address = Address::parse(place)?;
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(no_url)?;
        if seen.contains(&name) {
            return Err(Error::invalid(format!("the parameter {name:?} appears twice; give it once")));
        }
        seen.push(name);
        let value = decoded(value)?;
        if !address.take(name, &value)? && !said.take(name, &value)? {
            said.leave(name, &value)?;
        }
    }
    address.write_into(&mut said.server)?;
    Ok(said)
}

impl Address {
    /// Reads `USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE`, all of which may be missing.
    fn parse(place: &str) -> Result<Self> {
        let (authority, dbname) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let named = |text: &str| if text.is_empty() { Ok(None) } else { decoded(text).map(Some) };
        let mut address = Self { user: named(user)?, password, dbname: named(dbname)?, ..Self::default() };
        let mut has_ports = false;
        for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
            let (name, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
                Some(Some((name, port))) => (name, port),
                Some(None) => return Err(no_url()),
                None => host.split_at(host.find(':').unwrap_or(host.len())),
            };
            has_ports |= !port.is_empty();
            address.hosts.push(decoded(name)?);
            address.ports.push(match port.strip_prefix(':') {
                Some(port) => port.parse().map_err(|_| no_url())?,
                None if port.is_empty() => USUAL_PORT,
                None => return Err(no_url()),
            });
        }
        if !has_ports {
            address.ports.clear();
        }
        Ok(address)
    }

    /// Takes a parameter that says the same in another place. It has the last word.
    fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "host" => {
                self.hosts = value.split(',').map(ToOwned::to_owned).collect();
                if self.ports.len() > 1 {
                    self.ports.clear();
                }
            }
            "port" => {
                let port =
                    |port: &str| port.parse().map_err(|_| wrong(name, "must be a number from 1 to 65535"));
                self.ports = value.split(',').map(port).collect::<Result<_>>()?;
            }
            "dbname" => self.dbname = Some(value.to_owned()),
            "user" => self.user = Some(value.to_owned()),
            "password" => self.password = Some(value.to_owned()),
            "passfile" => self.passfile = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write_into(mut self, server: &mut Config) -> Result<()> {
        if self.hosts.is_empty() {
            self.hosts = server.get_hostaddrs().iter().map(ToString::to_string).collect();
        }
        if self.hosts.is_empty() {
            self.hosts.push(String::new());
        }
        for host in &self.hosts {
            server.host(if host.is_empty() { "127.0.0.1" } else { host });
        }
        if self.ports.len() > 1 && self.ports.len() != self.hosts.len() {
            return Err(wrong("port", "must name one port for all hosts, or one for each"));
        }
        for port in &self.ports {
            server.port(*port);
        }
        let user = self.user.unwrap_or_else(|| "postgres".to_owned());
        let dbname = self.dbname.unwrap_or_else(|| user.clone());
        if self.password.is_none()
            && let Some(file) = &self.passfile
        {
            let wanted = server.get_hosts().iter().enumerate().map(|(at, host)| {
                let port = self.ports.get(at).or(self.ports.first()).copied().unwrap_or(USUAL_PORT);
                let name = match host {
                    Host::Tcp(name) => name.clone(),
                    Host::Unix(_) => "localhost".to_owned(),
                };
                [name, port.to_string(), dbname.clone(), user.clone()]
            });
            self.password = passfile::password(file, &wanted.collect::<Vec<_>>())?;
        }
        if let Some(password) = &self.password {
            server.password(password);
        }
        server.user(user);
        server.dbname(dbname);
        Ok(())
    }
}

impl Said {
    /// Takes a parameter that is done as it is said.
    fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        let server = &mut self.server;
        let number = || value.parse::<u32>().map_err(|_| wrong(name, "must be a number, and not negative"));
        let seconds = || Ok::<_, Error>(Duration::from_secs(number()?.into()));
        match name {
            "hostaddr" => {
                for address in value.split(',') {
                    server.hostaddr(
                        address.parse().map_err(|_| wrong(name, "must be one IP address, or several"))?,
                    );
                }
            }
            // Nothing, or less, is what is usual here: an endless wait helps no caller.
            "connect_timeout" if value.starts_with('-') || number()? == 0 => {}
            "connect_timeout" => drop(server.connect_timeout(seconds()?)),
            "options" => drop(server.options(value)),
            "keepalives" => drop(server.keepalives(number()? != 0)),
            "keepalives_idle" if number()? > 0 => drop(server.keepalives_idle(seconds()?)),
            "keepalives_interval" if number()? > 0 => drop(server.keepalives_interval(seconds()?)),
            "keepalives_count" if number()? > 0 => drop(server.keepalives_retries(number()?)),
            "tcp_user_timeout" if number()? > 0 => {
                server.tcp_user_timeout(Duration::from_millis(number()?.into()));
            }
            // The system's, which is what is set here otherwise, too.
            "keepalives_idle" | "keepalives_interval" | "keepalives_count" | "tcp_user_timeout" => {}
            "load_balance_hosts" => drop(server.load_balance_hosts(match value {
                "disable" => LoadBalanceHosts::Disable,
                "random" => LoadBalanceHosts::Random,
                _ => return Err(wrong(name, "must be disable or random")),
            })),
            "channel_binding" => drop(server.channel_binding(match value {
                "disable" => ChannelBinding::Disable,
                "prefer" => ChannelBinding::Prefer,
                "require" => ChannelBinding::Require,
                _ => return Err(wrong(name, "must be disable, prefer or require")),
            })),
            "sslnegotiation" => drop(server.ssl_negotiation(match value {
                "postgres" => SslNegotiation::Postgres,
                "direct" => SslNegotiation::Direct,
                _ => return Err(wrong(name, "must be postgres or direct")),
            })),
            "sslmode" if value == "disable" && self.sslmode.is_some() => {
                return Err(wrong(name, "contradicts an earlier parameter of the URL; write one of them"));
            }
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "ssl" | "requiressl" if matches!(value, "true" | "1" | "require" | "no-verify") => {
                if self.sslmode.as_deref() == Some("disable") {
                    return Err(wrong(name, "contradicts sslmode=disable; write one of them"));
                }
                self.sslmode.get_or_insert_with(|| "require".to_owned());
            }
            "ssl" | "requiressl" if matches!(value, "false" | "0") => {}
            "ssl" | "requiressl" => return Err(wrong(name, "must be true or false; write sslmode=require")),
            "sslrootcert" if value == "system" => {
                self.sslmode.get_or_insert_with(|| "verify-full".to_owned());
            }
            "sslrootcert" => self.files.ca = Some(value.into()),
            "sslcert" => self.files.cert = Some(value.into()),
            "sslkey" => self.files.key = Some(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Leaves a parameter out, and notes it, unless it must not be left out.
    fn leave(&mut self, name: &str, value: &str) -> Result<()> {
        let why = match (name, value) {
            ("target_session_attrs", "any" | "read-write" | "primary")
            | ("gssencmode", "disable" | "prefer")
            | ("sslcompression", "0")
            | ("replication", "false" | "off" | "no" | "0")
            | ("client_encoding", "auto")
            | ("ssl_min_protocol_version", "" | "TLSv1" | "TLSv1.1" | "TLSv1.2") => return Ok(()),
            ("client_encoding" | "encoding", text) if text.to_ascii_lowercase().starts_with("u") => {
                return Ok(());
            }
            ("target_session_attrs", _) => {
                return Err(wrong(name, "must be read-write: locks need a server that accepts writes"));
            }
            ("gssencmode", _) => {
                return Err(wrong(name, "is not supported; leave it out, and encrypt with sslmode=require"));
            }
            ("replication", _) => {
                return Err(wrong(name, "is for replication connections; leave it out"));
            }
            ("ssl_min_protocol_version", _) => {
                return Err(wrong(
                    name,
                    "cannot be changed: TLSv1.2 is the minimum, and 1.3 is used where the server speaks \
                     it; leave it out",
                ));
            }
            ("sslcrl" | "sslcrldir", _) => {
                return Err(wrong(
                    name,
                    "would have no effect: certificate revocation lists are not read; leave it out",
                ));
            }
            ("sslpassword", _) => {
                return Err(wrong(
                    name,
                    "would have no effect: encrypted keys are not read; name an unencrypted key in sslkey=",
                ));
            }
            ("require_auth", _) => {
                return Err(wrong(
                    name,
                    "would have no effect; leave it out: without encryption a password in clear text is \
                     refused anyway, and channel_binding=require accepts scram-sha-256 alone",
                ));
            }
            ("requirepeer", _) => {
                return Err(wrong(
                    name,
                    "would have no effect: the owner of the server process is not checked; leave it out, \
                     and protect the folder of the socket",
                ));
            }
            ("service" | "servicefile", _) => {
                return Err(wrong(name, "is not supported; write the settings of the service in the URL"));
            }
            ("scram_client_key" | "scram_server_key", _) => {
                return Err(wrong(name, "is not supported; write the password, or name a passfile="));
            }
            ("application_name" | "fallback_application_name", _) => {
                "tollgate names its connections `tollgate` and a number in pg_stat_activity, to find them \
                 by that name"
            }
            ("client_encoding" | "encoding", _) => "text is always sent as UTF-8",
            ("sslaccept", _) => "the server's certificate is always checked",
            _ if PARAMETERS.contains(&name) => "it does not affect locks",
            _ => {
                return Err(Error::invalid(format!("postgres: URLs have no parameter {name:?}")));
            }
        };
        self.notes.push(format!("the parameter {name} of the URL is ignored: {why}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> (Vec<String>, Vec<u16>) {
        let server = read(url).unwrap().server;
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        };
        (server.get_hosts().iter().map(host).collect(), server.get_ports().to_vec())
    }

    #[test]
    fn parameters_say_where_the_server_is_in_other_words() {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (url, names, ports) in [
            ("postgres://db/shop", &["db"][..], &[][..]),
            ("postgresql://u@db:6000,other/shop", &["db", "other"], &[6000, 5432]),
            ("postgres:///shop?host=/run/postgresql", &["/run/postgresql"], &[]),
            ("postgres:///shop?host=%2Frun%2Fpostgresql&port=5433", &["/run/postgresql"], &[5433]),
            ("postgres://%2Frun%2Fpostgresql/shop", &["/run/postgresql"], &[]),
            ("postgres://u@:5433/shop?host=/run", &["/run"], &[5433]),
            ("postgres://ignored:1/shop?host=a,b&port=2,3", &["a", "b"], &[2, 3]),
            ("postgres://[::1]:7000/shop", &["::1"], &[7000]),
            ("postgres:///shop", &["127.0.0.1"], &[]),
            ("postgres:///shop?hostaddr=10.0.0.1", &["10.0.0.1"], &[]),
        ] {
            assert_eq!(hosts(url), (strings(names), ports.to_vec()), "{url}");
        }
        read("postgres://a,b,c/shop?port=1,2").unwrap_err();
        let server = read("postgres://h/?user=ann&password=s%40e%3A&dbname=shop").unwrap().server;
        assert_eq!((server.get_user(), server.get_dbname()), (Some("ann"), Some("shop")));
        assert_eq!(server.get_password(), Some(&b"s@e:"[..]));
    }

    #[test]
    fn what_matters_is_done() {
        let said = read(
            "postgres://h/d?connect_timeout=3&keepalives=1&keepalives_idle=7&keepalives_interval=2&keepalives_count=4\
             &tcp_user_timeout=5000&options=-c%20geqo%3Doff&load_balance_hosts=random&channel_binding=require\
             &target_session_attrs=read-write&sslmode=verify-full&sslrootcert=/ca&sslcert=/cert&sslkey=/key",
        );
        let said = said.unwrap();
        let server = &said.server;
        assert_eq!(server.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(server.get_keepalives_idle(), Duration::from_secs(7));
        assert_eq!(server.get_keepalives_retries(), Some(4));
        assert_eq!(server.get_tcp_user_timeout(), Some(&Duration::from_secs(5)));
        assert_eq!(server.get_options(), Some("-c geqo=off"));
        assert_eq!(server.get_load_balance_hosts(), LoadBalanceHosts::Random);
        assert_eq!(server.get_channel_binding(), ChannelBinding::Require);
        assert_eq!(said.sslmode.as_deref(), Some("verify-full"));
        assert_eq!(said.files.ca, Some("/ca".into()));
        assert_eq!(said.notes, [""; 0]);
    }

    #[test]
    fn what_does_not_concern_us_is_noted_without_its_value() {
        let url = "postgres://h/d?application_name=secret&connection_limit=5&pgbouncer=true&client_encoding=UTF8&pool=5";
        let notes = read(url).unwrap().notes;
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert!(notes[0].contains("application_name") && !notes[0].contains("secret"), "{notes:?}");
    }

    #[test]
    fn what_would_leave_a_connection_less_safe_is_an_error() {
        for parameter in [
            "require_auth=scram-sha-256",
            "sslcrl=/crl",
            "requirepeer=postgres",
            "gssencmode=require",
            "ssl_min_protocol_version=TLSv1.3",
            "target_session_attrs=standby",
            "service=shop",
            "sslpassword=a",
            "replication=database",
            "sslmod=require",
        ] {
            let error = read(&format!("postgres://h/d?{parameter}")).unwrap_err().to_string();
            let name = parameter.split('=').next().unwrap();
            assert!(error.contains(name), "{parameter}: {error}");
        }
        read("postgres://h/d?host=a&host=b").unwrap_err();
    }

    #[test]
    fn every_parameter_that_is_named_is_known() {
        for name in PARAMETERS {
            for value in ["1", "disable", "any", "127.0.0.1", "postgres"] {
                let told =
                    read(&format!("postgres://h/d?{name}={value}")).err().map(|error| error.to_string());
                assert!(!told.unwrap_or_default().contains("have no parameter"), "{name}");
            }
        }
    }
}
