//! Locks as others see them, and an operator who breaks one.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tollgate_core::turn::how_many_are_in;
use tollgate_core::{
    Age, BoxStream, Details, Error, ErrorKind, Holder, LockName, LockState, Mode, Result, Revocation,
    RevokeMode, Token, Waiter,
};

use crate::acquire::Value;
use crate::backend::{Visit, ZooKeeperBackend};
use crate::calls::{Answer, Calls};
use crate::error::Trouble;
use crate::names::{name_of, start_of};
use crate::order::{Rank, in_order};
use crate::paths::Node;
use crate::session::Open;

/// How many nodes are asked for at once.
const AT_ONCE: usize = 256;

impl ZooKeeperBackend {
    pub(crate) async fn seen(&self, name: &LockName) -> Result<Option<LockState>> {
        let open = self.visit().await?;
        // A server that is behind would show what was.
        open.calls.sync(self.layout.root()).await?;
        let children = match open.calls.children(&self.layout.folder(name)).await {
            Ok(children) => children,
            Err(Trouble::NoNode) => return Ok(None),
            Err(trouble) => return Err(trouble.into()),
        };
        self.state(&open, name, &children).await
    }

    /// What the nodes in a lock's folder make of it.
    async fn state(&self, open: &Open, name: &LockName, children: &[String]) -> Result<Option<LockState>> {
        let folder = self.layout.folder(name);
        let looks = self.claims(children).into_iter().map(|node| async {
            match open.calls.data(&format!("{folder}/{}", node.name)).await {
                Ok((data, stat)) => Ok(Some((node, data, stat.czxid))),
                // It left while we looked.
                Err(Trouble::NoNode) => Ok(None),
                Err(trouble) => Err(Error::from(trouble)),
            }
        });
        let seen: Vec<_> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        let mut claims: Vec<_> = seen.into_iter().flatten().collect();
        claims.sort_unstable_by_key(|(node, _, created)| Rank::new(node.sequence, *created));
        let modes: Vec<Mode> = claims.iter().map(|(node, ..)| node.mode).collect();
        let inside = how_many_are_in(&modes);
        let mut state = LockState { name: name.clone(), holders: Vec::new(), waiters: Vec::new() };
        for (at, (node, data, created)) in claims.into_iter().enumerate() {
            let (details, expires_in) = said(&data);
            if at < inside {
                let token = Some(open.floors.token(&open.calls, created).await?);
                state.holders.push(Holder { mode: node.mode, token, expires_in, details });
            } else {
                state.waiters.push(Waiter { mode: node.mode, details });
            }
        }
        Ok((!state.holders.is_empty()).then_some(state))
    }

    /// The claims among the nodes in a lock's folder.
    fn claims(&self, children: &[String]) -> Vec<Node> {
        children.iter().filter_map(|child| self.layout.read(child)).collect()
    }

    /// Walks through all folders, each of which may be a lock's and have others below it.
    pub(crate) fn listed(&self, start: &str) -> BoxStream<'_, Result<LockState>> {
        struct Walk {
            open: Option<Visit>,
            /// Folders to look into, below the folder of all.
            folders: VecDeque<String>,
            start: String,
        }
        let walk = Walk { open: None, folders: VecDeque::from([String::new()]), start: start.to_owned() };
        Box::pin(stream::unfold(Some(walk), move |walk| async move {
            let mut walk = walk?;
            let open = match walk.open.take() {
                Some(open) => open,
                None => match self.visited().await {
                    Ok(open) => open,
                    Err(error) => return Some((Err(error), None)),
                },
            };
            while let Some(folder) = walk.folders.pop_front() {
                let children = match open.calls.children(&self.below(&folder)).await {
                    Ok(children) => children,
                    Err(Trouble::NoNode) => continue,
                    Err(trouble) => {
                        let error = Error::from(trouble);
                        // What is somebody else's hides nothing beside it.
                        let Some(name) = named(&folder).filter(|_| error.kind() == ErrorKind::Denied) else {
                            return Some((Err(error), None));
                        };
                        walk.open = Some(open);
                        return Some((Err(error.on(&name)), Some(walk)));
                    }
                };
                let below = children.iter().filter(|child| self.layout.read(child).is_none());
                let below = below.map(|child| join(&folder, child));
                walk.folders.extend(below.filter(|path| may_lead_to(path, &walk.start)));
                let Some(name) = name_of(&folder).filter(|name| name.as_str().starts_with(&walk.start))
                else {
                    continue;
                };
                let state = match self.state(&open, &name, &children).await {
                    Ok(None) => continue,
                    Ok(Some(state)) => Ok(state),
                    Err(error) => Err(error.on(&name)),
                };
                walk.open = Some(open);
                return Some((state, Some(walk)));
            }
            None
        }))
    }

    async fn visited(&self) -> Result<Visit> {
        let open = self.visit().await?;
        open.calls.sync(self.layout.root()).await?;
        Ok(open)
    }

    /// The newest transaction: ZooKeeper's time.
    pub(crate) async fn newest(&self) -> Result<Age> {
        let zxid = self.visited().await?.calls.link().await?.seen();
        Ok(Age(zxid.unsigned_abs()))
    }

    fn below(&self, folder: &str) -> String {
        match folder {
            "" => self.layout.root().to_owned(),
            folder => format!("{}/{folder}", self.layout.root()),
        }
    }

    /// Asks the holder with `token` to leave, or deletes its claim.
    ///
    /// A mark in the claim's node asks: the holder watches its own node.
    pub(crate) async fn broken(&self, name: &LockName, token: Token, mode: RevokeMode) -> Result<Revocation> {
        let open = self.visited().await?;
        let folder = self.layout.folder(name);
        let children = match open.calls.children(&folder).await {
            Ok(children) => children,
            Err(Trouble::NoNode) => return Ok(Revocation::NotHeld),
            Err(trouble) => return Err(trouble.into()),
        };
        let nodes = in_order(&open.calls, &folder, self.claims(&children)).await?;
        let modes: Vec<Mode> = nodes.iter().map(|node| node.mode).collect();
        for holder in &nodes[..how_many_are_in(&modes)] {
            let path = format!("{folder}/{}", holder.name);
            let created = match open.calls.data(&path).await {
                Ok((_, stat)) => stat.czxid,
                Err(Trouble::NoNode) => continue,
                Err(trouble) => return Err(trouble.into()),
            };
            if open.floors.token(&open.calls, created).await? == token {
                return revoke(&open.calls, &path, mode).await.map_err(|error| error.on(name));
            }
        }
        Ok(Revocation::NotHeld)
    }
}

/// Marks the claim at `path` as revoked, or deletes it. No other claim ever has that path.
async fn revoke(calls: &Calls, path: &str, mode: RevokeMode) -> Result<Revocation> {
    if mode == RevokeMode::Force {
        let deleted = calls.delete(path).await?;
        return Ok(if deleted { Revocation::Revoked } else { Revocation::NotHeld });
    }
    match mark(calls, path).await {
        Ok(true) => Ok(Revocation::Pending),
        Ok(false) => Err(Error::unsupported(
            "the holder does not use tollgate and cannot be asked to leave; end that client, or take the \
             lock away by force",
        )),
        Err(Trouble::NoNode) => Ok(Revocation::NotHeld),
        Err(trouble) => Err(trouble.into()),
    }
}

/// Marks a claim as revoked. Answers `false` if another kind of client made it.
async fn mark(calls: &Calls, path: &str) -> Answer<bool> {
    loop {
        let (data, stat) = calls.data(path).await?;
        let Some(value) = Value::of(&data) else { return Ok(false) };
        if value.revoked {
            return Ok(true);
        }
        let marked = Value { revoked: true, ..value }.to_json().map_err(Trouble::Failed)?;
        match calls.set(path, &marked, Some(stat.version)).await {
            // Its holder has written its details meanwhile.
            Err(Trouble::Changed) => {}
            answer => return answer.map(|_| true),
        }
    }
}

fn join(folder: &str, child: &str) -> String {
    if folder.is_empty() { child.to_owned() } else { format!("{folder}/{child}") }
}

/// What to call a folder; none for that of all locks.
fn named(folder: &str) -> Option<LockName> {
    // No lock is called nothing, but what is below it starts with `/`.
    name_of(folder).or_else(|| LockName::new(format!("{}/", start_of(folder)?)).ok())
}

/// Whether names that start with `start` may be at `path` or below.
fn may_lead_to(path: &str, start: &str) -> bool {
    let Some(name) = start_of(path) else { return false };
    name.starts_with(start) || start.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// Who a claim is of, and for how long ZooKeeper keeps it; others' nodes say nothing to us.
fn said(data: &[u8]) -> (Details, Option<Duration>) {
    match Value::of(data) {
        Some(value) => (value.details, Some(Duration::from_millis(value.ttl_ms))),
        None => (Details::default(), None),
    }
}
