//! What is added to tokens, so that they go on where another engine left off. One floor for all locks of a folder.
//!
//! To read it for every grant would cost a request. So each session watches it: a server tells of a change before it answers
//! whatever came after that change, so that a claim whose node is younger than the floor finds it changed.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use tollgate_core::floor::Floor;
use tollgate_core::{Result, Token};

use crate::backend::ZooKeeperBackend;
use crate::calls::Calls;
use crate::error::Trouble;
use crate::wire::Watch;

/// The floor, as a session knows it.
pub(crate) struct Floors {
    path: String,
    known: Mutex<Option<Known>>,
}

struct Known {
    floor: Floor,
    changed: Watch,
}

impl Floors {
    /// Of the node at `path`.
    pub(crate) fn new(path: String) -> Self {
        Self { path, known: Mutex::new(None) }
    }

    /// The token of a claim whose node was created by the transaction `created`, which was answered just now.
    pub(crate) async fn token(&self, calls: &Calls, created: i64) -> Result<Token> {
        if let Some(token) = self.known(created) {
            return token;
        }
        // Nobody waits for whoever asks: it may be stopped here for as long as it likes.
        let (is_there, watcher) = calls.is_there_and_watch(&self.path).await?;
        let floor = if is_there { read(calls, &self.path).await? } else { Floor::default() };
        let token = floor.token(created);
        let known = Known { floor, changed: watcher };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        token
    }

    /// The same if the floor is known and has not changed.
    fn known(&self, created: i64) -> Option<Result<Token>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { floor, changed } = known.as_mut()?;
        if changed.now_or_never().is_some() {
            *known = None;
            return None;
        }
        Some(floor.token(created))
    }
}

async fn read(calls: &Calls, path: &str) -> Result<Floor> {
    match calls.data(path).await {
        Ok((data, _)) if data.is_empty() => Ok(Floor::default()),
        Ok((data, stat)) => Floor::read(&data, stat.mzxid),
        Err(Trouble::NoNode) => Ok(Floor::default()),
        Err(trouble) => Err(trouble.into()),
    }
}

impl ZooKeeperBackend {
    /// Makes every later token larger than `floor`, as a move from another engine needs it: of all locks in the same folder.
    pub async fn raise_floor(&self, floor: Token) -> Result<()> {
        let open = self.visit().await?;
        let (calls, path) = (&open.calls, self.layout.floor());
        calls.folder(self.layout.root(), self.layout.root()).await?;
        match calls.create(&path, b"").await {
            Ok(()) | Err(Trouble::Exists) => {}
            Err(trouble) => return Err(trouble.into()),
        }
        loop {
            let now = self.latest(calls).await?;
            let (data, stat) = calls.data(&path).await?;
            let present = if data.is_empty() { Floor::default() } else { Floor::read(&data, stat.mzxid)? };
            let Some(raised) = present.raised(floor, now) else { return Ok(()) };
            match calls.set(&path, &raised.to_json()?, Some(stat.version)).await {
                Ok(_) => return Ok(()),
                Err(Trouble::Changed) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// The number of a transaction that was made just now.
    async fn latest(&self, calls: &Calls) -> Result<i64> {
        let start = format!("{}/%now-", self.layout.root());
        let (number, stat) = calls.claim(&start, b"").await?;
        calls.delete(&format!("{start}{number}")).await?;
        Ok(stat.czxid)
    }
}
