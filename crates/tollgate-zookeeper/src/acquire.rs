//! Taking a lock: a node in the queue, and a look at those before it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_core::turn::{Place, Verdict, judge};
use tollgate_core::{
    Age, Attempt, Claim, Contention, Deadline, Details, Error, Grant, Mode, OwnerId, Result, Token,
};

use crate::backend::ZooKeeperBackend;
use crate::error::{Trouble, over};
use crate::paths::{Node, is_of};
use crate::session::{Open, Session};

/// What a claim's node has in it, for people who look. Its mode is in its name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    /// The version of this.
    pub(crate) tollgate: u32,
    pub(crate) ttl_ms: u64,
    #[serde(flatten)]
    pub(crate) details: Details,
}

impl Value {
    pub(crate) fn new(ttl: std::time::Duration, details: &Details) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { tollgate: 1, ttl_ms, details: details.clone() }
    }

    pub(crate) fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::invalid("these details cannot be written").caused_by(error))
    }
}

/// A claim that has its place in the queue.
pub(crate) struct Placed {
    pub(crate) session: Arc<Session>,
    pub(crate) open: Open,
    /// The lock's folder.
    pub(crate) folder: String,
    pub(crate) node: Node,
    token: Token,
}

impl Placed {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.folder, self.node.name)
    }
}

impl ZooKeeperBackend {
    /// Takes the lock if nobody is in the way.
    pub(crate) async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        let placed = self.place(claim).await?;
        let ahead = self.ahead(claim.owner, &placed).await?;
        if judge(claim.mode, &ahead, true) == Verdict::In {
            return Ok(Attempt::Granted(self.granted(claim, &placed)?));
        }
        placed.open.calls.delete(&placed.path()).await?;
        self.sessions.forget(claim.owner);
        Ok(Attempt::Busy(Contention { ahead: Some(ahead.len()), retry_after: None }))
    }

    /// Puts the claim into the queue. The same claim again keeps its place.
    pub(crate) async fn place(&self, claim: &Claim) -> Result<Placed> {
        let data = Value::new(claim.ttl, &claim.details).to_json()?;
        let folder = self.layout.folder(&claim.name);
        loop {
            let session = self.sessions.settle(claim);
            let open = session.opened().await?;
            if let Some(placed) = self.kept(claim, &session, &open, &folder).await? {
                return Ok(placed);
            }
            match self.create(claim, &open, &folder, &data).await {
                Ok((node, created)) => return self.placed(claim, session, open, folder, node, created).await,
                // The session ended before it was asked. Ask again in a new one.
                Err(Trouble::Ended) => session.end(),
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// Asks for a node, and for the folder first where there is none. What is unknown then is noted for the withdrawal.
    async fn create(
        &self,
        claim: &Claim,
        open: &Open,
        folder: &str,
        data: &[u8],
    ) -> Result<(String, i64), Trouble> {
        let start = self.layout.start(claim.owner, claim.mode);
        let path = format!("{folder}/{start}");
        open.calls.connected().await?;
        loop {
            self.sessions.asking(claim.owner);
            match open.calls.claim(&path, data).await {
                Ok((number, stat)) => {
                    let node = format!("{start}{number}");
                    self.sessions.placed(claim.owner, &node);
                    return Ok((node, stat.czxid));
                }
                Err(Trouble::NoNode) => {
                    self.sessions.refused(claim.owner);
                    // ZooKeeper may remove what is empty between two of these steps.
                    match open.calls.folder(folder, self.layout.root()).await {
                        Ok(()) | Err(Trouble::NoNode) => {}
                        Err(trouble) => return Err(trouble),
                    }
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// The place that a claim has already.
    async fn kept(
        &self,
        claim: &Claim,
        session: &Arc<Session>,
        open: &Open,
        folder: &str,
    ) -> Result<Option<Placed>> {
        let Some(node) = self.sessions.node(claim.owner) else { return Ok(None) };
        match open.calls.data(&format!("{folder}/{node}")).await {
            Ok((_, stat)) if stat.ephemeral_owner == open.calls.session() => {
                let (session, open, folder) = (session.clone(), open.clone(), folder.to_owned());
                Ok(Some(self.placed(claim, session, open, folder, node, stat.czxid).await?))
            }
            Ok(_) | Err(Trouble::NoNode) => Err(over()),
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn placed(
        &self,
        claim: &Claim,
        session: Arc<Session>,
        open: Open,
        folder: String,
        node: String,
        created: i64,
    ) -> Result<Placed> {
        if let Some(party) = &claim.party {
            // The engine's time is the number of its transactions.
            party.note(Age(created.unsigned_abs()));
        }
        let token = open.floors.token(&open.calls, created).await?;
        let node = self.layout.read(&node).ok_or_else(over)?;
        Ok(Placed { session, open, folder, node, token })
    }

    /// The claims before this one, the nearest first. Fails if its own node is gone.
    pub(crate) async fn ahead(&self, owner: OwnerId, placed: &Placed) -> Result<Vec<Place<String>>> {
        let children = match placed.open.calls.children(&placed.folder).await {
            Ok(children) => children,
            Err(Trouble::NoNode) => return Err(over()),
            Err(trouble) => return Err(trouble.into()),
        };
        for other in children.iter().filter(|child| is_of(owner, child) && **child != placed.node.name) {
            // Of a request that came twice, or of an earlier session that is not over yet.
            placed.open.calls.delete(&format!("{}/{other}", placed.folder)).await?;
        }
        self.before(placed, &children)
    }

    /// Those of a folder's nodes that are claims before this one, the nearest first.
    pub(crate) fn before(&self, placed: &Placed, children: &[String]) -> Result<Vec<Place<String>>> {
        if !children.contains(&placed.node.name) {
            return Err(over());
        }
        let mut before: Vec<(i32, Place<String>)> = children
            .iter()
            .filter_map(|child| self.layout.read(child))
            // Numbers wrap around; claims that are there together are never half of all numbers apart.
            .map(|node| (placed.node.sequence.wrapping_sub(node.sequence), node))
            .filter(|(distance, _)| *distance > 0)
            .map(|(distance, Node { name, mode, .. })| (distance, Place { key: name, mode }))
            .collect();
        before.sort_unstable_by_key(|(distance, _)| *distance);
        Ok(before.into_iter().map(|(_, place)| place).collect())
    }

    pub(crate) fn granted(&self, claim: &Claim, placed: &Placed) -> Result<Grant> {
        if claim.standalone {
            placed.session.let_end(false);
        }
        let deadline = placed.session.deadline(placed.open.ttl);
        if matches!(deadline, Deadline::At(end) if self.clock.now() >= end) {
            // Nobody knows whether the session is still there, and with it the node.
            return Err(over());
        }
        let age = claim.party.as_ref().and_then(|party| party.stamp().age);
        Ok(Grant::new(claim, placed.token, deadline).with_age(age).with_handle(placed.node.name.clone()))
    }

    /// The node of a grant, with its path. Nothing for a grant that another owner was given.
    pub(crate) fn path_of(&self, grant: &Grant) -> Result<Option<String>> {
        let node = grant
            .handle
            .as_deref()
            .filter(|node| self.layout.read(node).is_some())
            .ok_or_else(|| Error::invalid("this grant names no node; it came from another engine"))?;
        Ok(is_of(grant.owner, node).then(|| format!("{}/{node}", self.layout.folder(&grant.name))))
    }

    /// Deletes whatever an unanswered request of this owner may have left in `folder`.
    pub(crate) async fn sweep(&self, open: &Open, folder: &str, owner: OwnerId) -> Result<(), Trouble> {
        // A server that is behind would not show it yet.
        open.calls.sync(folder).await?;
        let children = match open.calls.children(folder).await {
            Err(Trouble::NoNode) => return Ok(()),
            children => children?,
        };
        for child in children.iter().filter(|child| is_of(owner, child)) {
            let path = format!("{folder}/{child}");
            match open.calls.data(&path).await {
                Ok((_, stat)) if stat.ephemeral_owner == open.calls.session() => {
                    open.calls.delete(&path).await?;
                }
                // It ends with the session that it belongs to.
                Ok(_) | Err(Trouble::NoNode) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }
}

/// Whether those behind a claim have to be told when it gets in.
pub(crate) fn tells_those_behind(mode: Mode) -> bool {
    matches!(mode, Mode::Permit { .. })
}
