//! The disk: what is in the page cache, and what survives a power loss.

use std::collections::BTreeMap;
use std::path::Path;

use tollgate_embedded::durable::{Row, Store, StoreError, Table, Write};

use crate::mutant::Mutant;

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// Rows that the operating system has, and rows that are on the disk.
pub(crate) struct Disk {
    cached: Rows,
    durable: Rows,
    mutant: Option<Mutant>,
    is_starting: bool,
}

impl Disk {
    pub(crate) fn new(mutant: Option<Mutant>) -> Self {
        Self { cached: Rows::new(), durable: Rows::new(), mutant, is_starting: false }
    }

    /// A commit has returned.
    pub(crate) fn finish(&mut self, writes: &[Write]) {
        let writes = self.flawed(writes);
        apply(&mut self.cached, &writes);
        self.durable = self.cached.clone();
    }

    /// A commit was cut off by the end of the process: it reached the page cache as a whole, or not at all.
    pub(crate) fn cut_off(&mut self, writes: &[Write], is_written: bool) {
        if is_written {
            let writes = self.flawed(writes);
            apply(&mut self.cached, &writes);
        }
    }

    /// The machine loses its power.
    pub(crate) fn lose_power(&mut self) {
        self.cached = self.durable.clone();
    }

    /// The next commit is that of a start.
    pub(crate) fn begin_start(&mut self) {
        self.is_starting = true;
    }

    fn flawed(&self, writes: &[Write]) -> Vec<Write> {
        let keep = |write: &&Write| match (self.mutant, write.table, &write.value) {
            (Some(Mutant::ForgetsLockDelays), Table::Delays, _) => false,
            (Some(Mutant::ForgetsMarks), Table::Marks, _) => false,
            (Some(Mutant::ForgetsEnds), Table::Grants, None) => false,
            (Some(Mutant::ForgetsGrants), Table::Grants, Some(_)) => false,
            (Some(Mutant::ForgetsRevocations), Table::Grants, Some(value)) => !contains(value, "is_revoked"),
            (Some(Mutant::ForgetsLongerLeases), Table::Grants, Some(value)) => {
                !self.cached.contains_key(&(write.table, write.key.clone())) || contains(value, "is_revoked")
            }
            _ => true,
        };
        writes.iter().filter(keep).cloned().collect()
    }

    /// A row as a flawed server reads it.
    fn read(&self, table: Table, value: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(value).into_owned();
        match (self.mutant, table) {
            (Some(Mutant::RestartsLeasesShort), Table::Grants) => {
                replace_number(&text, "\"ttl_ns\":", |ttl| ttl / 10)
            }
            (Some(Mutant::WaitsHalfAsLong), Table::Header) => {
                replace_number(&text, "\"longest_ms\":", |longest| longest / 2)
            }
            (Some(Mutant::DoesNotWait), Table::Header) => {
                text.replace("\"run\":\"incomplete\"", "\"run\":\"complete\"").into_bytes()
            }
            (Some(Mutant::ForgetsTheCeiling), Table::Header) => {
                let highest = self.cached.iter().filter(|((table, _), _)| *table == Table::Grants);
                let tokens =
                    highest.filter_map(|(_, value)| number(&String::from_utf8_lossy(value), "\"token\":"));
                let highest = tokens.max().unwrap_or(1);
                replace_number(&text, "\"token_ceiling\":", |_| highest)
            }
            _ => value.to_vec(),
        }
    }
}

fn apply(rows: &mut Rows, writes: &[Write]) {
    for write in writes {
        let key = (write.table, write.key.clone());
        match &write.value {
            Some(value) => drop(rows.insert(key, value.clone())),
            None => drop(rows.remove(&key)),
        }
    }
}

fn contains(value: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(value).contains(text)
}

fn number(text: &str, before: &str) -> Option<u64> {
    let digits = text.split_once(before)?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn replace_number(text: &str, before: &str, change: impl Fn(u64) -> u64) -> Vec<u8> {
    match number(text, before) {
        Some(found) => {
            text.replacen(&format!("{before}{found}"), &format!("{before}{}", change(found)), 1).into_bytes()
        }
        None => text.as_bytes().to_vec(),
    }
}

impl Store for Disk {
    fn load(&mut self) -> Result<Vec<Row>, StoreError> {
        let row = |((table, key), value): (&(Table, Vec<u8>), &Vec<u8>)| Row {
            table: *table,
            key: key.clone(),
            value: self.read(*table, value),
        };
        Ok(self.cached.iter().map(row).collect())
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let is_start = std::mem::take(&mut self.is_starting);
        match self.mutant {
            Some(Mutant::StartsWithoutACommit) if is_start => apply(&mut self.cached, writes),
            Some(Mutant::KeepsTheCleanMark) if is_start => {
                let writes: Vec<Write> = writes
                    .iter()
                    .filter(|write| write.table != Table::Header || self.cached.is_empty())
                    .cloned()
                    .collect();
                // Neither the mark nor the rows that it vouches for are removed.
                if self.cached.is_empty() {
                    apply(&mut self.cached, &writes);
                }
                self.durable = self.cached.clone();
            }
            _ => {
                apply(&mut self.cached, writes);
                self.durable = self.cached.clone();
            }
        }
        Ok(())
    }

    fn file(&self) -> &Path {
        Path::new("simulated")
    }
}
