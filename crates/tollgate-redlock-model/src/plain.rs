//! The plain take: three commands in one packet, without a script. Whatever else there is may come between them.

use crate::client::{Client, Phase};
use crate::node::{Id, Lock, Node, Token};
use crate::rules::Rules;
use crate::steps::Step;
use crate::world::{Place, Redlock, World};

/// A packet and its duplicate.
pub(crate) const PACKETS: usize = 2;

/// How far a node has come with a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Packet {
    /// There is none, or nothing can come of it any more.
    #[default]
    None,
    OnItsWay,
    /// SET was executed, and this is what it said.
    Set {
        ok: bool,
    },
    /// So was ZADD, and it is a vote if GET finds the node voting, with a G below the token.
    Added,
}

/// What a packet is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Set { again: bool },
    Add,
    Get,
}

impl Node {
    /// SET L "(id, ~token)" NX. It asks nobody whether the node votes.
    fn set(&mut self, id: Id, token: Token) -> bool {
        let free = self.lock.is_none();
        if free {
            self.lock = Some(Lock { id, token, plain: true });
        }
        free
    }

    /// ZADD F GT CH token: whether F rose.
    fn add(&mut self, token: Token) -> bool {
        let rises = token > self.floor;
        self.floor = self.floor.max(token);
        rises
    }

    /// GET member, as the client judges it.
    pub(crate) fn lets(&self, rules: &Rules, token: Token) -> bool {
        self.votes(rules) && (self.general < token || !rules.plain_vote_heeds_general)
    }
}

impl<const CLIENTS: usize> Redlock<CLIENTS> {
    pub(crate) fn propose(&self, world: &mut World<CLIENTS>, client: usize, token: Token) {
        world.clients[client].phase = Phase::Asking;
        world.clients[client].proposal = Some(token);
        world.places.iter_mut().for_each(|place| place.seats[client].packets[0] = Packet::OnItsWay);
    }

    /// What may be executed next of this client's packets to this node.
    pub(crate) fn commands(
        &self,
        world: &World<CLIENTS>,
        client: usize,
        place: usize,
        steps: &mut Vec<Step>,
    ) {
        let Place { node, seats, .. } = &world.places[place];
        let may_expire = self.size.expiry && node.lock.is_some();
        let mut may_repeat = world.clients[client].duplicates > 0;
        for (packet, state) in seats[client].packets.iter().enumerate() {
            let command = match state {
                Packet::None if std::mem::take(&mut may_repeat) => Command::Set { again: true },
                Packet::None => continue,
                Packet::OnItsWay => Command::Set { again: false },
                Packet::Set { .. } => Command::Add,
                Packet::Added => Command::Get,
            };
            steps.push(Step::Execute { client, place, packet, command, expired: false });
            if may_expire && matches!(command, Command::Set { .. }) {
                steps.push(Step::Execute { client, place, packet, command, expired: true });
            }
        }
    }

    /// Executes a command, or `None` if nothing ever comes of it.
    pub(crate) fn execute(
        &self,
        world: &mut World<CLIENTS>,
        client: usize,
        place: usize,
        packet: usize,
        command: Command,
    ) -> Option<()> {
        let (id, token) = (self.id(client, 0), world.clients[client].proposal?);
        let counts = self.counts_plain_votes(&world.clients[client]);
        let Place { node, seats, .. } = &mut world.places[place];
        let seat = &mut seats[client];
        let state = &mut seat.packets[packet];
        match command {
            Command::Set { again } => {
                let ok = node.set(id, token);
                if again && !ok && node.floor >= token {
                    return None;
                }
                world.clients[client].duplicates -= u8::from(again);
                *state = Packet::Set { ok };
            }
            Command::Add => {
                let rose = node.add(token) || !self.rules.plain_vote_asks_what_zadd_said;
                *state =
                    if *state == (Packet::Set { ok: true }) && rose { Packet::Added } else { Packet::None };
            }
            Command::Get => {
                *state = Packet::None;
                if counts && node.lets(&self.rules, token) {
                    seat.votes.add(token);
                }
            }
        }
        Some(())
    }

    /// Whoever is granted, gave up or went on to the scripts hears no more of it.
    pub(crate) fn counts_plain_votes(&self, client: &Client) -> bool {
        let counts = client.attempt == 0 || !self.rules.tally_is_the_attempts_own;
        counts && client.phase == Phase::Asking
    }
}

impl<const CLIENTS: usize> World<CLIENTS> {
    /// A node's SET said ok, and its ZADD can only say 0.
    pub(crate) fn is_taken_in_vain(&self) -> bool {
        self.clients.iter().enumerate().any(|(number, client)| {
            let in_vain = |Place { node, seats, .. }: &Place<CLIENTS>| {
                let is_set = seats[number].packets.contains(&Packet::Set { ok: true });
                is_set && client.proposal.is_some_and(|token| token <= node.floor)
            };
            client.phase == Phase::Asking && self.places.iter().any(in_vain)
        })
    }

    /// Some client holds by a plain take, or by the scripts after one that failed.
    pub(crate) fn is_held_after_plain_take(&self, by_scripts: bool) -> bool {
        self.clients
            .iter()
            .any(|client| client.holds() && client.proposal.is_some() && (client.attempt > 0) == by_scripts)
    }
}
