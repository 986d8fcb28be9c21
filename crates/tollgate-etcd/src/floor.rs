//! What is added to a lock's revisions, so that its tokens go on where another engine left off.

use std::collections::HashMap;

use tollgate_core::floor::Floor;
use tollgate_core::{LockName, Result, Token};

use crate::backend::EtcdBackend;
use crate::error::unexpected;
use crate::links::Repeat;
use crate::wire::{KeyValue, RangeRequest, TxnRequest};
use crate::{keys::Span, ops};

/// How many are read at once. etcd takes 128 operations in a transaction.
const MOST: usize = 100;

/// The floor as etcd has it.
pub(crate) fn read(found: Option<&KeyValue>) -> Result<Floor> {
    found.map_or(Ok(Floor::default()), |found| Floor::read(&found.value, found.mod_revision))
}

impl EtcdBackend {
    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        let key = self.layout.floor(name);
        loop {
            let asked = RangeRequest { key: key.clone().into(), ..RangeRequest::default() };
            let answer = self.links.range(asked).await?;
            let now = answer.header.ok_or_else(|| unexpected("no revision"))?.revision;
            let found = answer.kvs.first();
            let Some(raised) = read(found)?.raised(floor, now) else { return Ok(()) };
            let request = TxnRequest {
                compare: vec![ops::unchanged(&key, found.map_or(0, |found| found.mod_revision))],
                success: vec![ops::put(&key, raised.to_json()?, 0)],
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
                    floors.insert((*name).clone(), read(Some(found))?);
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
        read(answer.kvs.first())
    }
}
