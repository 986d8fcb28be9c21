//! Who holds a lock and who waits for it, as the server knows it and as was written down.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mysql_async::Row;
use tollgate_core::{Details, Holder, LockName, LockState, Mode, Result, Token, Waiter};

use super::desk::Desk;
use super::key::key;

/// How long it may take until somebody who has come is written down, and how often that is looked at.
const UNTIL_NOTED: (Duration, Duration) = (Duration::from_millis(600), Duration::from_millis(20));

/// How long that takes if nothing is in the way.
const UNTIL_LISTED: Duration = Duration::from_millis(250);

/// Somebody who holds a lock or waits for it.
struct Seen {
    connection: u32,
    name: String,
    token: Option<Token>,
    details: Details,
}

impl Seen {
    fn of(row: &Row) -> Option<Self> {
        let name = row.get::<Vec<u8>, _>(1)?;
        let token = row.get::<Option<u64>, _>(2).flatten();
        let details = row.get::<Vec<u8>, _>(3)?;
        Some(Self {
            connection: row.get(0)?,
            name: String::from_utf8(name).ok()?,
            token: token.and_then(|token| Token::new(token).ok()),
            details: serde_json::from_slice(&details).unwrap_or_default(),
        })
    }

    fn holder(&self) -> Holder {
        Holder { mode: Mode::Exclusive, token: self.token, expires_in: None, details: self.details.clone() }
    }

    fn waiter(&self) -> Waiter {
        Waiter { mode: Mode::Exclusive, details: self.details.clone() }
    }
}

async fn seen(desk: &Desk) -> Result<Vec<Seen>> {
    Ok(desk.ask(desk.texts.seen.clone()).await?.iter().filter_map(Seen::of).collect())
}

/// The connection that has a lock.
pub(super) async fn user(desk: &Desk, name: &LockName) -> Result<Option<u32>> {
    let question = format!("select is_used_lock(x'{}')", hex(key(name).as_bytes()));
    Ok(desk.ask(question).await?.first().and_then(|row| row.get::<Option<u32>, _>(0)).flatten())
}

/// One lock. Who has just come is waited for until it is written down; who never is, is somebody else's.
pub(super) async fn inspect(desk: &Desk, name: &LockName) -> Result<Option<LockState>> {
    let (patience, pause) = UNTIL_NOTED;
    let started = Instant::now();
    loop {
        let user = user(desk, name).await?;
        let mut seen = seen(desk).await?;
        seen.retain(|one| one.name == name.as_str());
        // Connections are used again: their numbers say nothing of who came first.
        seen.sort_by_key(|one| one.details.since_ms);
        let noted = seen.iter().find(|one| Some(one.connection) == user && one.token.is_some());
        if user.is_some() && noted.is_none() && started.elapsed() < patience {
            tokio::time::sleep(pause).await;
            continue;
        }
        let stranger =
            Holder { mode: Mode::Exclusive, token: None, expires_in: None, details: Details::default() };
        let holders: Vec<Holder> = user.map(|_| noted.map_or(stranger, Seen::holder)).into_iter().collect();
        let waiters: Vec<Waiter> = seen.iter().filter(|one| one.token.is_none()).map(Seen::waiter).collect();
        let is_used = !holders.is_empty() || !waiters.is_empty();
        return Ok(is_used.then(|| LockState { name: name.clone(), holders, waiters }));
    }
}

/// All locks whose names start with `prefix`, as far as Tollgate took them. The server does not tell which locks there are: so
/// this waits until who has just come is written down.
pub(super) async fn list(desk: &Desk, prefix: &str) -> Result<Vec<LockState>> {
    tokio::time::sleep(UNTIL_LISTED).await;
    list_written(desk, prefix).await
}

/// All locks whose names start with `prefix` that are written down by now.
pub(super) async fn list_written(desk: &Desk, prefix: &str) -> Result<Vec<LockState>> {
    let seen = seen(desk).await?;
    let mut by_name: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for one in seen.iter().filter(|one| one.name.starts_with(prefix)) {
        by_name.entry(&one.name).or_default().push(one);
    }
    let states = by_name.into_iter().filter_map(|(name, seen)| {
        let holders = seen.iter().filter(|one| one.token.is_some()).map(|one| one.holder()).collect();
        let waiters = seen.iter().filter(|one| one.token.is_none()).map(|one| one.waiter()).collect();
        Some(LockState { name: LockName::new(name).ok()?, holders, waiters })
    });
    Ok(states.collect())
}

/// The connection of the holder of `name` with `token`.
pub(super) async fn holder(desk: &Desk, name: &LockName, token: Token) -> Result<Option<u32>> {
    let (patience, pause) = UNTIL_NOTED;
    let started = Instant::now();
    loop {
        let user = user(desk, name).await?;
        let seen = seen(desk).await?;
        let noted = seen.iter().find(|one| Some(one.connection) == user && one.name == name.as_str());
        match (user, noted.and_then(|one| one.token)) {
            (Some(connection), Some(noted)) if noted == token => return Ok(Some(connection)),
            (Some(_), Some(_)) => return Ok(None),
            (Some(_), None) if started.elapsed() < patience => tokio::time::sleep(pause).await,
            _ => return Ok(None),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
