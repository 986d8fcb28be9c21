//! Marks of grants that an operator broke, which their holders look for.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tollgate_core::{LockName, LossCause, Result, Token};
use tollgate_sql::within;

use super::backend::Shared;
use super::books::Entry;
use super::desk::Desk;
use super::view::hex;

/// How long a mark stays whose holder does not remove it. Its holder looks for it every second.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long the look for marks may take. It decides nothing but what the holder is told.
const TO_LOOK: Duration = Duration::from_secs(1);

/// What stands for a grant in the table of revocations, where a lease is known by its owner id. Numbers of connections, and
/// tokens that rows count, are given again: all three together are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark([u8; 32]);

impl Mark {
    pub(super) fn of(name: &LockName, connection: u32, token: Token) -> Self {
        let name = name.as_str();
        Self(Sha256::digest(format!("session {connection} {token} {name}")).into())
    }

    fn written(&self) -> String {
        format!("x'{}'", hex(&self.0))
    }
}

impl Desk {
    /// Marks a grant as revoked, and removes what dead holders have left.
    pub(super) async fn mark(&self, mark: &Mark) -> Result<()> {
        let (table, now) =
            (&self.texts.revocations, "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))");
        let _ = self.ask(format!("delete from {table} where until < {now} - 60000000")).await;
        let until = format!("{now} + {}", KEPT.as_micros());
        let insert = format!(
            "insert into {table} (owner, until) values ({}, {until}) on duplicate key update until = {until}",
            mark.written()
        );
        self.ask(insert).await.map(drop)
    }

    /// Removes marks of grants that are over.
    pub(super) async fn unmark(&self, marks: impl Iterator<Item = &Mark>) -> Result<()> {
        let marks = listed(marks);
        if marks.is_empty() {
            return Ok(());
        }
        self.ask(format!("delete from {} where owner in ({marks})", self.texts.revocations)).await.map(drop)
    }

    /// Which of `marks` are there.
    async fn marked(&self, marks: impl Iterator<Item = &Mark>) -> Result<HashSet<Vec<u8>>> {
        let look = format!("select owner from {} where owner in ({})", self.texts.revocations, listed(marks));
        Ok(self.ask(look).await?.iter().filter_map(|row| row.get(0)).collect())
    }
}

fn listed<'a>(marks: impl Iterator<Item = &'a Mark>) -> String {
    marks.fold(String::new(), |mut list, mark| {
        // A string takes whatever is written to it.
        let _ = write!(list, "{}{}", if list.is_empty() { "" } else { ", " }, mark.written());
        list
    })
}

impl Shared {
    /// Tells those of `entries` whose grants were revoked, as far as the server says so soon.
    pub(super) async fn look_for_marks(&self, entries: &[Arc<Entry>]) {
        // What is not written down cannot be marked, and what is lost need not be.
        let is_meant = |entry: &&Arc<Entry>| entry.state().written && entry.loss().is_none();
        let held: Vec<_> = entries.iter().filter(is_meant).collect();
        let held: Vec<_> = held.into_iter().filter_map(|entry| Some((entry, entry.mark()?))).collect();
        if held.is_empty() {
            return;
        }
        let looked = within(TO_LOOK, self.desk.marked(held.iter().map(|(_, mark)| mark))).await;
        let Some(Ok(marked)) = looked else { return };
        for (entry, mark) in held {
            if marked.contains(&mark.0[..]) {
                entry.lose(LossCause::Revoked);
            }
        }
    }
}
