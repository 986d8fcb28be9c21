//! A claim's place in the queue: who is before it, and the wait until nobody is in its way.

use std::time::Duration;

use tollgate_core::turn::{Place, Turn, Verdict, judge};
use tollgate_core::{ErrorKind, OwnerId, Result};

use crate::calls::Calls;
use crate::error::{Trouble, over};
use crate::order::{Rank, ahead_of};
use crate::paths::{Layout, Node, of_owner};
use crate::wire::Event;

/// How often a waiter looks again though it was told of nothing.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// Where a claim stands. Looking changes nothing, so that a wait may be given up at any time.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) calls: Calls,
    pub(crate) layout: Layout,
    /// The lock's folder.
    pub(crate) folder: String,
    pub(crate) node: Node,
    /// The transaction that created its node.
    pub(crate) created: i64,
    pub(crate) owner: OwnerId,
}

impl Standing {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.folder, self.node.name)
    }

    /// Waits until it is in. `turn` is what it waits for first.
    pub(crate) async fn until_in(self, mut turn: Turn<String>) -> Result<()> {
        loop {
            let moved = tokio::time::timeout(AT_LEAST_EVERY, self.until_moved(turn.clone())).await;
            // A claim that is in its place keeps it while nobody answers.
            match moved {
                Ok(Err(Trouble::Ended)) => return Err(over()),
                Ok(Err(Trouble::Failed(error))) if !passes(error.kind()) => return Err(error),
                Ok(Err(Trouble::Failed(_))) => tokio::time::sleep(PAUSE).await,
                // Whoever is not there any more has moved.
                Ok(Ok(()) | Err(Trouble::NoNode | Trouble::Exists | Trouble::Changed)) | Err(_) => {}
            }
            match self.look().await {
                Ok(Verdict::After(next)) => turn = next,
                Ok(Verdict::In | Verdict::More) => return Ok(()),
                Err(error) if passes(error.kind()) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn look(&self) -> Result<Verdict<String>> {
        let children = self.calls.children(&self.folder).await;
        Ok(judge(self.node.mode, &self.ahead(children).await?, true))
    }

    /// The claims before this one, the nearest first, by what a look at the folder said. Fails if its own node is gone.
    pub(crate) async fn ahead(&self, seen: Result<Vec<String>, Trouble>) -> Result<Vec<Place<String>>> {
        let children = match seen {
            Err(Trouble::NoNode) => return Err(over()),
            seen => seen?,
        };
        for other in of_owner(self.owner, &children).filter(|child| **child != self.node.name) {
            // Of a request that came twice, or of an earlier session that is not over yet.
            self.calls.delete(&format!("{}/{other}", self.folder)).await?;
        }
        Ok(self.before(&children).await?)
    }

    /// Those of a folder's nodes that are claims before this one, the nearest first.
    async fn before(&self, children: &[String]) -> Result<Vec<Place<String>>, Trouble> {
        if !children.contains(&self.node.name) {
            return Err(Trouble::Failed(over()));
        }
        let nodes = children.iter().filter_map(|child| self.layout.read(child)).collect();
        let rank = Rank::new(self.node.sequence, self.created);
        let ahead = ahead_of(rank, &self.calls, &self.folder, nodes).await?;
        Ok(ahead.into_iter().map(|Node { name, mode, .. }| Place { key: name, mode }).collect())
    }

    /// Waits until the queue may have moved.
    async fn until_moved(&self, turn: Turn<String>) -> Result<(), Trouble> {
        let watch = match &turn {
            Turn::Left(node) => return self.until_told(node).await,
            Turn::Moved(node) => self.calls.data_and_watch(&format!("{}/{node}", self.folder)).await?.2,
            Turn::AnyLeft => self.calls.children_and_watch(&self.folder).await?.1,
        };
        // What happened between our last look and the watch, it does not tell.
        let children = self.calls.children(&self.folder).await?;
        let ahead = self.before(&children).await?;
        if judge(self.node.mode, &ahead, true) != Verdict::After(turn) {
            return Ok(());
        }
        watch.changed().await;
        Ok(())
    }

    /// Waits until a node is gone, or written again.
    async fn until_told(&self, node: &str) -> Result<(), Trouble> {
        let path = format!("{}/{node}", self.folder);
        loop {
            let (_, _, watch) = self.calls.data_and_watch(&path).await?;
            // A lost connection tells nothing of the node, and all who wait have lost it: none of them reads the whole queue.
            if watch.changed().await != Event::Lost {
                return Ok(());
            }
        }
    }
}

/// Whether a look may have better luck: it does not matter whether the last one was done.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
}
