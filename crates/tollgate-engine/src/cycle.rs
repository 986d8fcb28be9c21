//! The wait-for graph: who waits for each other in a circle, and who of them gives up.
//!
//! Nodes are parties, and claims that belong to none. Somebody is stuck if none of its waiting claims could be granted,
//! even if everybody left who is not stuck: found by taking all for stuck at first, and letting go of those who are not.
//! A permit needs only one of many to leave, which is why an edge alone proves nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tollgate_types::{Conflict, OnDeadlock, Waits};

use crate::arena::Key;
use crate::effect::Event;
use crate::engine::Engine;
use crate::party::Standing;
use crate::table::{Lock, Place, State};

/// Somebody who holds or waits.
enum Node<D> {
    Party(Key<Standing<D>>),
    Lone(Key<Place<D>>),
}

/// What can be reached from one party by following who waits for whom.
struct Graph<'a, D> {
    engine: &'a Engine<D>,
    /// The locks that somebody in it waits for.
    locks: BTreeSet<Key<Lock<D>>>,
    stuck: BTreeSet<Node<D>>,
}

impl<D> Engine<D> {
    /// Removes claims until this party is in no circle, each time one of the youngest party in it that wants to know.
    pub(crate) fn break_cycles(&mut self, party: Key<Standing<D>>, events: &mut Vec<Event>) {
        while let Some((victim, cycle)) = self.find_victim(party) {
            let place = self.remove(victim);
            let (name, owner) = (self.table.locks[place.lock].name.clone(), place.owner);
            events.push(Event::Deadlock { name, owner, conflict: Conflict::Cycle(cycle) });
            self.settle(place.lock, events);
        }
    }

    /// Who gives up, and the circle it is in; `None` if the party is in none.
    fn find_victim(&self, party: Key<Standing<D>>) -> Option<(Key<Place<D>>, Vec<Waits>)> {
        if self.table.detecting == 0 || !self.parties.standings.contains(party) {
            return None;
        }
        if self.parties.standings[party].waiting.is_empty() {
            return None;
        }
        let graph = Graph::around(self, Node::Party(party));
        let wants_to_know = |claim: &Key<Place<D>>| {
            let place = &self.table.places[*claim];
            place.on_deadlock == OnDeadlock::Detect && place.party.is_some()
        };
        let caught = graph.circle_of(Node::Party(party));
        let claims = caught.iter().flat_map(|&node| self.waiting(node));
        let candidates = claims.filter(wants_to_know).filter(|&claim| graph.waits_for_any(claim, &caught));
        let victim = candidates.max_by_key(|&claim| {
            let place = &self.table.places[claim];
            (place.party.map(|party| self.parties.standings[party].seniority()), place.order)
        })?;
        Some((victim, graph.cycle_from(victim, &caught)))
    }

    /// The claims of a node that wait.
    fn waiting(&self, node: Node<D>) -> Vec<Key<Place<D>>> {
        match node {
            Node::Party(party) => self.parties.standings[party].waiting.clone(),
            Node::Lone(claim) => match self.table.places[claim].state {
                State::Waiting { .. } => vec![claim],
                State::Holding { .. } => Vec::new(),
            },
        }
    }

    fn node_of(&self, claim: Key<Place<D>>) -> Node<D> {
        self.table.places[claim].party.map_or(Node::Lone(claim), Node::Party)
    }
}

impl<'a, D> Graph<'a, D> {
    fn around(engine: &'a Engine<D>, start: Node<D>) -> Self {
        let (mut locks, mut stuck) = (BTreeSet::new(), BTreeSet::from([start]));
        let mut found = vec![start];
        while let Some(node) = found.pop() {
            for claim in engine.waiting(node) {
                // The whole queue, once: those further back are found to be of no account later.
                let lock = engine.table.places[claim].lock;
                if !locks.insert(lock) {
                    continue;
                }
                for (other, _) in engine.table.queue(&engine.table.locks[lock]) {
                    let node = engine.node_of(other);
                    if !engine.waiting(node).is_empty() && stuck.insert(node) {
                        found.push(node);
                    }
                }
            }
        }
        let mut graph = Self { engine, locks, stuck };
        while graph.let_go() {}
        graph
    }

    /// Takes those out of the stuck of whom a claim could be granted if all others left. Whether there were any.
    fn let_go(&mut self) -> bool {
        let before = self.stuck.len();
        for &lock in &self.locks {
            let mut ahead = Vec::new();
            for (claim, place) in self.engine.table.queue(&self.engine.table.locks[lock]) {
                let node = self.engine.node_of(claim);
                if !self.stuck.contains(&node) {
                    continue;
                }
                if matches!(place.state, State::Waiting { .. }) && place.mode.joins(ahead.iter().copied()) {
                    // Those behind it need not wait for it either.
                    self.stuck.remove(&node);
                    continue;
                }
                ahead.push(place.mode);
            }
        }
        self.stuck.len() < before
    }

    /// For whom a claim waits, of those who are stuck.
    fn blockers(&self, claim: Key<Place<D>>) -> impl Iterator<Item = Node<D>> {
        let waiter = &self.engine.table.places[claim];
        let queue = self.engine.table.queue(&self.engine.table.locks[waiter.lock]);
        queue
            .take_while(move |(other, _)| *other != claim)
            .filter(|(_, place)| waiter.mode.may_wait_for(place.mode))
            .map(|(other, _)| self.engine.node_of(other))
            .filter(|node| self.stuck.contains(node))
    }

    fn waits_for_any(&self, claim: Key<Place<D>>, whom: &BTreeSet<Node<D>>) -> bool {
        self.blockers(claim).any(|node| whom.contains(&node))
    }

    /// Everybody who is in a circle with `start`: whom it waits for, and who waits for it.
    fn circle_of(&self, start: Node<D>) -> BTreeSet<Node<D>> {
        if !self.stuck.contains(&start) {
            return BTreeSet::new();
        }
        let mut ahead: BTreeMap<Node<D>, BTreeSet<Node<D>>> = BTreeMap::new();
        for &node in &self.stuck {
            let claims = self.engine.waiting(node);
            ahead.insert(node, claims.into_iter().flat_map(|claim| self.blockers(claim)).collect());
        }
        let mut behind: BTreeMap<Node<D>, BTreeSet<Node<D>>> = BTreeMap::new();
        for (&node, others) in &ahead {
            for &other in others {
                behind.entry(other).or_default().insert(node);
            }
        }
        let forth = reachable(&ahead, start);
        reachable(&behind, start).intersection(&forth).copied().collect()
    }

    /// A shortest way from a claim back to its own party.
    fn cycle_from(&self, victim: Key<Place<D>>, within: &BTreeSet<Node<D>>) -> Vec<Waits> {
        let home = self.engine.node_of(victim);
        let mut came_by: BTreeMap<Key<Place<D>>, Option<Key<Place<D>>>> = BTreeMap::from([(victim, None)]);
        let mut next = VecDeque::from([victim]);
        while let Some(claim) = next.pop_front() {
            for node in self.blockers(claim) {
                if node == home {
                    return self.told(claim, &came_by);
                }
                for onward in self.engine.waiting(node).into_iter().filter(|_| within.contains(&node)) {
                    came_by.entry(onward).or_insert_with(|| {
                        next.push_back(onward);
                        Some(claim)
                    });
                }
            }
        }
        self.told(victim, &came_by)
    }

    /// The way that led to `last`, from its beginning.
    fn told(
        &self,
        last: Key<Place<D>>,
        came_by: &BTreeMap<Key<Place<D>>, Option<Key<Place<D>>>>,
    ) -> Vec<Waits> {
        let way = std::iter::successors(Some(last), |claim| came_by.get(claim).copied().flatten());
        let table = &self.engine.table;
        let mut cycle: Vec<_> = way
            .map(|claim| {
                let place = &table.places[claim];
                let party = place.party.map(|party| self.engine.parties.standings[party].id);
                Waits { party, name: table.locks[place.lock].name.clone() }
            })
            .collect();
        cycle.reverse();
        cycle
    }
}

/// All that can be reached from `start` in at least one step.
fn reachable<N: Copy + Ord>(edges: &BTreeMap<N, BTreeSet<N>>, start: N) -> BTreeSet<N> {
    let mut seen = BTreeSet::new();
    let mut found = vec![start];
    while let Some(node) = found.pop() {
        for &next in edges.get(&node).into_iter().flatten() {
            if seen.insert(next) {
                found.push(next);
            }
        }
    }
    seen
}

// By hand, because deriving would ask the same of `D`, of which a node holds nothing.
impl<D> Node<D> {
    fn position(&self) -> (bool, usize) {
        match self {
            Self::Party(key) => (false, key.position()),
            Self::Lone(key) => (true, key.position()),
        }
    }
}
impl<D> Copy for Node<D> {}
impl<D> Clone for Node<D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Eq for Node<D> {}
impl<D> PartialEq for Node<D> {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}
impl<D> Ord for Node<D> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position().cmp(&other.position())
    }
}
impl<D> PartialOrd for Node<D> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
