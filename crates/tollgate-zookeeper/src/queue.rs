//! A claim's place in the queue: who is before it, and the wait until nobody is in its way.

use std::time::Duration;

use tollgate_core::turn::{Place, Turn, Verdict, judge};
use tollgate_core::{ErrorKind, OwnerId, Result};

use crate::calls::Calls;
use crate::error::{Trouble, over};
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
        self.before(&children)
    }

    /// Those of a folder's nodes that are claims before this one, the nearest first.
    fn before(&self, children: &[String]) -> Result<Vec<Place<String>>> {
        if !children.contains(&self.node.name) {
            return Err(over());
        }
        Ok(before(&self.node, children.iter().filter_map(|child| self.layout.read(child))))
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
        let ahead = self.before(&children).map_err(Trouble::Failed)?;
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

/// Those of `nodes` that are before `own`, the nearest first.
///
/// What counts is the difference of their numbers. ZooKeeper does not count on after the largest: it gives that one again, and claims
/// with one number do not see each other here. `docs/backends/zookeeper.md` says so.
fn before(own: &Node, nodes: impl Iterator<Item = Node>) -> Vec<Place<String>> {
    let mut before: Vec<(i32, Place<String>)> = nodes
        .map(|node| (own.sequence.wrapping_sub(node.sequence), node))
        .filter(|(distance, _)| *distance > 0)
        .map(|(distance, Node { name, mode, .. })| (distance, Place { key: name, mode }))
        .collect();
    before.sort_unstable_by_key(|(distance, _)| *distance);
    before.into_iter().map(|(_, place)| place).collect()
}

/// Whether a look may have better luck: it does not matter whether the last one was done.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::Mode;

    use super::*;

    fn node(sequence: i32) -> Node {
        Node { name: sequence.to_string(), sequence, mode: Mode::Exclusive }
    }

    proptest! {
        /// Whatever number the first of a queue got. Not what ZooKeeper does at the largest, where it gives one number again.
        #[test]
        fn a_queue_is_in_the_order_in_which_it_came(first: i32, length in 1..200_i32, own in 0..200_i32) {
            let own = own % length;
            let numbers = |count: i32| (0..count).map(move |at| first.wrapping_add(at));
            let mut all: Vec<Node> = numbers(length).map(node).collect();
            all.reverse();
            let ahead = before(&node(first.wrapping_add(own)), all.into_iter());
            let ahead: Vec<String> = ahead.into_iter().map(|place| place.key).collect();
            let mut expected: Vec<String> = numbers(own).map(|number| number.to_string()).collect();
            expected.reverse();
            prop_assert_eq!(ahead, expected);
        }
    }
}
