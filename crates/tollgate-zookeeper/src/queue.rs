//! A claim's place in the queue: who is before it, and the wait until nobody is in its way.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use tollgate_core::turn::{Place, Turn, Verdict, judge};
use tollgate_core::{ErrorKind, Mode, OwnerId, Result};

use crate::calls::Calls;
use crate::error::{Trouble, over};
use crate::order::{Rank, ahead_of};
use crate::paths::{Layout, Node, of_owner};
use crate::wire::{Event, Watch};

/// How often a waiter looks again though it was told of nothing.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// After how long a waiter makes sure that it will be told at all.
const TO_MAKE_SURE: Duration = Duration::from_secs(1);
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
        self.path_of(&self.node.name)
    }

    /// Waits until it is in. `ahead` is who was before it at the last look; nobody else ever will be.
    pub(crate) async fn until_in(self, mut ahead: Vec<Place<String>>) -> Result<()> {
        let mut eyes = Eyes::default();
        while let Verdict::After(turn) = self.verdict(&ahead) {
            let moved = tokio::time::timeout(AT_LEAST_EVERY, self.until_moved(turn, &ahead, &mut eyes)).await;
            // A claim that is in its place keeps it while nobody answers.
            match moved {
                Err(_) => {
                    if let Verdict::After(Turn::Left(nearest)) = self.verdict(&ahead)
                        && self.verdict(&without(&nearest, &ahead)) == Verdict::In
                    {
                        // Whatever became of that, the look tells.
                        let _ = self.leave_a_haunted_server(&nearest).await;
                    }
                }
                Ok(Ok(Some(gone))) => {
                    ahead.retain(|place| place.key != gone);
                    if self.verdict(&ahead) == Verdict::In {
                        return Ok(());
                    }
                }
                Ok(Err(Trouble::Ended)) => return Err(over()),
                Ok(Err(Trouble::Failed(error))) if !passes(error.kind()) => return Err(error),
                Ok(Err(Trouble::Failed(_))) => tokio::time::sleep(PAUSE).await,
                // Whoever is not there any more has moved.
                Ok(Ok(None) | Err(Trouble::NoNode | Trouble::Exists | Trouble::Changed)) => {}
            }
            match self.look().await {
                Ok(seen) => ahead = seen,
                Err(error) if passes(error.kind()) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn verdict(&self, ahead: &[Place<String>]) -> Verdict<String> {
        judge(self.node.mode, ahead, true)
    }

    async fn look(&self) -> Result<Vec<Place<String>>> {
        self.ahead(self.calls.children(&self.folder).await).await
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

    /// Waits until the queue may have moved; who is gone, if that is known.
    async fn until_moved(
        &self,
        turn: Turn<String>,
        ahead: &[Place<String>],
        eyes: &mut Eyes,
    ) -> Result<Option<String>, Trouble> {
        let watch = match &turn {
            Turn::Left(nearest) => return self.until_left(nearest, ahead, eyes).await.map(Some),
            Turn::Moved(node) => self.calls.data_and_watch(&self.path_of(node)).await?.2,
            Turn::AnyLeft => self.calls.children_and_watch(&self.folder).await?.1,
        };
        // What happened between our last look and the watch, it does not tell.
        let children = self.calls.children(&self.folder).await?;
        if self.verdict(&self.before(&children).await?) == Verdict::After(turn) {
            watch.await;
        }
        Ok(None)
    }

    /// Waits until the nearest in the way is gone. Who wants to be in alone waits for the one before it, too: a look then finds that
    /// the nearest is the last, and when that one goes nobody has to look any more. Those who share would all look at once.
    async fn until_left(
        &self,
        nearest: &str,
        ahead: &[Place<String>],
        eyes: &mut Eyes,
    ) -> Result<String, Trouble> {
        let before_it = match self.verdict(&without(nearest, ahead)) {
            Verdict::After(Turn::Left(node)) if self.node.mode == Mode::Exclusive => Some(node),
            _ => None,
        };
        let wanted: Vec<&str> = [nearest].into_iter().chain(before_it.as_deref()).collect();
        let mut is_sure = false;
        loop {
            self.open(eyes, &wanted).await?;
            let told = match tokio::time::timeout(TO_MAKE_SURE, eyes.told()).await {
                Err(_) if is_sure => eyes.told().await,
                Err(_) => {
                    // ZooKeeper tells nobody of a node that they may not read, and says so only to those who read it.
                    self.calls.data(&self.path_of(nearest)).await?;
                    is_sure = true;
                    continue;
                }
                Ok(told) => told,
            };
            match told {
                Some(node) if node == self.node.name => return Err(Trouble::Failed(over())),
                Some(node) => return Ok(node),
                // All who wait have lost their connection, perhaps: none of them reads the whole queue.
                None => {}
            }
        }
    }

    /// Leaves a server that shows `node` to us though its leader has no such node: some servers of ZooKeeper's are left with nodes that
    /// were deleted while they were away (ZOOKEEPER-4785, ZOOKEEPER-5010), and keep them until their session ends.
    async fn leave_a_haunted_server(&self, node: &str) -> Result<(), Trouble> {
        let link = self.calls.link().await?;
        if self.calls.leader_has(&self.path_of(node)).await? {
            return Ok(());
        }
        self.calls.sync(&self.folder).await?;
        match self.calls.data(&self.path_of(node)).await {
            Ok(_) => link.leave(),
            Err(Trouble::NoNode) => {}
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    /// Sees to it that it is told of its own node and of those that are `wanted`, and of no others.
    async fn open(&self, eyes: &mut Eyes, wanted: &[&str]) -> Result<(), Trouble> {
        let own = self.node.name.as_str();
        let wanted = || [own].into_iter().chain(wanted.iter().copied());
        eyes.0.retain(|(node, _)| wanted().any(|wanted| wanted == node));
        let missing: Vec<_> =
            wanted().filter(|wanted| eyes.0.iter().all(|(node, _)| node != wanted)).collect();
        if !missing.is_empty() {
            let paths: Vec<_> = missing.iter().map(|node| self.path_of(node)).collect();
            let watches = self.calls.watch_all(&paths).await?;
            eyes.0.extend(missing.into_iter().map(str::to_owned).zip(watches));
            eyes.0.sort_by_key(|(node, _)| node != own);
        }
        Ok(())
    }

    fn path_of(&self, node: &str) -> String {
        format!("{}/{node}", self.folder)
    }
}

/// Those who are left when `node` is gone.
fn without(node: &str, ahead: &[Place<String>]) -> Vec<Place<String>> {
    ahead.iter().filter(|place| place.key != node).cloned().collect()
}

/// The nodes that a claim is told of, its own first.
#[derive(Default)]
struct Eyes(Vec<(String, Watch)>);

impl Eyes {
    /// Who is gone; nobody if all that is known is that all have to be watched anew. If it is gone itself, it hears that first:
    /// ZooKeeper tells in the order in which things happened.
    async fn told(&mut self) -> Option<String> {
        let (event, at, _) = select_all(self.0.iter_mut().map(|(_, watch)| watch)).await;
        let own = (at > 0).then(|| (&mut self.0[0].1).now_or_never()).flatten();
        match (own, event) {
            (None, Event::Deleted) => Some(self.0.remove(at).0),
            (Some(Event::Deleted), _) => Some(self.0.remove(0).0),
            // What was written again is not watched any more, nor is anything over a connection that is lost.
            _ => {
                self.0.clear();
                None
            }
        }
    }
}

/// Whether a look may have better luck: it does not matter whether the last one was done.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
}
