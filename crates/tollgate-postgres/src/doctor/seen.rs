//! What a PostgreSQL says of itself.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tollgate_core::far_clock::Reading;
use tollgate_core::{Error, ErrorKind, Result};
use tollgate_sql::Style;

use crate::config::{PostgresConfig, TO_CONNECT};
use crate::driven::Value;
use crate::error::silent_at;
use crate::plain;
use crate::pooled::is_pooled;

const LOOK: &str = include_str!("look.sql");
/// How often the clock is read: the quickest answer says most.
const READINGS: usize = 5;

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// What kind of locks it is to be good for.
    pub(super) style: Style,
    pub(super) version: String,
    pub(super) version_number: i32,
    /// A replica, or one that is being restored.
    pub(super) in_recovery: bool,
    pub(super) read_only: bool,
    pub(super) durability: Durability,
    pub(super) isolation: String,
    pub(super) load: Load,
    pub(super) rights: Rights,
    /// What of it belongs to a role that is not trusted, why that matters, and what to do.
    pub(super) stranger: Option<(String, String, String)>,
    /// Whether a pooler lends its processes to several connections.
    pub(super) pooled: bool,
    pub(super) clock: Reading,
    /// Whether the connection is encrypted, or does not leave the machine.
    pub(super) private: bool,
}

/// What it does before it calls something done.
#[derive(Debug, Clone)]
pub(super) struct Durability {
    pub(super) synchronous_commit: String,
    pub(super) synchronous_standbys: String,
    pub(super) fsync: bool,
    pub(super) full_page_writes: bool,
    pub(super) replicas: i64,
    /// Those that a commit waits for; those who may not see it are shown none.
    pub(super) synchronous_replicas: i64,
}

/// How busy it is, and whether it can clean up.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) connections: i64,
    pub(super) max_connections: i64,
    pub(super) cleans_up: bool,
    pub(super) oldest: Option<Oldest>,
    pub(super) old_prepared: i64,
    pub(super) dead_slots: i64,
    pub(super) table_bytes: i64,
}

/// The transaction that has been open for longest.
#[derive(Debug, Clone)]
pub(super) struct Oldest {
    pub(super) age: Duration,
    pub(super) process: i32,
    pub(super) state: String,
}

/// What this user may do, and what is there to do it with.
#[derive(Debug, Clone)]
pub(super) struct Rights {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) schema: String,
    pub(super) has_schema: bool,
    pub(super) has_tables: bool,
    pub(super) may_create_schema: bool,
    pub(super) may_use_schema: bool,
    pub(super) may_create_tables: bool,
    pub(super) may_use_tables: bool,
}

impl Seen {
    /// Asks over connections of its own.
    pub(super) async fn look(config: &PostgresConfig, style: Style) -> Result<Self> {
        let mut server = config.server.clone();
        // A replica has something to say, too.
        server.target_session_attrs(TargetSessionAttrs::Any);
        let one = plain::connect(config, &server).await?;
        let other = plain::connect(config, &server).await?;
        let asked = tokio::time::timeout(TO_CONNECT * 2, Self::ask(config, style, &one, &other));
        asked.await.unwrap_or_else(|_| Err(silent_at(config, TO_CONNECT * 2)))
    }

    async fn ask(config: &PostgresConfig, style: Style, one: &Client, other: &Client) -> Result<Self> {
        let asked = async {
            let (schema, prefix) = (&config.schema, &config.table_prefix);
            let tables = match style {
                Style::Lease => ["locks", "claims"],
                Style::Session => ["sessions", "awake"],
            };
            let values: [Value<'_>; 4] = [schema, prefix, &tables[0], &tables[1]];
            one.batch_execute("begin; set local search_path = pg_catalog, pg_temp").await?;
            let stranger = config.ownership().look_over(one).await?;
            let row = one.query_typed_one(LOOK, &values.map(|value| (value, Type::TEXT))).await?;
            one.batch_execute("commit").await?;
            Ok((row, stranger, is_pooled(one, other).await?, reading(one).await?))
        };
        let (row, stranger, pooled, clock) = asked.await.map_err(|error: tokio_postgres::Error| {
            let said = error.as_db_error().map(|error| format!(" ({})", error.message())).unwrap_or_default();
            Error::new(ErrorKind::Unavailable, format!("PostgreSQL could not be examined{said}"))
                .caused_by(error)
        })?;
        let private = config.tls.is_some() && !config.may_be_plain || is_local(config);
        let stranger = stranger.map(|found| (found.what(), found.why(), config.ownership().advice(&found)));
        Ok(Self { stranger, pooled, clock, private, ..Self::of(&row, config, style) })
    }

    /// What one statement says.
    fn of(row: &Row, config: &PostgresConfig, style: Style) -> Self {
        let is_on = |column: &str| row.get::<_, &str>(column) == "on";
        let oldest = row.get::<_, Option<i64>>("oldest_seconds").map(|seconds| Oldest {
            age: Duration::from_secs(seconds.max(0).unsigned_abs()),
            process: row.get("oldest_process"),
            state: row.get::<_, Option<&str>>("oldest_state").unwrap_or("open").to_owned(),
        });
        Self {
            style,
            version: row.get("version"),
            version_number: row.get("version_number"),
            in_recovery: row.get("in_recovery"),
            read_only: is_on("read_only"),
            durability: Durability {
                synchronous_commit: row.get("synchronous_commit"),
                synchronous_standbys: row.get("synchronous_standbys"),
                fsync: is_on("fsync"),
                full_page_writes: is_on("full_page_writes"),
                replicas: row.get("replicas"),
                synchronous_replicas: row.get("synchronous_replicas"),
            },
            isolation: row.get("isolation"),
            load: Load {
                connections: row.get("connections"),
                max_connections: row.get("max_connections"),
                cleans_up: is_on("autovacuum") && is_on("track_counts"),
                oldest,
                old_prepared: row.get("old_prepared"),
                dead_slots: row.get("dead_slots"),
                table_bytes: row.get::<_, Option<i64>>("table_bytes").unwrap_or(0),
            },
            rights: Rights {
                user: row.get("user_name"),
                database: row.get("database"),
                schema: config.schema.clone(),
                has_schema: row.get("has_schema"),
                has_tables: row.get("has_tables"),
                may_create_schema: row.get("may_create_schema"),
                may_use_schema: row.get("may_use_schema"),
                may_create_tables: row.get("may_create_tables"),
                may_use_tables: row.get("may_use_tables"),
            },
            stranger: None,
            pooled: false,
            clock: Reading { ahead: 0, round_trip: Duration::ZERO },
            private: false,
        }
    }
}

/// The quickest of some readings.
async fn reading(client: &Client) -> Result<Reading, tokio_postgres::Error> {
    let mut best: Option<Reading> = None;
    for _ in 0..READINGS {
        let (before, started) = (SystemTime::now(), Instant::now());
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let theirs: i64 = client.query_typed_one(sql, &[]).await?.get(0);
        let round_trip = started.elapsed();
        let ours = before.duration_since(UNIX_EPOCH).unwrap_or_default() + round_trip / 2;
        let ours = i64::try_from(ours.as_micros()).unwrap_or(i64::MAX);
        if best.is_none_or(|best| round_trip < best.round_trip) {
            best = Some(Reading { ahead: theirs.saturating_sub(ours), round_trip });
        }
    }
    Ok(best.unwrap_or(Reading { ahead: 0, round_trip: Duration::ZERO }))
}

/// Whether what is said to it does not leave this machine.
fn is_local(config: &PostgresConfig) -> bool {
    config.server.get_hosts().iter().all(|host| match host {
        tokio_postgres::config::Host::Unix(_) => true,
        tokio_postgres::config::Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server on which there is nothing to change.
    pub(crate) fn healthy() -> Seen {
        Seen {
            style: Style::Lease,
            version: "15.4".to_owned(),
            version_number: 150_004,
            in_recovery: false,
            read_only: false,
            durability: Durability {
                synchronous_commit: "on".to_owned(),
                synchronous_standbys: String::new(),
                fsync: true,
                full_page_writes: true,
                replicas: 0,
                synchronous_replicas: 0,
            },
            isolation: "read committed".to_owned(),
            load: Load {
                connections: 10,
                max_connections: 100,
                cleans_up: true,
                oldest: None,
                old_prepared: 0,
                dead_slots: 0,
                table_bytes: 57_344,
            },
            rights: Rights {
                user: "app".to_owned(),
                database: "shop".to_owned(),
                schema: "tollgate".to_owned(),
                has_schema: true,
                has_tables: true,
                may_create_schema: false,
                may_use_schema: true,
                may_create_tables: false,
                may_use_tables: true,
            },
            stranger: None,
            pooled: false,
            clock: Reading { ahead: 100, round_trip: Duration::from_micros(300) },
            private: true,
        }
    }
}
