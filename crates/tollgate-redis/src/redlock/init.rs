//! The first start: an operator says that there is nothing to remember.

use tollgate_core::{BoxFuture, Error, ErrorKind, Result};

use crate::redlock::config::RedlockConfig;
use crate::redlock::lanes::Lanes;
use crate::redlock::node::Node;
use crate::redlock::trouble::Trouble;
use crate::redlock::voter::{Standing, admit_all, survey};

/// What [`init`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialized {
    /// The nodes vote from now on.
    Now,
    /// They all did before; nothing was changed.
    Already,
}

/// Makes voters of nodes that were never used, at once. Without it they begin by themselves when they have waited for
/// as long as a lock may live, because a new node looks like one that forgot.
///
/// # Errors
/// `Unavailable` if a node cannot be reached, and `Config` if some of the nodes have been voters before: those that
/// are not may have forgotten locks that are still held, and come back by themselves.
pub fn init(config: &RedlockConfig) -> BoxFuture<'_, Result<Initialized>> {
    Box::pin(async move {
        let nodes = config.checked()?.into_iter().map(Node::new).collect();
        let lanes = Lanes::new(nodes, config.max_ttl);
        let standings = survey(&lanes).await;
        let failed: Vec<usize> = (0..standings.len()).filter(|node| standings[*node].is_err()).collect();
        if let Some(first) = failed.first() {
            // What an operator has to change comes first: it does not pass by itself.
            let lasting = failed.iter().map(|node| lanes.nodes[*node].trouble()).find(Trouble::is_lasting);
            let kind = lasting.unwrap_or_else(|| lanes.nodes[*first].trouble()).kind;
            return Err(Error::new(
                kind,
                format!(
                    "all {} nodes must be reachable for the initialisation, and {} not: {}. Nothing was \
                     changed",
                    lanes.nodes.len(),
                    if failed.len() == 1 { "one is".to_owned() } else { format!("{} are", failed.len()) },
                    lanes.why(&failed)
                ),
            ));
        }
        lanes.check_config()?;
        let standings: Vec<Standing> = standings.into_iter().flatten().collect();
        if standings.iter().all(Standing::votes) {
            return Ok(Initialized::Already);
        }
        let used: Vec<&str> = standings
            .iter()
            .zip(&lanes.nodes)
            .filter(|(standing, _)| !matches!(standing, Standing::Waiting { new: true, .. }))
            .map(|(_, node)| node.label.as_str())
            .collect();
        if !used.is_empty() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "these nodes are not new: {} voted before. Nodes that do not vote now may have \
                     forgotten locks that are still held; they vote again by themselves after a client \
                     takes locks and the forgotten ones have expired",
                    used.join(", ")
                ),
            ));
        }
        admit_all(&lanes, false).await?;
        Ok(Initialized::Now)
    })
}
