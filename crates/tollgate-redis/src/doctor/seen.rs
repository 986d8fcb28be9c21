//! What one server says of itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, Value};
use tollgate_core::far_clock::Reading;
use tollgate_core::{Error, ErrorKind, OwnerId, Result};

use crate::config::RedisConfig;
use crate::endpoint::Endpoint;
use crate::error::of_connect;
use crate::links::TO_CONNECT;
use crate::redlock::{RECORD, member_of};
use crate::wire::{SHORT, Wire};

/// The settings that matter, one question each: before 7.0 several cannot be asked for at once.
const SETTINGS: [&str; 9] = [
    "appendfsync",
    "bind",
    "lua-time-limit",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
    "protected-mode",
    "requirepass",
    "save",
    "timeout",
];
/// How often the clock is read: the quickest answer says most.
const READINGS: usize = 5;

/// What was seen of one server.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Where it is.
    pub(super) name: String,
    /// The host alone.
    pub(super) host: String,
    /// What `INFO` says; `None` if this user may not ask.
    pub(super) info: Option<HashMap<String, String>>,
    /// What `CONFIG GET` says; `None` if this user may not ask, or nobody may.
    pub(super) settings: Option<HashMap<String, String>>,
    /// What its clock says; `None` if this user may not ask.
    pub(super) clock: Option<Reading>,
    /// What locks need and this user may not do.
    pub(super) denied: Vec<&'static str>,
    /// Whether it let us in without a password.
    pub(super) open: bool,
    /// Whether the connection is encrypted.
    pub(super) encrypted: bool,
    /// What it remembers of being a node of Redlock.
    pub(super) member: Option<String>,
    /// Whether it votes in its present run.
    pub(super) votes: bool,
}

impl Seen {
    /// Asks a server over a connection of its own.
    pub(super) async fn look(endpoint: &Endpoint, config: &RedisConfig) -> Result<Self> {
        let asked = Self::ask(endpoint, config);
        tokio::time::timeout(TO_CONNECT, asked).await.unwrap_or_else(|_| {
            let message = format!("Redis at {} did not answer within {TO_CONNECT:?}", endpoint.address());
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    async fn ask(endpoint: &Endpoint, config: &RedisConfig) -> Result<Self> {
        let options = AsyncConnectionConfig::new().set_response_timeout(None);
        let wire = Wire::open(endpoint, options, Arc::default(), Arc::default(), SHORT).await?;
        let mut connection = wire.connection();
        let info = of_info(&mut connection).await?;
        let settings = of_settings(&mut connection).await?;
        let clock = of_clock(&mut connection).await?;
        let denied = of_rights(&mut connection, &config.prefix).await?;
        let run = info.as_ref().and_then(|info| info.get("run_id")).cloned().unwrap_or_default();
        let (member, votes) = of_member(&mut connection, &run).await?;
        let (open, encrypted) = (config.login.password.is_none(), config.tls.is_some());
        let (name, host) = (endpoint.address(), endpoint.host().name.clone());
        Ok(Self { name, host, info, settings, clock, denied, open, encrypted, member, votes })
    }

    /// A field of `INFO`.
    pub(super) fn info(&self, field: &str) -> Option<&str> {
        self.info.as_ref()?.get(field).map(String::as_str)
    }

    /// A field of `INFO` that is a number.
    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.info(field)?.parse().ok()
    }

    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }
}

/// Sends commands in one go; each has an answer or an error of its own.
async fn answers(connection: &mut MultiplexedConnection, commands: &Pipeline) -> Result<Vec<Value>> {
    connection.req_packed_commands(commands, 0, commands.len()).await.map_err(of_connect)
}

async fn of_info(connection: &mut MultiplexedConnection) -> Result<Option<HashMap<String, String>>> {
    let mut question = Pipeline::new();
    question.cmd("INFO");
    let answer = answers(connection, &question).await?.pop().unwrap_or_default();
    if is_refused(&answer) {
        return Ok(None);
    }
    let text = answer.extract_error().map_err(of_connect)?;
    Ok(String::from_redis_value(text).ok().map(|text| fields(&text)))
}

pub(super) fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn of_settings(connection: &mut MultiplexedConnection) -> Result<Option<HashMap<String, String>>> {
    let mut questions = Pipeline::new();
    for setting in SETTINGS {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    let answers = answers(connection, &questions).await?;
    let maps = answers.into_iter().map(HashMap::<String, String>::from_redis_value);
    let known: HashMap<_, _> = maps.filter_map(std::result::Result::ok).flatten().collect();
    Ok(Some(known).filter(|known| !known.is_empty()))
}

/// The quickest of some readings.
async fn of_clock(connection: &mut MultiplexedConnection) -> Result<Option<Reading>> {
    let mut best: Option<Reading> = None;
    let mut question = Pipeline::new();
    question.cmd("TIME");
    for _ in 0..READINGS {
        let (before, started) = (SystemTime::now(), Instant::now());
        let answer = answers(connection, &question).await?.pop();
        let round_trip = started.elapsed();
        let said = answer.and_then(|value| <(i64, i64)>::from_redis_value(value).ok());
        let Some((seconds, micros)) = said else { return Ok(None) };
        let ours = before.duration_since(UNIX_EPOCH).unwrap_or_default() + round_trip / 2;
        let ours = i64::try_from(ours.as_micros()).unwrap_or(i64::MAX);
        let ahead = seconds.saturating_mul(1_000_000).saturating_add(micros).saturating_sub(ours);
        if best.is_none_or(|best| round_trip < best.round_trip) {
            best = Some(Reading { ahead, round_trip });
        }
    }
    Ok(best)
}

/// What locks need and this user may not do. Every command here does nothing: there is no such script and no such key.
async fn of_rights(connection: &mut MultiplexedConnection, prefix: &str) -> Result<Vec<&'static str>> {
    let nothing = format!("{prefix}{}", OwnerId::random().to_hex());
    let beside = format!("{{{nothing}}}:fence");
    let mut tries = Pipeline::new();
    tries.cmd("EVALSHA").arg("0".repeat(40)).arg(1).arg(&nothing);
    tries.cmd("SET").arg(&nothing).arg("").arg("XX").arg("PX").arg(1);
    tries.cmd("ZADD").arg(&beside).arg("XX").arg(1).arg("f");
    tries.cmd("EXPIRE").arg(&beside).arg(1);
    tries.cmd("PUBLISH").arg(format!("tg:{}", OwnerId::random().to_hex())).arg("");
    tries.cmd("CLIENT").arg("KILL").arg("ID").arg(0);
    tries.cmd("TIME");
    let names = ["EVALSHA", "SET", "ZADD", "EXPIRE", "PUBLISH", "CLIENT KILL", "TIME"];
    let answers = answers(connection, &tries).await?;
    let refused = names.into_iter().zip(answers).filter(|(_, answer)| is_refused(answer));
    Ok(refused.map(|(name, _)| name).collect())
}

/// Whether this user may not do it, or nobody may because it was renamed.
fn is_refused(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    error.code() == "NOPERM" || error.details().is_some_and(|said| said.starts_with("unknown command"))
}

async fn of_member(connection: &mut MultiplexedConnection, run: &str) -> Result<(Option<String>, bool)> {
    let mut questions = Pipeline::new();
    questions.cmd("GET").arg(RECORD).cmd("EXISTS").arg(member_of(run));
    let mut answers = answers(connection, &questions).await?.into_iter();
    let member = answers.next().and_then(|value| Option::<String>::from_redis_value(value).ok().flatten());
    let votes = answers.next().and_then(|value| bool::from_redis_value(value).ok());
    Ok((member, votes.unwrap_or(false)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server that is as it should be, with these lines of `INFO` and these settings instead.
    pub(crate) fn healthy(info: &[(&str, &str)], settings: &[(&str, &str)]) -> Seen {
        let owned = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let mut all = owned(&[
            ("redis_version", "8.8.1"),
            ("run_id", "a1"),
            ("role", "master"),
            ("connected_slaves", "0"),
            ("aof_enabled", "1"),
            ("aof_last_write_status", "ok"),
            ("rdb_last_bgsave_status", "ok"),
            ("maxmemory", "0"),
            ("maxmemory_policy", "noeviction"),
            ("used_memory", "1000000"),
            ("evicted_keys", "0"),
        ]);
        all.extend(owned(info));
        let mut set = owned(&[
            ("appendfsync", "always"),
            ("save", ""),
            ("bind", "127.0.0.1"),
            ("protected-mode", "yes"),
            ("requirepass", ""),
            ("min-replicas-to-write", "0"),
            ("lua-time-limit", "5000"),
            ("timeout", "0"),
            ("no-appendfsync-on-rewrite", "no"),
        ]);
        set.extend(owned(settings));
        Seen {
            name: "a:6379".to_owned(),
            host: "a".to_owned(),
            info: Some(all),
            settings: Some(set),
            clock: Some(Reading { ahead: 0, round_trip: std::time::Duration::from_micros(100) }),
            denied: Vec::new(),
            open: true,
            encrypted: false,
            member: None,
            votes: false,
        }
    }

    #[test]
    fn info_is_read_as_names_and_values() {
        let read = fields("# Server\r\nredis_version:7.0.15\r\nexecutable:/a:b\r\n\r\n");
        assert_eq!(read["redis_version"], "7.0.15");
        assert_eq!(read["executable"], "/a:b");
    }
}
