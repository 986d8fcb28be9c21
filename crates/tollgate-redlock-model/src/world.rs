//! Everything there is at one moment, and what the checker is to find of it.

use stateright::{Model, Property};

use crate::client::{ATTEMPTS, Client, Phase, Seat, Votes};
use crate::node::{Node, Token};
use crate::rules::Rules;
use crate::steps::Step;

pub(crate) const NODES: usize = 3;
pub(crate) const MAJORITY: usize = NODES / 2 + 1;

pub(crate) const UNIQUE: &str = "no two grants carry one token";
pub(crate) const ORDERED: &str = "who starts after a grant gets a larger token";
pub(crate) const EXCLUSIVE: &str = "nobody holds beside another where nothing expires";

/// A node and everything that is on its way to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place<const CLIENTS: usize> {
    pub(crate) node: Node,
    /// It lost its data, and max_ttl has passed since.
    pub(crate) waited: bool,
    /// The recovery that is under way is for it.
    pub(crate) recovering: bool,
    /// A recovery's `member` is on its way a second time, with this G.
    pub(crate) late_member: Option<Token>,
    /// The recovery that is under way has read it.
    pub(crate) read: bool,
    /// The recovery that is under way has raised it.
    pub(crate) raised: bool,
    pub(crate) seats: [Seat; CLIENTS],
}

/// A recovery that has begun to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recovery {
    /// The largest F or G it has read.
    pub(crate) highest: Token,
    /// The nodes' time when it began.
    pub(crate) time: Token,
    /// It began with too few voters to read from, and works on all nodes.
    pub(crate) whole: bool,
}

/// The state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World<const CLIENTS: usize> {
    /// Sorted: nodes have no names, so worlds that differ only in which node is which are one.
    pub(crate) places: [Place<CLIENTS>; NODES],
    pub(crate) clients: [Client; CLIENTS],
    pub(crate) recovery: Option<Recovery>,
    pub(crate) losses: u8,
    pub(crate) restarts: u8,
}

impl<const CLIENTS: usize> World<CLIENTS> {
    /// Everything the nodes said to a client.
    pub(crate) fn votes(&self, client: usize) -> Votes {
        self.places.iter().fold(Votes::default(), |all, place| all.and(place.seats[client].votes))
    }

    /// A majority stands at `token` for this client.
    pub(crate) fn majority_at(&self, client: usize, token: Token) -> bool {
        self.count(|place| place.seats[client].votes.has(token)) >= MAJORITY
    }

    /// `token` is the largest answer of some majority.
    pub(crate) fn largest_of_a_majority(&self, client: usize, token: Token) -> bool {
        self.count(|place| place.seats[client].votes.has_up_to(token)) >= MAJORITY
    }

    pub(crate) fn count(&self, which: impl Fn(&Place<CLIENTS>) -> bool) -> usize {
        self.places.iter().filter(|place| which(place)).count()
    }

    pub(crate) fn largest_granted(&self) -> Token {
        self.clients.iter().map(|client| client.token).max().unwrap_or(0)
    }

    pub(crate) fn may_start_over(&self, client: &Client) -> bool {
        let asks = matches!(client.phase, Phase::Asking | Phase::TooLate);
        asks && self.restarts > 0 && usize::from(client.attempt) + 1 < ATTEMPTS
    }

    pub(crate) fn forget_recovery(&mut self) {
        self.recovery = None;
        for place in &mut self.places {
            place.recovering = false;
            place.read = false;
            place.raised = false;
        }
    }

    fn tokens_are_unique(&self) -> bool {
        let granted = |client: &&Client| client.was_granted();
        self.clients.iter().filter(granted).enumerate().all(|(number, client)| {
            self.clients.iter().filter(granted).skip(number + 1).all(|other| other.token != client.token)
        })
    }

    fn tokens_rise(&self) -> bool {
        self.clients.iter().all(|client| !client.out_of_order)
    }

    fn is_shared(&self) -> bool {
        self.clients.iter().filter(|client| client.holds()).count() > 1
    }

    fn can_be_granted(&self, after_commit: bool) -> bool {
        self.clients.iter().enumerate().any(|(number, client)| {
            let fits =
                |token| client.target() == after_commit.then_some(token) && self.majority_at(number, token);
            client.phase == Phase::Asking && self.votes(number).tokens().any(fits)
        })
    }

    /// A node has come to a holder's token, though neither its acquire nor anybody else's has been there.
    fn was_healed(&self) -> bool {
        self.clients.iter().enumerate().any(|(number, holder)| {
            let healed =
                |place: &Place<CLIENTS>| place.seats[number].acquires[0] && place.node.floor == holder.token;
            let others = self.clients.iter().filter(|client| client.phase == Phase::Idle).count();
            holder.holds() && others + 1 == CLIENTS && self.places.iter().any(healed)
        })
    }
}

/// What a holder does to keep its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewals {
    None,
    /// Any number of renewals, and heals once a majority has answered them.
    Rounds,
    /// Any number of heals at any time: everything a renewal can do to a node, and more.
    Unconditional,
}

/// How large a world is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Where the counters of the nodes may start.
    pub(crate) floors: &'static [[Token; NODES]],
    /// What a node may make of a client's hint.
    pub(crate) hints: &'static [Token],
    /// What a client may propose in a plain take. None at all, and nobody takes plainly.
    pub(crate) proposals: &'static [Token],
    /// How often a client may start over.
    pub(crate) restarts: u8,
    pub(crate) renewals: Renewals,
    /// How many acquires of each client may arrive twice.
    pub(crate) duplicates: u8,
    /// How often a node may lose its data, and how many may be without at once.
    pub(crate) losses: u8,
    pub(crate) lost_at_once: usize,
    pub(crate) margin: Token,
    /// How far the nodes' clocks go while a lost node waits. They start at zero.
    pub(crate) wait: Token,
    /// Locks expire, at any moment. Where they do not, they are released.
    pub(crate) expiry: bool,
    /// No attempt is granted that was first sent more than max_ttl ago.
    pub(crate) clocks_can_be_trusted: bool,
    /// Worlds that can only behave alike are taken for one.
    pub(crate) normal: bool,
}

/// A world of some size that goes by some rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redlock<const CLIENTS: usize> {
    pub(crate) size: Size,
    pub(crate) rules: Rules,
}

impl<const CLIENTS: usize> Redlock<CLIENTS> {
    /// Where nothing expires and nothing is lost, even one at a time is promised without clocks.
    fn is_exclusive(&self) -> bool {
        !self.size.expiry && self.size.losses == 0
    }
}

impl<const CLIENTS: usize> Model for Redlock<CLIENTS> {
    type State = World<CLIENTS>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        let place = |floor| Place {
            node: Node::new(floor),
            waited: false,
            recovering: false,
            late_member: None,
            read: false,
            raised: false,
            seats: [Seat::default(); CLIENTS],
        };
        let world = |floors: &[Token; NODES]| World {
            places: floors.map(place),
            clients: std::array::from_fn(|_| Client::new(self.size.duplicates)),
            recovery: None,
            losses: self.size.losses,
            restarts: self.size.restarts,
        };
        self.size.floors.iter().map(world).collect()
    }

    /// Nothing follows a broken promise, so that a counterexample ends with the step that broke it.
    fn actions(&self, world: &Self::State, steps: &mut Vec<Step>) {
        if world.tokens_are_unique() && world.tokens_rise() && !(self.is_exclusive() && world.is_shared()) {
            self.possible(world, steps);
        }
    }

    fn next_state(&self, world: &Self::State, step: Step) -> Option<Self::State> {
        let mut next = world.clone();
        self.take(&mut next, step)?;
        if self.size.normal {
            self.normalize(&mut next);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(UNIQUE, |_, world: &World<CLIENTS>| world.tokens_are_unique()),
            Property::always(ORDERED, |_, world: &World<CLIENTS>| world.tokens_rise()),
            Property::sometimes("all are granted", |_, world: &World<CLIENTS>| {
                world.clients.iter().all(Client::was_granted)
            }),
            Property::sometimes("granted in one round", |_, world: &World<CLIENTS>| {
                world.can_be_granted(false)
            }),
            Property::sometimes("granted by a commit", |_, world: &World<CLIENTS>| {
                world.can_be_granted(true)
            }),
        ];
        if self.is_exclusive() {
            properties.push(Property::always(EXCLUSIVE, |_, world: &World<CLIENTS>| !world.is_shared()));
        }
        if self.size.losses > 0 {
            properties.push(Property::sometimes(
                "a node is recovered",
                |model: &Self, world: &World<CLIENTS>| {
                    world.places.iter().any(|place| place.node.was_lost() && place.node.votes(&model.rules))
                },
            ));
        }
        if self.size.lost_at_once == NODES {
            properties.push(Property::sometimes(
                "all nodes are recovered",
                |model: &Self, world: &World<CLIENTS>| {
                    world.places.iter().all(|place| place.node.was_lost() && place.node.votes(&model.rules))
                },
            ));
        }
        if self.size.restarts > 0 {
            properties.push(Property::sometimes(
                "a second attempt is granted",
                |_, world: &World<CLIENTS>| {
                    world.clients.iter().any(|client| client.holds() && client.attempt > 0)
                },
            ));
        }
        if !self.size.proposals.is_empty() {
            properties.push(Property::sometimes("granted by a plain take", |_, world: &World<CLIENTS>| {
                world.is_held_after_plain_take(false)
            }));
        }
        // Where worlds that are alike are one, the packet is not looked at any longer once that is sure.
        if !self.size.proposals.is_empty() && !self.size.normal {
            properties
                .push(Property::sometimes("SET says ok, and ZADD says 0", |_, world: &World<CLIENTS>| {
                    world.is_taken_in_vain()
                }));
        }
        if !self.size.proposals.is_empty() && self.size.restarts > 0 {
            properties.push(Property::sometimes(
                "granted by scripts after a plain take failed",
                |_, world: &World<CLIENTS>| world.is_held_after_plain_take(true),
            ));
        }
        if self.size.renewals == Renewals::Rounds {
            properties.push(Property::sometimes("a majority is renewed", |_, world: &World<CLIENTS>| {
                world.clients.iter().any(|client| client.phase == Phase::Renewed)
            }));
        }
        if self.size.renewals != Renewals::None {
            properties.push(Property::sometimes("a node is healed", |_, world: &World<CLIENTS>| {
                world.was_healed()
            }));
        }
        properties
    }
}
