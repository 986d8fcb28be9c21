//! Taking a lock: a node in the queue, and a look at those before it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use serde::{Deserialize, Serialize};
use tollgate_core::turn::{Place, Verdict, judge};
use tollgate_core::{
    Age, Attempt, Claim, Contention, Deadline, Details, Error, Grant, OwnerId, Result, Token,
};

use crate::backend::ZooKeeperBackend;
use crate::calls::Calls;
use crate::error::{Trouble, over};
use crate::paths::{is_of, of_owner};
use crate::queue::Standing;
use crate::session::{Open, Session};

/// What a claim's node has in it, for people who look. Its mode is in its name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    /// The version of this.
    pub(crate) tollgate: u32,
    pub(crate) ttl_ms: u64,
    #[serde(flatten)]
    pub(crate) details: Details,
    /// Whether an operator has asked the holder to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) revoked: bool,
}

impl Value {
    pub(crate) fn new(ttl: Duration, details: &Details) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { tollgate: 1, ttl_ms, details: details.clone(), revoked: false }
    }

    /// What a claim's node says; `None` if another kind of client wrote it.
    pub(crate) fn of(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::invalid("the details of this claim cannot be serialised").caused_by(error)
        })
    }
}

/// A claim that has its place in the queue.
pub(crate) struct Placed {
    pub(crate) session: Arc<Session>,
    pub(crate) standing: Standing,
    pub(crate) ttl: Duration,
    token: Token,
    /// Who is before it, the nearest first.
    pub(crate) ahead: Vec<Place<String>>,
}

/// The node that a claim has, and the folder around it.
struct Created {
    node: String,
    /// The transaction that created it.
    at: i64,
    folder: String,
    /// What was in the folder then or later.
    seen: Result<Vec<String>, Trouble>,
}

impl ZooKeeperBackend {
    /// Takes the lock if nobody is in the way.
    pub(crate) async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        let placed = self.place(claim).await?;
        if judge(claim.mode, &placed.ahead, true) == Verdict::In {
            return self.granted(claim, &placed).map(Attempt::Granted).ok_or_else(over);
        }
        placed.standing.calls.delete(&placed.standing.path()).await?;
        self.sessions.forget(claim.owner);
        Ok(Attempt::Busy(Contention { ahead: Some(placed.ahead.len()), retry_after: None }))
    }

    /// Puts the claim into the queue and looks at those before it. The same claim again keeps its place.
    pub(crate) async fn place(&self, claim: &Claim) -> Result<Placed> {
        let data = Value::new(claim.ttl, &claim.details).to_json()?;
        loop {
            let session = self.sessions.settle(claim);
            let open = session.opened().await?;
            let folder = self.layout.folder(&claim.name);
            let created = match self.sessions.node(claim.owner) {
                Some(node) => kept(&open, folder, node).await,
                None => self.create(claim, &open, folder, &data).await,
            };
            match created {
                Ok(created) => return self.placed(claim, session, open, created).await,
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
        folder: String,
        data: &[u8],
    ) -> Result<Created, Trouble> {
        let start = self.layout.start(claim.owner, claim.mode);
        let path = format!("{folder}/{start}");
        open.calls.connected().await?;
        loop {
            self.sessions.asking(claim.owner);
            let (created, seen) = open.calls.claim_and_look(&path, data, &folder).await;
            match created {
                Ok((number, stat)) => {
                    let node = format!("{start}{number}");
                    self.sessions.placed(claim.owner, &node);
                    return Ok(Created { node, at: stat.czxid, folder, seen });
                }
                Err(Trouble::NoNode) => {
                    self.sessions.refused(claim.owner);
                    open.calls.folder(&folder, self.layout.root()).await?;
                }
                Err(trouble) => {
                    if !trouble.is_in_doubt() {
                        self.sessions.refused(claim.owner);
                    }
                    return Err(trouble);
                }
            }
        }
    }

    async fn placed(
        &self,
        claim: &Claim,
        session: Arc<Session>,
        open: Open,
        created: Created,
    ) -> Result<Placed> {
        let Created { node, at, folder, seen } = created;
        if let Some(party) = &claim.party {
            // The engine's time is the number of its transactions.
            party.note(Age(at.unsigned_abs()));
        }
        let token = open.floors.token(&open.calls, at).await?;
        let node = self.layout.read(&node).ok_or_else(over)?;
        let (calls, layout) = (open.calls, self.layout.clone());
        let standing = Standing { calls, layout, folder, node, created: at, owner: claim.owner };
        let ahead = standing.ahead(seen).await?;
        Ok(Placed { session, standing, ttl: open.ttl, token, ahead })
    }

    /// The grant of a claim that is in; none while nobody knows whether the session is still there, and with it the node.
    pub(crate) fn granted(&self, claim: &Claim, placed: &Placed) -> Option<Grant> {
        let deadline = placed.session.deadline(placed.ttl);
        if placed.session.is_over() {
            return None;
        }
        if matches!(deadline, Deadline::At(end) if self.clock.now() >= end) {
            return None;
        }
        if claim.standalone {
            placed.session.let_end(false);
        }
        let age = claim.party.as_ref().and_then(|party| party.stamp().age);
        let node = placed.standing.node.name.clone();
        Some(Grant::new(claim, placed.token, deadline).with_age(age).with_handle(node))
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
}

/// The node that a claim has already.
async fn kept(open: &Open, folder: String, node: String) -> Result<Created, Trouble> {
    let path = format!("{folder}/{node}");
    let (data, seen) = join(open.calls.data(&path), open.calls.children(&folder)).await;
    match data {
        Ok((_, stat)) if stat.ephemeral_owner == open.calls.session() => {
            Ok(Created { node, at: stat.czxid, folder, seen })
        }
        Ok(_) | Err(Trouble::NoNode) => Err(Trouble::Failed(over())),
        Err(trouble) => Err(trouble),
    }
}

/// Deletes what an unanswered request of this owner may have left in `folder`.
pub(crate) async fn sweep(calls: &Calls, folder: &str, owner: OwnerId) -> Result<(), Trouble> {
    for node in left_by(calls, folder, owner).await? {
        calls.delete(&format!("{folder}/{node}")).await?;
    }
    Ok(())
}

/// What an unanswered request of this owner, in this session, left in `folder`.
///
/// Once it is answered nothing can come late: ZooKeeper serves the requests of a connection in order, and takes nothing more from
/// a connection whose session goes on over another.
pub(crate) async fn left_by(calls: &Calls, folder: &str, owner: OwnerId) -> Result<Vec<String>, Trouble> {
    // A server that is behind would not show it yet.
    calls.sync(folder).await?;
    let children = match calls.children(folder).await {
        Err(Trouble::NoNode) => return Ok(Vec::new()),
        children => children?,
    };
    let mut left = Vec::new();
    for child in of_owner(owner, &children) {
        match calls.data(&format!("{folder}/{child}")).await {
            Ok((_, stat)) if stat.ephemeral_owner == calls.session() => left.push(child.clone()),
            // It ends with the session that it belongs to.
            Ok(_) | Err(Trouble::NoNode) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(left)
}
