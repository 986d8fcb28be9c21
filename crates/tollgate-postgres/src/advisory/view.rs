//! Who holds a lock and who waits for it, as PostgreSQL knows it and as was written down.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tollgate_core::{Details, Holder, LockName, LockState, Mode, Result, Token, Waiter};

use super::session::Place;
use super::sessions::Sessions;

/// How long it may take until somebody who has come is written down, and how often that is looked at.
const UNTIL_NOTED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(10));

/// Somebody who holds a lock or waits for it.
struct Seen {
    place: Place,
    /// Whether Tollgate took it.
    ours: bool,
    granted: bool,
    mode: Mode,
    /// What was written down, if it was.
    name: Option<String>,
    token: Option<Token>,
    details: Details,
}

impl Seen {
    fn of(row: &Row) -> Self {
        let token: Option<i64> = row.get("token");
        let details: Option<&str> = row.get("details");
        Self {
            place: Place { process: row.get("process"), label: row.get::<_, &str>("session").into() },
            ours: row.get("ours"),
            granted: row.get("granted"),
            mode: if row.get("shared") { Mode::Shared } else { Mode::Exclusive },
            name: row.get("name"),
            token: token.and_then(|token| Token::new(token.unsigned_abs()).ok()),
            details: details.and_then(|details| serde_json::from_str(details).ok()).unwrap_or_default(),
        }
    }

    /// Whether what will be written down of it is not yet.
    fn is_unknown(&self) -> bool {
        self.ours && (self.name.is_none() || self.granted && self.token.is_none())
    }

    fn holder(&self) -> Holder {
        Holder { mode: self.mode, token: self.token, expires_in: None, details: self.details.clone() }
    }

    fn waiter(&self) -> Waiter {
        Waiter { mode: self.mode, details: self.details.clone() }
    }
}

/// Everybody at one lock, or at all locks of Tollgate's. Those who have just come are waited for until they are written down.
async fn seen(sessions: &Sessions, name: Option<&LockName>) -> Result<Vec<Seen>> {
    let name = name.map(LockName::as_str);
    let (patience, pause) = UNTIL_NOTED;
    let started = Instant::now();
    loop {
        let rows = sessions.ask(&sessions.texts.seen, &[(&name, Type::TEXT)]).await?;
        let seen: Vec<Seen> = rows.iter().map(Seen::of).collect();
        if started.elapsed() > patience || !seen.iter().any(Seen::is_unknown) {
            return Ok(seen);
        }
        tokio::time::sleep(pause).await;
    }
}

fn state<'a>(name: LockName, seen: impl Iterator<Item = &'a Seen> + Clone) -> Option<LockState> {
    let holders: Vec<_> = seen.clone().filter(|seen| seen.granted).map(Seen::holder).collect();
    let waiters: Vec<_> = seen.filter(|seen| !seen.granted).map(Seen::waiter).collect();
    (!holders.is_empty() || !waiters.is_empty()).then_some(LockState { name, holders, waiters })
}

/// One lock.
pub(super) async fn inspect(sessions: &Sessions, name: &LockName) -> Result<Option<LockState>> {
    let mut seen = seen(sessions, Some(name)).await?;
    for other in &mut seen {
        // To this lock it is a stranger.
        if other.name.as_deref().is_some_and(|noted| noted != name.as_str()) {
            other.token = None;
            other.details = Details::default();
        }
    }
    Ok(state(name.clone(), seen.iter()))
}

/// All locks whose names start with `prefix`, as far as Tollgate took them.
pub(super) async fn list(sessions: &Sessions, prefix: &str) -> Result<Vec<LockState>> {
    let seen = seen(sessions, None).await?;
    let mut by_name: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for one in &seen {
        if let Some(name) = one.name.as_deref().filter(|name| name.starts_with(prefix)) {
            by_name.entry(name).or_default().push(one);
        }
    }
    let named =
        by_name.into_iter().filter_map(|(name, seen)| state(LockName::new(name).ok()?, seen.into_iter()));
    Ok(named.collect())
}

/// Where the holder of `name` with `token` is.
pub(super) async fn holder(sessions: &Sessions, name: &LockName, token: Token) -> Result<Option<Place>> {
    let seen = seen(sessions, Some(name)).await?;
    let is_it = |seen: &Seen| {
        seen.granted && seen.token == Some(token) && seen.name.as_deref() == Some(name.as_str())
    };
    Ok(seen.into_iter().find(is_it).map(|seen| seen.place))
}

/// The other name under which somebody holds what `name` is to PostgreSQL, if it is known already.
pub(super) async fn namesake(sessions: &Sessions, name: &LockName) -> Result<Option<String>> {
    let rows = sessions.ask(&sessions.texts.seen, &[(&name.as_str(), Type::TEXT)]).await?;
    let holders = rows.iter().map(Seen::of).filter(|seen| seen.granted);
    Ok(holders.filter_map(|seen| seen.name).find(|other| other != name.as_str()))
}
