//! What makes data in ZooKeeper refuse those who have lost their lock: writes that are applied only while the lock's own node
//! is there.
//!
//! No mark has to be kept, and no token compared: no other claim ever has that node's path, so that a check for it, in one
//! `multi` with the writes, is a check for the grant.

use std::sync::Arc;

use tollgate_core::{BootClock, Error, Grant, Keeper, LockName, Mode, Result, Stale, Token};

use crate::config::ZooKeeperConfig;
use crate::error::Trouble;
use crate::paths::{Layout, is_of};
use crate::session::Means;
use crate::sessions::Sessions;

/// Writes to the ZooKeeper that the locks are on, each applied only while a lock is held.
///
/// It has a session of its own, which is opened with the first write.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard) -> tollgate::Result<()> {
/// let fence = tollgate::zookeeper::fence("zookeeper://127.0.0.1/")?;
/// fence.guarded(guard.grant())?.set("/total", "17").commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct ZooKeeperFence {
    sessions: Sessions,
    layout: Layout,
    chroot: String,
}

/// One write of several.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Create { path: String, data: Vec<u8> },
    Set { path: String, data: Vec<u8>, version: Option<i32> },
    Delete { path: String },
}

impl ZooKeeperFence {
    /// For locks of the ZooKeeper that `config` names, in its folder.
    pub fn new(config: ZooKeeperConfig) -> Result<Self> {
        let layout = Layout::new(config.root()?, config.style);
        let (keeper, chroot) = (Keeper::global()?, config.chroot.clone());
        let clock = Arc::new(BootClock::new(keeper.clone()));
        let means = Means { config: Arc::new(config), layout: layout.clone(), keeper, clock };
        Ok(Self { sessions: Sessions::new(means), layout, chroot })
    }

    /// The node of a lock that is held by `grant`, from ZooKeeper's root: a `multi` of your own that begins with a check for it
    /// is applied only while the lock is held.
    ///
    /// # Errors
    /// `Unsupported` for a permit: several permit holders are not one writer. `InvalidArgument` for a grant of another
    /// engine.
    pub fn node(&self, grant: &Grant) -> Result<String> {
        if matches!(grant.mode, Mode::Permit { .. }) {
            return Err(Error::unsupported(
                "a permit cannot be fenced: several permit holders are not one writer; use an exclusive lock",
            )
            .on(&grant.name));
        }
        let node = grant.handle.as_deref().filter(|node| is_of(grant.owner, node));
        let node = node.ok_or_else(|| {
            Error::invalid("this grant names no node; it came from another engine").on(&grant.name)
        })?;
        Ok(format!("{}/{node}", self.layout.folder(&grant.name)))
    }

    /// Writes that are applied only while `grant` holds its lock.
    pub fn guarded(&self, grant: &Grant) -> Result<GuardedMulti<'_>> {
        Ok(GuardedMulti {
            fence: self,
            lock: self.node(grant)?,
            name: grant.name.clone(),
            token: grant.token,
            writes: Vec::new(),
        })
    }

    fn full(&self, path: &str) -> String {
        format!("{}{path}", self.chroot)
    }
}

/// Writes that are applied together, and only while the lock is held. Paths are from the URL's own root.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard) -> tollgate::Result<()> {
/// let fence = tollgate::zookeeper::fence("zookeeper://127.0.0.1/")?;
/// let writes = fence.guarded(guard.grant())?.set("/total", "17").delete("/draft");
/// writes.commit().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is written until it is committed"]
pub struct GuardedMulti<'a> {
    fence: &'a ZooKeeperFence,
    lock: String,
    name: LockName,
    token: Token,
    writes: Vec<Write>,
}

impl GuardedMulti<'_> {
    /// Also creates a node.
    pub fn create(mut self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Create { path: self.fence.full(path), data: data.into() });
        self
    }

    /// Also replaces the data of a node.
    pub fn set(mut self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Set { path: self.fence.full(path), data: data.into(), version: None });
        self
    }

    /// Also replaces the data of a node that still has this version.
    pub fn set_version(mut self, path: &str, data: impl Into<Vec<u8>>, version: i32) -> Self {
        let path = self.fence.full(path);
        self.writes.push(Write::Set { path, data: data.into(), version: Some(version) });
        self
    }

    /// Also deletes a node.
    pub fn delete(mut self, path: &str) -> Self {
        self.writes.push(Write::Delete { path: self.fence.full(path) });
        self
    }

    /// Applies all of it, or nothing.
    ///
    /// # Errors
    /// `Lost` if the lock is not held any more, `InvalidArgument` if one of the nodes is not as it must be for its write:
    /// nothing was written then. `Indeterminate` if no answer came: it may have been written, while the lock was held.
    pub async fn commit(self) -> Result<()> {
        self.apply().await.map_err(|error| error.during("commit").on(&self.name))
    }

    async fn apply(&self) -> Result<()> {
        let seat = self.fence.sessions.visitor();
        let open = seat.session().opened().await?;
        open.calls.connected().await?;
        match open.calls.guarded(&self.lock, &self.writes).await {
            Ok(()) => Ok(()),
            Err(Refused::Unlocked) => Err(Stale::unheld(
                self.token,
                "the lock is no longer held, and nothing was written; take it again",
            )),
            Err(Refused::Write(number, trouble)) => Err(Error::invalid(format!(
                "write {number} cannot be applied, and nothing was written: {}",
                reason(&trouble)
            ))),
            Err(Refused::Other(trouble)) => Err(trouble.into()),
        }
    }
}

/// Why guarded writes were not applied.
pub(crate) enum Refused {
    /// The lock's node is not there.
    Unlocked,
    /// This one of them, counted from 1.
    Write(usize, Trouble),
    /// Nobody knows, or something else is wrong.
    Other(Trouble),
}

fn reason(trouble: &Trouble) -> String {
    match trouble {
        Trouble::NoNode => "its node, or the parent node, does not exist".to_owned(),
        Trouble::Exists => "its node exists already".to_owned(),
        Trouble::Changed => "its node has another version".to_owned(),
        Trouble::Ended => "the session ended".to_owned(),
        Trouble::Failed(error) => error.message().to_owned(),
    }
}
