//! Who votes, and how a node becomes a voter.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use tollgate_core::{ErrorKind, OwnerId};

use crate::backend::millis;
use crate::redlock::lanes::Lanes;
use crate::redlock::link::Link;
use crate::redlock::recovery::wait;
use crate::redlock::script::{self, EMPTY, MUTEX, RECORD};
use crate::redlock::trouble::Trouble;

/// How far above the nodes' clocks tokens start after a recovery, in µs: further than a hint can lead (60 s), and than
/// clocks usually differ. Not above the tokens, or recoveries in a row would run ahead of every clock, and then a loss of
/// everything would go back.
const MARGIN: u64 = 120_000_000;
/// How long a node's mutex key lives if whoever has it is gone.
const MUTEX_TTL: Duration = Duration::from_secs(30);
/// How many counters are read at once.
const BATCH: usize = 1000;

/// What a node remembers: the run it voted in last, above what its tokens are, and how long ttls may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) run_id: String,
    pub(crate) g: u64,
    pub(crate) max_ttl: Duration,
}

impl Member {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let run_id = words.next()?.to_owned();
        let g = words.next()?.parse().ok()?;
        let max_ttl = Duration::from_millis(words.next()?.parse().ok()?);
        Some(Self { run_id, g, max_ttl })
    }
}

/// Where a node stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It votes.
    Votes,
    /// It does not. `new` if it has never been a voter, or has forgotten it.
    Waiting { left: Duration, new: bool },
}

impl Standing {
    pub(crate) fn votes(&self) -> bool {
        matches!(self, Self::Votes)
    }
}

/// Where every node stands, or why it cannot be asked.
pub(crate) async fn survey(lanes: &Arc<Lanes>) -> Vec<Result<Standing, Trouble>> {
    let asked = (0..lanes.nodes.len()).map(|node| async move {
        let link = lanes.link_to(node).await?;
        standing(&link, lanes.max_ttl()).await
    });
    futures_util::future::join_all(asked).await
}

async fn standing(link: &Link, max_ttl: Duration) -> Result<Standing, Trouble> {
    if link.answers().await? {
        return Ok(Standing::Votes);
    }
    let notice = script::NOTICE.of_any(&[RECORD, EMPTY]).arg(&link.run_id);
    let age: String = link.query(notice.to(link)).await?;
    // It may have forgotten everything without being restarted: then nobody knows when, only since when it is known.
    let known = age.parse().map_or(Duration::MAX, Duration::from_millis);
    let left = wait(max_ttl).saturating_sub(link.uptime().min(known));
    Ok(Standing::Waiting { left, new: known < Duration::MAX })
}

async fn member(link: &Link) -> Result<Option<Member>, Trouble> {
    let mut get = Cmd::new();
    get.arg("GET").arg(RECORD);
    let text: Option<String> = link.query(get).await?;
    Ok(text.and_then(|text| Member::parse(&text)))
}

/// Makes a node a voter again with the help of a majority of others that vote.
pub(crate) async fn readmit(lanes: &Arc<Lanes>, node: usize) -> Result<(), Trouble> {
    let link = lanes.link_to(node).await?;
    let mutex = Mutex::take(std::slice::from_ref(&link)).await?;
    let done = readmit_with(lanes, node, &link, &mutex).await;
    mutex.give_back().await;
    done
}

async fn readmit_with(lanes: &Arc<Lanes>, node: usize, link: &Link, mutex: &Mutex) -> Result<(), Trouble> {
    match standing(link, lanes.max_ttl()).await? {
        Standing::Waiting { left, .. } if left.is_zero() => {}
        _ => return Ok(()),
    }
    let mut voters = Vec::new();
    for other in (0..lanes.nodes.len()).filter(|other| *other != node) {
        if let Ok(link) = lanes.link_to(other).await
            && link.answers().await.unwrap_or(false)
        {
            voters.push(link);
        }
    }
    if voters.len() < lanes.majority() {
        return Err(Trouble::new(ErrorKind::Unavailable, "too few other nodes vote"));
    }
    let mut highest = highest_known(link).await?;
    for voter in &voters {
        highest = highest.max(highest_known(voter).await?);
    }
    for voter in &voters {
        let raise =
            script::RAISE.of_voter(&[RECORD]).arg(highest).arg(&voter.run_id).arg(millis(lanes.max_ttl()));
        // One that does not vote any more may have forgotten what it said: start over.
        if voter.query::<String>(raise.to(voter)).await? != "1" {
            return Err(Trouble::new(ErrorKind::Unavailable, "a node was restarted in the meantime"));
        }
    }
    mutex.admit(link, highest, lanes.max_ttl()).await
}

/// Makes voters of all nodes, which must all be there. `patiently` only when each has waited.
pub(crate) async fn admit_all(lanes: &Arc<Lanes>, patiently: bool) -> Result<(), Trouble> {
    let mut nodes: Vec<usize> = (0..lanes.nodes.len()).collect();
    // Everybody takes them in this order, whatever order their URL has.
    nodes.sort_by_key(|node| &lanes.nodes[*node].label);
    let mut links = Vec::new();
    for node in nodes {
        links.push(lanes.link_to(node).await?);
    }
    let mutex = Mutex::take(&links).await?;
    let done = admit_all_with(lanes, &links, &mutex, patiently).await;
    mutex.give_back().await;
    done
}

async fn admit_all_with(
    lanes: &Lanes,
    links: &[Arc<Link>],
    mutex: &Mutex,
    patiently: bool,
) -> Result<(), Trouble> {
    let mut highest = 0;
    for link in links {
        match standing(link, lanes.max_ttl()).await? {
            Standing::Waiting { left, .. } if patiently && !left.is_zero() => {
                return Err(Trouble::new(ErrorKind::Unavailable, "a node has not waited long enough"));
            }
            Standing::Votes | Standing::Waiting { .. } => {}
        }
    }
    for link in links {
        highest = highest.max(highest_known(link).await?);
    }
    for link in links {
        mutex.admit(link, highest, lanes.max_ttl()).await?;
    }
    Ok(())
}

/// The highest token that a node knows of, or a margin beyond its time: what it gave and forgot is not above that.
async fn highest_known(link: &Link) -> Result<u64, Trouble> {
    let mut time = Cmd::new();
    time.arg("TIME");
    let (seconds, micros): (u64, u64) = link.query(time).await?;
    let g = member(link).await?.map_or(0, |member| member.g);
    let mut highest = g.max(seconds * 1_000_000 + micros + MARGIN);
    let mut cursor = 0_u64;
    loop {
        let mut scan = Cmd::new();
        scan.arg("SCAN").arg(cursor).arg("MATCH").arg("{*}:fence").arg("COUNT").arg(BATCH);
        let (next, keys): (u64, Vec<Vec<u8>>) = link.query(scan).await?;
        if !keys.is_empty() {
            let mut read = Vec::with_capacity(keys.len());
            for key in &keys {
                let mut score = Cmd::new();
                score.arg("ZSCORE").arg(key).arg("f");
                read.push(score);
            }
            // Where something else has such a name, it is no counter.
            let scores = link.ask_all(read).await?;
            let scores = scores.as_sequence().unwrap_or_default().iter();
            highest = scores
                .filter_map(|score| u64::from_redis_value_ref(&whole(score)?).ok())
                .fold(highest, u64::max);
        }
        if next == 0 {
            return Ok(highest);
        }
        cursor = next;
    }
}

/// A score as a number without a fraction, which tokens are.
fn whole(score: &Value) -> Option<Value> {
    let score = f64::from_redis_value_ref(score).ok()?;
    Some(Value::BulkString(format!("{score:.0}").into_bytes()))
}

/// The mutex keys of some nodes. They keep two clients from doing the same work; nothing breaks if they do.
struct Mutex {
    who: String,
    taken: Vec<Arc<Link>>,
}

impl Mutex {
    async fn take(links: &[Arc<Link>]) -> Result<Self, Trouble> {
        let mut mutex = Self { who: OwnerId::random().to_hex(), taken: Vec::new() };
        for link in links {
            let mut take = Cmd::new();
            take.arg("SET").arg(MUTEX).arg(&mutex.who).arg("NX").arg("PX").arg(millis(MUTEX_TTL));
            match link.query::<Option<String>>(take).await {
                Ok(Some(_)) => mutex.taken.push(link.clone()),
                other => {
                    mutex.give_back().await;
                    other?;
                    return Err(Trouble::new(
                        ErrorKind::Unavailable,
                        "another client is making the node a voter",
                    ));
                }
            }
        }
        Ok(mutex)
    }

    /// Makes the node at `link` a voter of its present run.
    async fn admit(&self, link: &Link, g: u64, max_ttl: Duration) -> Result<(), Trouble> {
        let admit = script::ADMIT.of_voter(&[RECORD, MUTEX]).arg(&self.who).arg(&link.run_id);
        let admit = admit.arg(g).arg(millis(max_ttl));
        if link.query::<String>(admit.to(link)).await? == "1" {
            return Ok(());
        }
        Err(Trouble::new(
            ErrorKind::Unavailable,
            "making the node a voter took too long, and another client may have begun",
        ))
    }

    async fn give_back(self) {
        for link in &self.taken {
            let unlock = script::UNLOCK.of_any(&[MUTEX]).arg(&self.who);
            // It ends by itself.
            let _ = link.query::<String>(unlock.to(link)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_as_scripts_write_it() {
        let member = Member::parse("0a1b 1700000000000000 300000").unwrap();
        assert_eq!((member.run_id.as_str(), member.g), ("0a1b", 1_700_000_000_000_000));
        assert_eq!(member.max_ttl, Duration::from_secs(300));
        assert_eq!(Member::parse("0a1b"), None);
    }
}
