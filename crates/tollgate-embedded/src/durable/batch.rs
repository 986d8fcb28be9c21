//! What is gathered for the next commit: for each row its latest value.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use tollgate_core::{LockName, OwnerId, Token};
use tollgate_engine::StoredGrant;

use super::header::Header;
use super::row;
use super::store::{Table, Write};

/// The number of a commit. Commits become durable in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit(pub(super) u64);

/// Changes that become durable together.
pub struct Batch<D> {
    pub(super) commit: Commit,
    pub(super) header: Option<Header>,
    pub(super) grants: HashMap<(LockName, OwnerId), Option<StoredGrant<D>>>,
    pub(super) delays: HashMap<LockName, Option<Duration>>,
    pub(super) marks: HashMap<String, Token>,
}

impl<D> Batch<D> {
    pub(super) fn new(commit: Commit) -> Self {
        let (grants, delays, marks) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { commit, header: None, grants, delays, marks }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.header.is_none() && self.grants.is_empty() && self.delays.is_empty() && self.marks.is_empty()
    }

    /// Its number.
    pub fn commit(&self) -> Commit {
        self.commit
    }
}

impl<D: Serialize> Batch<D> {
    /// The same as writes to a store.
    pub fn writes(&self) -> Vec<Write> {
        let header = self.header.iter().map(|header| Write {
            table: Table::Header,
            key: Vec::new(),
            value: Some(serde_json::to_vec(header).expect("numbers and names can be written as JSON")),
        });
        let grants = self.grants.iter().map(|((name, owner), grant)| Write {
            table: Table::Grants,
            key: row::grant_key(name, *owner),
            value: grant.as_ref().map(row::write_grant),
        });
        let delays = self.delays.iter().map(|(name, delay)| Write {
            table: Table::Delays,
            key: name.as_str().as_bytes().to_vec(),
            value: delay.map(row::write_delay),
        });
        let marks = self.marks.iter().map(|(resource, mark)| Write {
            table: Table::Marks,
            key: resource.as_bytes().to_vec(),
            value: Some(row::write_mark(*mark)),
        });
        header.chain(grants).chain(delays).chain(marks).collect()
    }
}
