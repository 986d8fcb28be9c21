//! What one server says of itself.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mysql_async::{Conn, Row};
use tollgate_core::Result;
use tollgate_core::far_clock::Reading;

use crate::config::{MySqlConfig, TO_CONNECT};
use crate::error::{Trouble, silent_at};
use crate::ownership;
use crate::schema::Tables;
use crate::wire::{Wire, first, queried};

/// How often the clock is read: the quickest answer says most.
const READINGS: usize = 5;

/// What was seen of one server.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// What `version()` says.
    pub(super) version: String,
    /// Its settings.
    pub(super) settings: HashMap<String, String>,
    /// Its counters.
    pub(super) status: HashMap<String, String>,
    /// What this user may do, as `SHOW GRANTS` puts it.
    pub(super) grants: Vec<String>,
    /// The database that the tables are in.
    pub(super) database: String,
    /// What of the tables and procedures others have made, why that matters, and what to do.
    pub(super) stranger: Option<(String, String, String)>,
    /// Where tokens come from, if the tables are there.
    pub(super) tables: Option<String>,
    /// How many replicas read its log; none if this user may not ask.
    pub(super) replicas: Option<usize>,
    /// What its clock says.
    pub(super) clock: Option<Reading>,
    /// Whether the connection is encrypted.
    pub(super) encrypted: bool,
    /// Whether the connection leaves this machine.
    pub(super) remote: bool,
}

impl Seen {
    /// Asks a server over a connection of its own.
    pub(super) async fn look(config: &MySqlConfig) -> Result<Self> {
        let asked = Self::ask(config);
        tokio::time::timeout(2 * TO_CONNECT, asked)
            .await
            .unwrap_or_else(|_| Err(silent_at(config, 2 * TO_CONNECT)))
    }

    async fn ask(config: &MySqlConfig) -> Result<Self> {
        let mut link = Wire::open(config, config.plain_options()?).await?;
        let seen = Self::of(&mut link, config).await;
        seen.map_err(|trouble| trouble.not_done().into_error("the examination"))
    }

    async fn of(link: &mut Conn, config: &MySqlConfig) -> std::result::Result<Self, Trouble> {
        let version: Option<String> = first(link, "select version()").await?;
        let settings = pairs(link, "show global variables").await?;
        let status = pairs(link, "show global status").await?;
        let grants: Vec<String> = queried(link, "show grants").await?;
        let asked = Tables::new(&config.table_prefix).named("select dialect from tollgate_version");
        let tables = Tables::new(&config.table_prefix);
        let stranger = ownership::look(link, &tables, config.owner.as_deref()).await?;
        // What others have put there is not read.
        let tables = match stranger {
            Some(_) => None,
            None => match first(link, &asked).await {
                Ok(dialect) => dialect,
                Err(trouble) if trouble.is_missing() || trouble.is_denied() => None,
                Err(trouble) => return Err(trouble),
            },
        };
        let replicas = match queried::<Row>(link, "show slave hosts").await {
            Ok(rows) => Some(rows.len()),
            Err(trouble) if trouble.is_answer() => None,
            Err(trouble) => return Err(trouble),
        };
        Ok(Self {
            version: version.unwrap_or_default(),
            settings,
            status,
            grants,
            database: config.database.clone(),
            stranger: stranger.map(|found| (found.what(), found.why(), found.advice())),
            tables,
            replicas,
            clock: of_clock(link).await?,
            encrypted: config.tls.is_some(),
            remote: !matches!(config.host.name.as_str(), "127.0.0.1" | "::1" | "localhost"),
        })
    }

    /// What it is called.
    pub(super) fn kind(&self) -> &'static str {
        if self.version.contains("MariaDB") { "MariaDB" } else { "MySQL" }
    }

    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Whether a setting is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        matches!(self.setting(name), Some("ON" | "1" | "YES"))
    }

    /// A number among the settings or counters.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.setting(name).or(self.status.get(name).map(String::as_str))?.parse().ok()
    }
}

async fn pairs(link: &mut Conn, question: &str) -> std::result::Result<HashMap<String, String>, Trouble> {
    let rows: Vec<(String, String)> = queried(link, question).await?;
    Ok(rows.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
}

async fn of_clock(link: &mut Conn) -> std::result::Result<Option<Reading>, Trouble> {
    let mut best: Option<Reading> = None;
    for _ in 0..READINGS {
        let (asked, before) = (Instant::now(), SystemTime::now());
        let question = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
        let theirs: Option<i64> = first(link, question).await?;
        let round_trip = asked.elapsed();
        let Some(theirs) = theirs else { continue };
        let ours = before.duration_since(UNIX_EPOCH).unwrap_or_default() + round_trip / 2;
        let ahead = theirs - i64::try_from(ours.as_micros()).unwrap_or(i64::MAX);
        if best.is_none_or(|best| round_trip < best.round_trip) {
            best = Some(Reading { ahead, round_trip });
        }
    }
    Ok(best)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server with which all is well, and these settings.
    pub(in super::super) fn healthy(settings: &[(&str, &str)]) -> Seen {
        let usual = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
            ("sync_binlog", "1"),
            ("log_bin", "ON"),
            ("binlog_format", "MIXED"),
            ("wsrep_on", "OFF"),
            ("read_only", "OFF"),
            ("max_connections", "151"),
        ];
        let both = usual.iter().chain(settings);
        Seen {
            version: "10.11.6-MariaDB".to_owned(),
            settings: both.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            grants: vec!["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`".to_owned()],
            tables: Some("mariadb".to_owned()),
            replicas: Some(0),
            ..Seen::default()
        }
    }
}
