//! Watches that nobody needs now, kept for the next one who wants the same.
//!
//! Clients that take a lock in turn wait for the same key each time: the one of the client before them. A watch that is in place
//! already spares its making, a look whether it was too late, and its end; and etcd never puts it aside.

use std::collections::HashMap;

use tokio::runtime::Id;

use crate::hub::Watch;

/// How many are kept. Each costs etcd a few hundred bytes.
const MOST: usize = 256;

/// Watches on one key each, by that key and the runtime they are on: another one's may not run when it is needed.
#[derive(Default)]
pub(crate) struct Parked {
    watches: HashMap<(Id, Vec<u8>), (u64, Watch)>,
    turn: u64,
}

impl Parked {
    /// Keeps a watch; answers the one that is kept no longer, if there is one.
    pub(crate) fn put(&mut self, watch: Watch) -> Option<Watch> {
        self.turn += 1;
        let key = (watch.runtime, watch.create.key.to_vec());
        if let Some((_, before)) = self.watches.insert(key, (self.turn, watch)) {
            return Some(before);
        }
        if self.watches.len() <= MOST {
            return None;
        }
        let oldest = self.watches.iter().min_by_key(|(_, (turn, _))| *turn).map(|(key, _)| key.clone())?;
        self.take(&oldest)
    }

    pub(crate) fn take(&mut self, key: &(Id, Vec<u8>)) -> Option<Watch> {
        self.watches.remove(key).map(|(_, watch)| watch)
    }
}
