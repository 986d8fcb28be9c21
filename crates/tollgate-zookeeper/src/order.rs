//! The order of claims, also where ZooKeeper's numbers come to their end.
//!
//! A folder counts its nodes up to 2 147 483 647 and stays there: it gives that number again and again, and to requests that come
//! close upon each other numbers below zero, in turns. So those come after all others, and among themselves in the order of the
//! transactions that created them, which has to be asked for.

use std::cmp::Reverse;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::calls::Calls;
use crate::error::Trouble;
use crate::paths::Node;

/// How many nodes are asked for at once.
const AT_ONCE: usize = 64;

/// What a claim's place in its queue is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The number that no other node of its folder has.
    Number(i32),
    /// The transaction that created it, when numbers had come to their end.
    Late(i64),
}

impl Rank {
    /// Of a node with the number `sequence` that was created by the transaction `created`.
    pub(crate) fn new(sequence: i32, created: i64) -> Self {
        Self::numbered(sequence).unwrap_or(Self::Late(created))
    }

    /// Of a node with this number, if that alone decides.
    fn numbered(sequence: i32) -> Option<Self> {
        (0..i32::MAX).contains(&sequence).then_some(Self::Number(sequence))
    }
}

/// Those of the claims in `folder` that are before the one with `rank` and have not left meanwhile, the nearest first.
pub(crate) async fn ahead_of(
    rank: Rank,
    calls: &Calls,
    folder: &str,
    nodes: Vec<Node>,
) -> Result<Vec<Node>, Trouble> {
    Ok(before(
        rank,
        match rank {
            // Whoever came late is behind it.
            Rank::Number(_) => numbered(nodes),
            Rank::Late(_) => ranked(calls, folder, nodes).await?,
        },
    ))
}

fn before(rank: Rank, mut nodes: Vec<(Rank, Node)>) -> Vec<Node> {
    nodes.retain(|(other, _)| *other < rank);
    nodes.sort_unstable_by_key(|(other, _)| Reverse(*other));
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// All claims in `folder` that have not left meanwhile, the oldest first.
pub(crate) async fn in_order(calls: &Calls, folder: &str, nodes: Vec<Node>) -> Result<Vec<Node>, Trouble> {
    let mut nodes = ranked(calls, folder, nodes).await?;
    nodes.sort_unstable_by_key(|(rank, _)| *rank);
    Ok(nodes.into_iter().map(|(_, node)| node).collect())
}

fn numbered(nodes: Vec<Node>) -> Vec<(Rank, Node)> {
    nodes.into_iter().filter_map(|node| Some((Rank::numbered(node.sequence)?, node))).collect()
}

async fn ranked(calls: &Calls, folder: &str, nodes: Vec<Node>) -> Result<Vec<(Rank, Node)>, Trouble> {
    let is_late = |node: &Node| Rank::numbered(node.sequence).is_none();
    let (late, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_late);
    let created = |node: Node| async move {
        match calls.data(&format!("{folder}/{}", node.name)).await {
            Ok((_, stat)) => Ok(Some((Rank::Late(stat.czxid), node))),
            Err(Trouble::NoNode) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    };
    let late: Vec<_> = stream::iter(late).map(created).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(numbered(others).into_iter().chain(late.into_iter().flatten()).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::Mode;

    use super::*;

    /// The numbers that ZooKeeper gives, from `first` on, to requests of which some come while the one before is on its way.
    fn given(first: i32, close: &[bool]) -> Vec<i32> {
        let (mut tree, mut next) = (first, first);
        let mut numbers = Vec::new();
        for close in close {
            if !close {
                next = tree;
            }
            numbers.push(next);
            next = next.wrapping_add(1);
            // A counter is never put back.
            tree = tree.max(next);
        }
        numbers
    }

    #[test]
    fn numbers_that_come_to_their_end_are_given_again() {
        let numbers = given(i32::MAX - 1, &[false, false, true, true, false, true]);
        assert_eq!(numbers, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1, i32::MAX, i32::MIN]);
    }

    proptest! {
        #[test]
        fn a_queue_is_in_the_order_in_which_it_came(
            first in prop_oneof![0..i32::MAX, i32::MAX - 100..=i32::MAX],
            close in prop::collection::vec(any::<bool>(), 1..200),
            own: prop::sample::Index,
        ) {
            let numbers = given(first, &close);
            let claim = |(at, sequence): (usize, &i32)| {
                let node = Node { name: at.to_string(), sequence: *sequence, mode: Mode::Exclusive };
                (Rank::new(*sequence, at as i64), node)
            };
            let all: Vec<_> = numbers.iter().enumerate().map(claim).rev().collect();
            let own = own.index(numbers.len());
            let rank = Rank::new(numbers[own], own as i64);
            let seen = match rank {
                Rank::Number(_) => numbered(all.into_iter().map(|(_, node)| node).collect()),
                Rank::Late(_) => all,
            };
            let ahead: Vec<String> = before(rank, seen).into_iter().map(|node| node.name).collect();
            let expected: Vec<String> = (0..own).rev().map(|at| at.to_string()).collect();
            prop_assert_eq!(ahead, expected);
        }
    }
}
