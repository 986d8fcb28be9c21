//! What is added to a lock's revisions, so that its tokens go on where another engine left off.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tollgate_core::{LockName, Result, Token};

use crate::backend::EtcdBackend;
use crate::error::unexpected;
use crate::links::Repeat;
use crate::wire::{KeyValue, RangeRequest, TxnRequest};
use crate::{keys::Span, ops};

/// How many are read at once. etcd takes 128 operations in a transaction.
const MOST: usize = 100;

/// The steps by which a lock's tokens were raised, oldest first.
///
/// A claim's token is its revision and what was added when it came. So later claims have larger tokens, and those who
/// look find the same number as the claim itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Floor(Vec<Step>);

/// From the revision after `since` on, `added` is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    /// Zero for the last, whose revision was not known when it was written: it is the key's own.
    since: i64,
    added: i64,
}

impl Floor {
    /// The floor as etcd has it.
    pub(crate) fn read(found: Option<&KeyValue>) -> Result<Self> {
        let Some(found) = found else { return Ok(Self::default()) };
        let mut steps: Vec<Step> = serde_json::from_slice(&found.value)
            .map_err(|error| unexpected("a floor that cannot be read").caused_by(error))?;
        if let Some(last) = steps.last_mut() {
            last.since = found.mod_revision;
        }
        Ok(Self(steps))
    }

    /// The token of a claim whose key was created at `revision`.
    pub(crate) fn token(&self, revision: i64) -> Result<Token> {
        let added = self.0.iter().rev().find(|step| step.since < revision).map_or(0, |step| step.added);
        Ok(Token::new(revision.saturating_add(added).unsigned_abs())?)
    }

    /// With every claim after `now` above `floor`; none if that is so already.
    fn raised(&self, floor: Token, now: i64) -> Option<Self> {
        let floor = i64::try_from(floor.get()).unwrap_or(i64::MAX);
        let added = floor - now;
        if added <= self.0.last().map_or(0, |step| step.added) {
            return None;
        }
        Some(Self([&self.0[..], &[Step { since: 0, added }]].concat()))
    }
}

impl EtcdBackend {
    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        let key = self.layout.floor(name);
        loop {
            let read = RangeRequest { key: key.clone().into(), ..RangeRequest::default() };
            let answer = self.links.range(read).await?;
            let now = answer.header.ok_or_else(|| unexpected("no revision"))?.revision;
            let found = answer.kvs.first();
            let Some(raised) = Floor::read(found)?.raised(floor, now) else { return Ok(()) };
            let value =
                serde_json::to_vec(&raised.0).map_err(|error| unexpected("a floor").caused_by(error))?;
            let request = TxnRequest {
                compare: vec![ops::unchanged(&key, found.map_or(0, |found| found.mod_revision))],
                success: vec![ops::put(&key, value, 0)],
                failure: Vec::new(),
            };
            // Whoever changed it meanwhile, also we ourselves: it is looked at again.
            if self.links.txn(request, Repeat::Yes).await?.succeeded {
                return Ok(());
            }
        }
    }

    /// The floors of those of `names` that have one. What is raised later is not for claims that are there already.
    pub(crate) async fn floors(&self, names: &[&LockName]) -> Result<HashMap<LockName, Floor>> {
        let mut floors = HashMap::new();
        if names.is_empty() || !self.has_floors().await? {
            return Ok(floors);
        }
        for names in names.chunks(MOST) {
            let success = names.iter().map(|name| ops::read(&self.layout.floor(name))).collect();
            let request = TxnRequest { compare: Vec::new(), success, failure: Vec::new() };
            let answer = self.links.txn(request, Repeat::Yes).await?;
            for (at, name) in names.iter().enumerate() {
                if let Some(found) = ops::range(&answer, at)?.kvs.first() {
                    floors.insert((*name).clone(), Floor::read(Some(found))?);
                }
            }
        }
        Ok(floors)
    }

    /// Whether any lock has a floor: most clusters have none.
    async fn has_floors(&self) -> Result<bool> {
        let Span { key, end } = self.layout.floors();
        let request = RangeRequest {
            key: key.into(),
            range_end: end.into(),
            count_only: true,
            ..RangeRequest::default()
        };
        Ok(self.links.range(request).await?.count > 0)
    }

    /// The floor of `name`.
    pub(crate) async fn floor(&self, name: &LockName) -> Result<Floor> {
        let Span { key, .. } = Span::one(self.layout.floor(name));
        let answer = self.links.range(RangeRequest { key: key.into(), ..RangeRequest::default() }).await?;
        Floor::read(answer.kvs.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(floor: &Floor, revision: i64) -> Floor {
        let value = serde_json::to_vec(&floor.0).unwrap();
        let found = KeyValue { value: value.into(), mod_revision: revision, ..KeyValue::default() };
        Floor::read(Some(&found)).unwrap()
    }

    #[test]
    fn tokens_rise_over_every_step_and_old_ones_stay() {
        let token = |floor: &Floor, revision| floor.token(revision).unwrap().get();
        let none = Floor::default();
        assert_eq!(token(&none, 10), 10);
        let first = stored(&none.raised(Token::new(1000).unwrap(), 10).unwrap(), 11);
        assert_eq!((token(&first, 10), token(&first, 12)), (10, 1002));
        assert_eq!(first.raised(Token::new(1000).unwrap(), 12), None);
        let second = stored(&first.raised(Token::new(5000).unwrap(), 20).unwrap(), 21);
        assert_eq!((token(&second, 10), token(&second, 12), token(&second, 22)), (10, 1002, 5002));
    }
}
