//! A start: reads what the disk has, decides whether to wait, and makes that durable before anything is granted.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tollgate_core::{LockName, Moment, Token};
use tollgate_engine::{Engine, StoredGrant};

use super::batch::{Batch, Commit};
use super::engine::{Durable, Outstanding};
use super::header::{Durability, Header, Run};
use super::row;
use super::store::{Store, StoreError, Table};

/// How the engine is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What a crash may cost.
    pub durability: Durability,
    /// The largest token that may be in circulation, after a backup was restored: larger ones are given from now on, and
    /// nothing is granted for as long as grants of the lost time may last.
    pub token_floor: Option<Token>,
    /// The longest time to live with its lock-delay that callers allow: how long grants that no row tells of may last.
    pub longest: Duration,
}

/// An engine that was started.
pub struct Started<D> {
    /// The engine. Its time goes on from [`Durable::now`].
    pub engine: Durable<D>,
    /// How long nothing may be granted, from the start on: the caller then calls [`Durable::end_wait`].
    pub wait: Option<Duration>,
}

/// Everything the disk has.
struct Found<D> {
    header: Option<Header>,
    grants: Vec<StoredGrant<D>>,
    delays: Vec<(LockName, Duration)>,
    marks: HashMap<String, Token>,
}

/// Starts the engine on what `store` has, and commits the start.
pub fn start<D>(store: &mut impl Store, options: &Options) -> Result<Started<D>, StoreError>
where
    D: Clone + Serialize + DeserializeOwned,
{
    let found = read::<D>(store)?;
    let is_new = found.header.is_none();
    let before = found.header.unwrap_or_else(Header::new);
    let now = before.time();
    if let Some(grant) = found.grants.iter().find(|grant| grant.token > before.token_ceiling) {
        return Err(
            store.damaged(format!("a grant has the token {}, which was never set aside", grant.token))
        );
    }
    // A floor that the store has passed was raised by an earlier start.
    let raised = options.token_floor.filter(|floor| is_new || *floor > before.token_ceiling);
    let unknown = if before.run == Run::Complete { Duration::ZERO } else { before.longest() };
    let restored = raised.map_or(Duration::ZERO, |_| before.longest().max(options.longest));
    let wait = Some(unknown.max(restored)).filter(|wait| !wait.is_zero());

    let rows: Vec<_> = found.grants.iter().map(|grant| (grant.name.clone(), grant.owner)).collect();
    let delayed: Vec<LockName> = found.delays.iter().map(|(name, _)| name.clone()).collect();
    // What a backup tells of may have ended since; everything that was granted since is over after the wait.
    let (grants, delays) = if raised.is_some() { Default::default() } else { (found.grants, found.delays) };
    let longest = grants.iter().map(|grant| grant.ttl + grant.lock_delay).max().unwrap_or_default();
    let longest = delays.iter().map(|(_, delay)| *delay).max().unwrap_or_default().max(longest);
    let floor = if is_new { raised } else { Some(before.token_ceiling).max(raised) };
    let mut engine = floor.map_or_else(Engine::new, Engine::with_floor);
    engine.import(grants, delays, now).map_err(|misfit| {
        store.damaged(format!("two holders of {:?} exclude each other", misfit.name.as_str()))
    })?;
    if wait.is_some() {
        engine.set_granting(false, now);
    }

    let mut header = Header {
        // In `Grace` no grant has a row from now on; in `Sync` every one has, once those of the time before are over.
        run: match options.durability {
            Durability::Sync if wait.is_none() => Run::Complete,
            Durability::Sync | Durability::Grace => Run::Incomplete,
        },
        token_ceiling: floor.unwrap_or(Token::MIN),
        mark_floor: before.mark_floor.max(raised),
        ..before
    };
    // Until the wait is over another crash has to wait as long again.
    header.set_longest(longest.max(wait.unwrap_or_default()));
    let mut next = Batch::<D>::new(Commit(1));
    if options.durability == Durability::Grace || raised.is_some() {
        next.grants.extend(rows.into_iter().map(|key| (key, None)));
        next.delays.extend(delayed.iter().map(|name| (name.clone(), None)));
    }
    next.header = Some(header.clone());
    store.commit(&next.writes())?;

    let mut engine = Durable {
        engine,
        durability: options.durability,
        stored: header.clone(),
        header,
        next: Batch::new(Commit(2)),
        writing: None,
        delays: HashMap::new(),
        delay_ends: BTreeSet::new(),
        marks: found.marks,
        outstanding: Outstanding {
            this: longest.max(wait.unwrap_or_default()),
            previous: Duration::ZERO,
            until: Moment::ZERO,
        },
        is_waiting: wait.is_some(),
        may_grant: true,
    };
    if options.durability == Durability::Sync {
        for name in delayed {
            if let Some(end) = engine.engine.delayed_until(&name) {
                engine.delay_ends.insert((end, name.clone()));
                engine.delays.insert(name, end);
            }
        }
    }
    Ok(Started { engine, wait })
}

fn read<D: DeserializeOwned>(store: &mut impl Store) -> Result<Found<D>, StoreError> {
    let rows = store.load()?;
    let mut found = Found { header: None, grants: Vec::new(), delays: Vec::new(), marks: HashMap::new() };
    let has_rows = !rows.is_empty();
    for entry in rows {
        let (key, value) = (&entry.key, &entry.value);
        let read = match entry.table {
            Table::Header => {
                found.header = Some(read_header(store, value)?);
                Ok(())
            }
            Table::Grants => row::read_grant(key, value).map(|grant| found.grants.push(grant)),
            Table::Delays => row::read_delay(key, value).map(|delay| found.delays.push(delay)),
            Table::Marks => row::read_mark(key, value).map(|(resource, mark)| {
                found.marks.insert(resource, mark);
            }),
        };
        read.map_err(|detail| store.damaged(detail))?;
    }
    if has_rows && found.header.is_none() {
        return Err(store.damaged("the header is missing".to_owned()));
    }
    Ok(found)
}

fn read_header(store: &impl Store, value: &[u8]) -> Result<Header, StoreError> {
    /// What every version of the header has.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error: serde_json::Error| store.damaged(format!("the header cannot be read: {error}"));
    let Version { version } = serde_json::from_slice(value).map_err(damaged)?;
    if version > Header::VERSION {
        return Err(StoreError::Newer { file: store.file().to_owned(), version, known: Header::VERSION });
    }
    serde_json::from_slice(value).map_err(damaged)
}
