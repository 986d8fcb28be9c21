//! What makes data in etcd refuse those who have lost their lock: transactions that are applied only while the lock's own
//! key is the one that was created for its grant.
//!
//! No mark has to be kept, and no token compared: etcd compares the lock itself, in the same step in which it writes.

use tollgate_core::{Error, Grant, Keeper, LockName, Mode, Result, Stale, Token};

use crate::acquire::Handle;
use crate::config::EtcdConfig;
use crate::keys::Layout;
use crate::links::{Links, Repeat};
use crate::ops::{created_at, delete, put};
use crate::wire::request_op::Request as Op;
use crate::wire::{RequestOp, TxnRequest};

/// Writes to the etcd that the locks are on, each applied only while a lock is held.
///
/// It has a connection of its own, which is opened with the first write.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard) -> tollgate::Result<()> {
/// let fence = tollgate::etcd::fence("etcd://127.0.0.1/")?;
/// fence.guarded(guard.grant())?.put("total", "17").commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct EtcdFence {
    links: Links,
    layout: Layout,
}

/// The key of a held lock, for transactions of your own: compare that the create revision of `key` equals
/// `create_revision`, and etcd applies them only while the lock is held.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard) -> tollgate::Result<()> {
/// let fence = tollgate::etcd::fence("etcd://127.0.0.1/")?;
/// let lock = fence.key(guard.grant())?;
/// println!("the create revision of {:?} must be {}", lock.key, lock.create_revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockKey {
    /// The key.
    pub key: Vec<u8>,
    /// The revision that created it.
    pub create_revision: i64,
}

impl EtcdFence {
    /// For locks of the etcd that `config` names, under its prefix.
    pub fn new(config: &EtcdConfig) -> Result<Self> {
        let links = Links::new(config, Keeper::global()?)?;
        Ok(Self { links, layout: Layout::new(config.prefix.clone()) })
    }

    /// The key of a lock that is held by `grant`.
    ///
    /// # Errors
    /// `Unsupported` for a permit: several permit holders are not one writer. `InvalidArgument` for a grant of another
    /// engine.
    pub fn key(&self, grant: &Grant) -> Result<LockKey> {
        if matches!(grant.mode, Mode::Permit { .. }) {
            return Err(Error::unsupported(
                "a permit cannot be fenced: several permit holders are not one writer; use an exclusive lock",
            )
            .on(&grant.name));
        }
        let Handle { lease, slot, revision, .. } = Handle::of(grant)?;
        let key = self.layout.claim(&grant.name, lease, slot, grant.mode);
        Ok(LockKey { key, create_revision: revision })
    }

    /// A transaction that is applied only while `grant` holds its lock.
    pub fn guarded(&self, grant: &Grant) -> Result<GuardedTxn<'_>> {
        let (lock, name) = (self.key(grant)?, grant.name.clone());
        Ok(GuardedTxn { links: &self.links, lock, name, token: grant.token, writes: Vec::new() })
    }
}

impl Drop for EtcdFence {
    fn drop(&mut self) {
        self.links.close();
    }
}

/// Writes that are applied together, and only while the lock is held.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard) -> tollgate::Result<()> {
/// let fence = tollgate::etcd::fence("etcd://127.0.0.1/")?;
/// let writes = fence.guarded(guard.grant())?.put("total", "17").delete("draft");
/// writes.commit().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is written until it is committed"]
pub struct GuardedTxn<'a> {
    links: &'a Links,
    lock: LockKey,
    name: LockName,
    token: Token,
    writes: Vec<RequestOp>,
}

impl GuardedTxn<'_> {
    /// Also puts `value` at `key`.
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(put(key.as_ref(), value.into(), 0));
        self
    }

    /// Also deletes `key`.
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.writes.push(RequestOp { request: Some(Op::RequestDeleteRange(delete(key.as_ref()))) });
        self
    }

    /// Applies all of it, or nothing.
    ///
    /// # Errors
    /// `Lost` if the lock is not held any more: nothing was written then. `Indeterminate` if no answer came: it may have
    /// been written, while the lock was held.
    pub async fn commit(self) -> Result<()> {
        let request = TxnRequest {
            compare: vec![created_at(&self.lock.key, self.lock.create_revision)],
            success: self.writes,
            failure: Vec::new(),
        };
        let named = |error: Error| error.during("commit").on(&self.name);
        let answer = self.links.txn(request, Repeat::No).await.map_err(|failure| named(failure.into()))?;
        if answer.succeeded {
            return Ok(());
        }
        Err(named(Stale::unheld(
            self.token,
            "the lock is no longer held, and nothing was written; take it again",
        )))
    }
}
