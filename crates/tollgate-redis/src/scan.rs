//! Looking for locks without blocking Redis: a walk over its keys, a step at a time.

use std::collections::{HashSet, VecDeque};

use redis::{Cmd, FromRedisValue};
use tollgate_core::{Error, ErrorKind, LockName, Result};

use crate::backend::RedisBackend;
use crate::error::unexpected;
use crate::keys::{encode, name_of, starting_with};

/// What is to be said of a key that is of another type than locks are.
pub(crate) fn no_lock(key: &str, what: &str) -> String {
    format!("the key {key:?} is a {what}, and not a lock; remove it, or choose another prefix with ?prefix=")
}

/// A walk over the keys of locks, which blocks Redis no longer than a step takes.
pub(crate) struct Scan {
    /// What is still to be searched for: locks that are held, and locks that are only waited for.
    patterns: VecDeque<String>,
    prefix: String,
    /// Which server is being asked, and where it is.
    server: usize,
    cursor: u64,
    found: VecDeque<LockName>,
    seen: HashSet<LockName>,
}

impl Scan {
    pub(crate) fn new(keys: &str, names: &str) -> Self {
        let start = starting_with(&format!("{keys}{}", encode(names)));
        let patterns = VecDeque::from([start.clone(), format!("{{{start}}}:queue")]);
        Self {
            patterns,
            prefix: names.to_owned(),
            server: 0,
            cursor: 0,
            found: VecDeque::new(),
            seen: HashSet::new(),
        }
    }
}

impl RedisBackend {
    /// Says what there is at the key of a lock that cannot be read.
    pub(crate) async fn in_our_place(&self, key: &str, error: Error) -> Error {
        let mut question = Cmd::new();
        question.arg("TYPE").arg(key);
        let answer = async { self.site.link(key).await.ok()?.command(&question).await.ok() };
        let what = answer.await.and_then(|answer| String::from_redis_value_ref(&answer).ok());
        let message = match what.as_deref() {
            Some("string" | "none") | None => {
                format!(
                    "a key beside {key:?} does not belong to tollgate; remove it, or choose another prefix \
                     with ?prefix="
                )
            }
            Some(what) => no_lock(key, what),
        };
        Error::new(ErrorKind::Config, message).caused_by(error)
    }

    pub(crate) async fn next_name(&self, scan: &mut Scan) -> Result<Option<LockName>> {
        loop {
            if let Some(name) = scan.found.pop_front() {
                return Ok(Some(name));
            }
            let Some(pattern) = scan.patterns.front() else { return Ok(None) };
            let mut step = Cmd::new();
            step.arg("SCAN").arg(scan.cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(512);
            let answer = self.site.command(scan.server, &step).await?;
            let (cursor, keys): (u64, Vec<Vec<u8>>) = match &answer {
                Some(answer) => {
                    FromRedisValue::from_redis_value_ref(answer).map_err(|_| unexpected(answer))?
                }
                None => (0, Vec::new()),
            };
            scan.cursor = cursor;
            if cursor == 0 {
                scan.server += 1;
                if scan.server >= self.site.count().await? {
                    scan.server = 0;
                    scan.patterns.pop_front();
                }
            }
            // What is no text is no lock's.
            let keys = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
            for name in keys.filter_map(|key| name_of(&self.prefix, key)) {
                if name.as_str().starts_with(&scan.prefix) && scan.seen.insert(name.clone()) {
                    scan.found.push_back(name);
                }
            }
        }
    }
}
