//! Looking at locks, and breaking them: what a majority shows.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::stream;
use redis::{Cmd, Value};
use tollgate_core::{
    BoxStream, Details, Error, ErrorKind, Holder, LockName, LockState, Mode, Result, Revocation, RevokeMode,
    Token,
};

use crate::keys::{encode, name_of, starting_with};
use crate::redlock::backend::RedlockBackend;
use crate::redlock::lanes::Links;
use crate::redlock::quorum::{Count, Outcome, majority};
use crate::redlock::round::{Reply, Round};
use crate::redlock::script::{self, Question};
use crate::scan::no_lock;

/// What one node shows of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    /// The owner id of one of ours, or all of another client's value.
    owner: Vec<u8>,
    token: Option<Token>,
    details: Option<Details>,
    left: Option<Duration>,
}

impl Shown {
    /// `None` if nobody has the lock there.
    fn parse(value: &[u8], pttl: &str) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        let left = pttl.parse::<u64>().ok().map(Duration::from_millis);
        let ours = || {
            let words = std::str::from_utf8(value).ok()?.splitn(4, ' ').collect::<Vec<_>>();
            let [owner, token, _sent, details] = words[..] else { return None };
            // Taken without a script.
            let token = token.strip_prefix('~').unwrap_or(token);
            let token = Token::new(token.parse().ok()?).ok()?;
            let details = serde_json::from_str(details).unwrap_or_default();
            (owner.len() == 32).then(|| (owner.as_bytes().to_vec(), token, details))
        };
        Some(match ours() {
            Some((owner, token, details)) => Self { owner, token: Some(token), details: Some(details), left },
            None => Self { owner: value.to_vec(), token: None, details: None, left },
        })
    }
}

/// Whether a majority shows one owner at one token: then no other answer changes what is seen.
fn is_decided(shown: &[Option<Shown>]) -> bool {
    let all = || shown.iter().flatten();
    let alike =
        |one: &Shown| all().filter(|other| (&other.owner, other.token) == (&one.owner, one.token)).count();
    all().any(|one| alike(one) >= majority(shown.len()))
}

/// The holder whom a majority shows. If it has different tokens there, the one of a majority, else the highest.
fn holder(shown: &[Option<Shown>]) -> Option<(Vec<u8>, Holder)> {
    let enough = majority(shown.len());
    let all: Vec<&Shown> = shown.iter().flatten().collect();
    all.iter().find_map(|one| {
        let same: Vec<&&Shown> = all.iter().filter(|other| other.owner == one.owner).collect();
        if same.len() < enough {
            return None;
        }
        let at = |token: Option<Token>| same.iter().filter(|shown| shown.token == token).count();
        let decided = same.iter().map(|shown| shown.token).find(|token| at(*token) >= enough);
        let token = decided.unwrap_or_else(|| same.iter().filter_map(|shown| shown.token).max());
        // It is theirs as long as a majority shows it.
        let mut left: Vec<Duration> = same.iter().map(|shown| shown.left.unwrap_or(Duration::MAX)).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        let expires_in = left.get(enough - 1).copied().filter(|left| *left < Duration::MAX);
        // A node may have missed what the holder said last.
        let said = same.iter().filter_map(|shown| shown.details.as_ref());
        let details = said.max_by_key(|details| details.revision).cloned().unwrap_or_default();
        Some((one.owner.clone(), Holder { mode: Mode::Exclusive, token, expires_in, details }))
    })
}

impl RedlockBackend {
    /// The holder of a lock, with the owner id: never to be shown.
    async fn holder_of(&self, name: &LockName) -> Result<Option<(Vec<u8>, Holder)>> {
        let links = self.lanes.links().await?;
        let [lock, _] = self.keys(name);
        let request = script::LOOK.of_voter(&[&lock]);
        let mut shown = vec![None; links.len()];
        let (mut free, mut answered) = (0, 0);
        // What else is in the lock's place, and where.
        let mut strange: Option<(String, Vec<usize>)> = None;
        let mut round = Round::new(&self.lanes, &links, self.clock.now(), &request, |_| true);
        let found = round
            .until(|node, reply| {
                let Reply::Said(value) = reply else { return None };
                match redis::from_redis_value::<Vec<Vec<u8>>>(value).ok()?.as_slice() {
                    [value, pttl] => {
                        answered += 1;
                        shown[node] = Shown::parse(value, std::str::from_utf8(pttl).unwrap_or_default());
                        free += usize::from(shown[node].is_none());
                    }
                    [_, what, _] => {
                        let what = String::from_utf8_lossy(what).into_owned();
                        strange.get_or_insert_with(|| (what, Vec::new())).1.push(node);
                    }
                    _ => self.meets_recovering(node, &links),
                }
                if free >= majority(links.len()) {
                    Some(None)
                } else {
                    is_decided(&shown).then(|| holder(&shown))
                }
            })
            .await;
        drop(round);
        match (found.or_else(|| holder(&shown).map(Some)), strange) {
            (Some(found), _) => Ok(found),
            (None, Some((what, nodes))) => {
                let nodes: Vec<&str> =
                    nodes.iter().map(|node| self.lanes.nodes[*node].label.as_str()).collect();
                let message = format!("{} ({})", no_lock(&lock, &what), nodes.join(", "));
                Err(Error::new(ErrorKind::Config, message))
            }
            // Nobody has a majority.
            (None, None) if answered >= majority(links.len()) => Ok(None),
            (None, None) => Err(self.lanes.without(&self.silent_ones(&links), false)),
        }
    }

    pub(super) async fn seen(&self, name: LockName) -> Result<Option<LockState>> {
        let holder = self.holder_of(&name).await?;
        Ok(holder.map(|(_, holder)| LockState { name, holders: vec![holder], waiters: Vec::new() }))
    }

    /// Revokes the grant of whoever a majority shows with `token`: marks it, so that it is not renewed and its holder is told
    /// of it when it renews, and by force takes the lock away, too.
    pub(super) async fn break_lock(
        &self,
        name: &LockName,
        token: Token,
        mode: RevokeMode,
    ) -> Result<Revocation> {
        let Some((owner, holder)) = self.holder_of(name).await? else { return Ok(Revocation::NotHeld) };
        let (Ok(owner), true) = (String::from_utf8(owner), holder.token == Some(token)) else {
            return Ok(Revocation::NotHeld);
        };
        let links = self.lanes.links().await?;
        let [lock, _] = self.keys(name);
        let mark = script::REVOKE.of_voter(&[&lock, &self.revoked_key(name)]).arg(&owner);
        let marked = self.counted(&links, &mark).await;
        if mode == RevokeMode::Ask {
            return match marked.outcome() {
                Some(Outcome::Done) => Ok(Revocation::Pending),
                Some(Outcome::Gone) => Ok(Revocation::NotHeld),
                _ => Err(self.lanes.without(&self.silent_ones(&links), true)),
            };
        }
        // The mark only tells the holder why: the lock is taken away where it could not be left, too.
        let released = self.counted(&links, &self.release_request(name, &owner)).await;
        // Where a majority has answered, it has the lock no more.
        if released.is_answered() {
            return Ok(Revocation::Revoked);
        }
        Err(self.lanes.without(&self.silent_ones(&links), true))
    }

    /// Asks all nodes, counts until the outcome is known, and lets the rest be asked in the background.
    async fn counted(&self, links: &Links, request: &Question) -> Count {
        let mut count = Count::new(links.len());
        let mut round = Round::new(&self.lanes, links, self.clock.now(), request, |_| true);
        let _ = round
            .until(|node, reply| {
                count.add(self.said(node, links, &reply));
                count.outcome()
            })
            .await;
        round.see_to_its_end();
        count
    }

    /// Every lock that a majority shows.
    pub(super) fn all_seen(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let start = Scan::new(&self.prefix, prefix, self.lanes.nodes.len());
        Box::pin(stream::unfold(Some(start), move |scan| async move {
            let mut scan = scan?;
            loop {
                match self.next_name(&mut scan).await {
                    Ok(None) => return None,
                    // Too few nodes can be asked any further.
                    Err(error) => return Some((Err(error), None)),
                    Ok(Some(name)) => match self.seen(name.clone()).await {
                        Ok(None) => {}
                        Ok(Some(state)) => return Some((Ok(state), Some(scan))),
                        Err(error) => {
                            // Of what is wrong with nodes one error is enough.
                            let goes_on = !error.is_retryable();
                            return Some((Err(error.on(&name)), goes_on.then_some(scan)));
                        }
                    },
                }
            }
        }))
    }

    async fn next_name(&self, scan: &mut Scan) -> Result<Option<LockName>> {
        loop {
            if let Some(name) = scan.found.pop_front() {
                return Ok(Some(name));
            }
            let Some(node) = scan.nodes.front().copied() else {
                // What a majority shows is on one node of any majority.
                let missed: Vec<usize> = scan.missed.clone();
                let read = self.lanes.nodes.len() - missed.len();
                return if read >= self.lanes.majority() {
                    Ok(None)
                } else {
                    Err(self.lanes.without(&missed, false))
                };
            };
            let mut step = Cmd::new();
            step.arg("SCAN").arg(scan.cursor).arg("MATCH").arg(&scan.pattern).arg("COUNT").arg(512);
            let keys = match self.lanes.links().await?[node].as_ref() {
                Some(link) => link.query::<(u64, Vec<Value>)>(step).await.ok(),
                None => None,
            };
            let Some((cursor, keys)) = keys else {
                scan.missed.push(node);
                scan.next_node();
                continue;
            };
            scan.cursor = cursor;
            if cursor == 0 {
                scan.next_node();
            }
            for key in keys.iter().filter_map(crate::redlock::round::text) {
                if let Some(name) =
                    name_of(&self.prefix, key).filter(|name| name.as_str().starts_with(&scan.prefix))
                    && scan.seen.insert(name.clone())
                {
                    scan.found.push_back(name);
                }
            }
        }
    }
}

/// A walk over the keys of locks on one node after the other, which blocks none for longer than a step takes.
struct Scan {
    nodes: VecDeque<usize>,
    missed: Vec<usize>,
    pattern: String,
    prefix: String,
    cursor: u64,
    found: VecDeque<LockName>,
    seen: HashSet<LockName>,
}

impl Scan {
    fn new(keys: &str, names: &str, nodes: usize) -> Self {
        let pattern = starting_with(&format!("{keys}{}", encode(names)));
        let (found, seen) = (VecDeque::new(), HashSet::new());
        let (nodes, prefix) = ((0..nodes).collect(), names.to_owned());
        Self { nodes, missed: Vec::new(), pattern, prefix, cursor: 0, found, seen }
    }

    fn next_node(&mut self) {
        self.cursor = 0;
        self.nodes.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(owner: char, token: u64, left: u64) -> Option<Shown> {
        let owner = owner.to_string().repeat(32);
        Shown::parse(format!("{owner} {token} 5 {{}}").as_bytes(), &left.to_string())
    }

    #[test]
    fn a_holder_is_whom_a_majority_shows() {
        let (_, seen) = holder(&[shown('a', 7, 30), shown('a', 7, 10), shown('b', 8, 90)]).unwrap();
        assert_eq!(seen.token.map(Token::get), Some(7));
        assert_eq!(seen.expires_in, Some(Duration::from_millis(10)));
        assert!(holder(&[shown('a', 7, 30), shown('b', 8, 10), None]).is_none());
    }

    #[test]
    fn a_node_that_missed_what_the_holder_said_last_does_not_count() {
        let said = |details: &str| Shown::parse(format!("{} 7 5 {details}", "a".repeat(32)).as_bytes(), "30");
        let (old, new) = (said("{}"), said(r#"{"meta":{"value":"ready"},"revision":1}"#));
        for shown in [[old.clone(), new.clone(), None], [new, old, None]] {
            assert_eq!(holder(&shown).unwrap().1.details.meta["value"], "ready");
        }
    }

    #[test]
    fn the_token_is_the_one_at_which_a_majority_stands() {
        let (_, seen) = holder(&[shown('a', 9, 30), shown('a', 7, 30), shown('a', 7, 30)]).unwrap();
        assert_eq!(seen.token.map(Token::get), Some(7));
    }

    #[test]
    fn a_node_with_another_token_does_not_decide_before_the_others_have_spoken() {
        let (late, first, last) = (shown('a', 9, 30), shown('a', 7, 30), shown('a', 7, 30));
        assert!(!is_decided(&[late.clone(), first.clone(), None]));
        assert!(is_decided(&[late, first, last]));
        assert!(!is_decided(&[shown('a', 7, 30), shown('b', 7, 30), None]), "two owners");
    }

    #[test]
    fn another_clients_value_is_a_holder_without_a_token() {
        let foreign = || Shown::parse(b"\xff\xfe random", "50");
        let (_, seen) = holder(&[foreign(), foreign(), None]).unwrap();
        assert_eq!((seen.token, seen.details), (None, Details::default()));
    }
}
