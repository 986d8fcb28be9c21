//! The wait-for graph: which party waits for which, and the circles that cannot resolve themselves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::{Details, LockName, Mode, PartyId};
use tollgate_engine::LockView;
use tollgate_proto::{Circle, Deadlocks, Problem, WaitForEdge, WaitForNode};

use super::driver::TableService;
use super::look::PER_TURN;
use crate::show::{number, text};

/// The most edges of an answer: a picture with more cannot be read.
const EDGES: usize = 20_000;

/// Looks at every lock with a queue, a part of the table per turn.
pub(super) async fn deadlocks(service: &TableService) -> Result<Deadlocks, Problem> {
    let mut graph = Graph::default();
    let mut position = Some(0);
    while let Some(from) = position {
        position = service.look(|table, _| {
            let (views, next) = table.page("", from, PER_TURN);
            views.iter().filter(|view| !view.waiters.is_empty()).for_each(|view| graph.add(view));
            next
        });
        tokio::task::yield_now().await;
    }
    Ok(graph.answer())
}

#[derive(Default)]
struct Graph {
    nodes: Vec<WaitForNode>,
    parties: HashMap<PartyId, usize>,
    claims: Vec<Claim>,
    edges: usize,
}

/// A claim that waits.
struct Claim {
    node: usize,
    name: LockName,
    mode: Mode,
    /// The nodes ahead that the claim waits for, each with the mode of its claim.
    ahead: Vec<(usize, Mode)>,
}

impl Graph {
    fn add(&mut self, view: &LockView<'_, Arc<Details>>) {
        let holders = view.holders.iter().map(|holder| (holder.mode, holder.party, holder.details));
        let waiters = view.waiters.iter().map(|waiter| (waiter.mode, waiter.party, waiter.details));
        let mut queue: Vec<(usize, Mode)> = Vec::new();
        for (at, (mode, party, details)) in holders.chain(waiters).enumerate() {
            let node = self.node(party, details);
            if at >= view.holders.len() {
                let room = EDGES.saturating_sub(self.edges);
                let ahead = queue.iter().filter(|(_, theirs)| mode.may_wait_for(*theirs));
                let ahead: Vec<_> = ahead.copied().take(room).collect();
                self.edges += ahead.len();
                self.claims.push(Claim { node, name: view.name.clone(), mode, ahead });
            }
            queue.push((node, mode));
        }
    }

    fn node(&mut self, party: Option<PartyId>, details: &Details) -> usize {
        if let Some(&known) = party.as_ref().and_then(|party| self.parties.get(party)) {
            return known;
        }
        let id = self.nodes.len();
        self.nodes.push(WaitForNode {
            id: id as u64,
            party,
            by: None,
            host: text(&details.host),
            pid: number(details.pid),
        });
        if let Some(party) = party {
            self.parties.insert(party, id);
        }
        id
    }

    fn answer(self) -> Deadlocks {
        let circles = self.circles();
        let mut seen = BTreeSet::new();
        let mut edges = Vec::new();
        for claim in self.claims {
            for (to, _) in claim.ahead {
                if seen.insert((claim.node, to, claim.name.clone())) {
                    let (from, to) = (claim.node as u64, to as u64);
                    edges.push(WaitForEdge { from, to, name: claim.name.clone() });
                }
            }
        }
        Deadlocks { nodes: self.nodes, edges, circles }
    }

    /// Circles among the nodes that cannot go on, even if every node that can goes on and leaves.
    fn circles(&self) -> Vec<Circle> {
        let mut stuck: BTreeSet<usize> = self.claims.iter().map(|claim| claim.node).collect();
        loop {
            let goes_on = |node: &usize| {
                let mut claims = self.claims.iter().filter(|claim| claim.node == *node);
                claims.all(|claim| claim.may_be_granted(&stuck))
            };
            let free: Vec<usize> = stuck.iter().copied().filter(goes_on).collect();
            if free.is_empty() {
                break;
            }
            free.iter().for_each(|node| {
                stuck.remove(node);
            });
        }
        let mut circles = Vec::new();
        let mut visited = BTreeSet::new();
        for &start in &stuck {
            let (mut path, mut at) = (Vec::new(), start);
            // Every stuck node waits for a stuck node, so the walk ends in a circle.
            while visited.insert(at) {
                path.push(at);
                let mut claims = self.claims.iter().filter(|claim| claim.node == at);
                let next = claims
                    .find_map(|claim| claim.ahead.iter().map(|(to, _)| *to).find(|to| stuck.contains(to)));
                let Some(next) = next else { break };
                at = next;
            }
            if let Some(begin) = path.iter().position(|node| *node == at) {
                let nodes = path[begin..].iter().map(|node| *node as u64).collect();
                circles.push(Circle { nodes });
            }
        }
        circles
    }
}

impl Claim {
    /// Whether the claim may be granted when every node that is not stuck has left. Of a
    /// semaphore's permits it needs only one.
    fn may_be_granted(&self, stuck: &BTreeSet<usize>) -> bool {
        let staying = self.ahead.iter().filter(|(node, _)| stuck.contains(node));
        let (same, other): (Vec<&(usize, Mode)>, Vec<_>) = staying.partition(|(_, mode)| *mode == self.mode);
        other.is_empty() && same.len() < self.mode.capacity().max(1) as usize
    }
}
