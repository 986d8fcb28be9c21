//! Worlds that can only behave alike are made one, so that there are fewer to look at.

use crate::client::{ATTEMPTS, Client, Phase, Seat};
use crate::plain::Packet;
use crate::world::{NODES, Place, Redlock, Renewals, World};

impl<const CLIENTS: usize> Redlock<CLIENTS> {
    /// Nodes and clients have no names, and a lock that nothing depends on any more is as good as expired.
    pub(crate) fn normalize(&self, world: &mut World<CLIENTS>) {
        if self.size.expiry {
            self.drop_idle_locks(world);
        }
        self.drop_vain_packets(world);
        sort_clients(world);
        world.places.sort_unstable();
    }

    /// A heal of this client may arrive anywhere at any time.
    pub(crate) fn heals_at_will(&self, client: &Client) -> bool {
        match self.size.renewals {
            Renewals::None => false,
            Renewals::Rounds => client.phase == Phase::Renewed,
            Renewals::Unconditional => client.was_granted(),
        }
    }

    /// Others take a lock that expires at any moment for none. To its owner it matters while a vote may come of it,
    /// or a commit or a renewal may find it; whoever can heal it at any time can have it back.
    fn drop_idle_locks(&self, world: &mut World<CLIENTS>) {
        for place in 0..NODES {
            let Some(lock) = world.places[place].node.lock else { continue };
            if !self.needs_locks(world, &world.clients[usize::from(lock.id) / ATTEMPTS]) {
                world.places[place].node.lock = None;
            }
        }
    }

    /// Whether it matters to this client what became of its locks. A plain take does not ask.
    fn needs_locks(&self, world: &World<CLIENTS>, owner: &Client) -> bool {
        let asks = owner.phase == Phase::Asking;
        let may_ask = asks && !owner.is_plain(owner.attempt) || world.may_start_over(owner);
        let may_commit = owner.targets.iter().any(Option::is_some);
        let may_renew = self.size.renewals == Renewals::Rounds && (asks || owner.phase == Phase::Held);
        (may_ask || may_commit || may_renew) && !self.heals_at_will(owner)
    }

    /// Packets of which nothing can come any more are as good as none, and what is sure to follow follows at once.
    fn drop_vain_packets(&self, world: &mut World<CLIENTS>) {
        for client in 0..CLIENTS {
            let Some(token) = world.clients[client].proposal else { continue };
            let counts = self.counts_plain_votes(&world.clients[client]);
            let lock_matters = !self.size.expiry || self.needs_locks(world, &world.clients[client]);
            for Place { node, seats, .. } in &mut world.places {
                let Seat { packets, votes, .. } = &mut seats[client];
                // All that is left to do is to raise F.
                let rest = if node.floor < token { Packet::Set { ok: false } } else { Packet::None };
                let may_vote = counts && (node.floor < token || !self.rules.plain_vote_asks_what_zadd_said);
                for packet in packets.iter_mut() {
                    match packet {
                        Packet::OnItsWay if !(lock_matters || may_vote) => *packet = rest,
                        Packet::Set { ok } if !(*ok && may_vote) => *packet = rest,
                        Packet::Added if !counts => *packet = Packet::None,
                        // While a node votes its G only rises, and a vote may be used as late as its client likes:
                        // a later GET is never better. A node that does not vote yet may do so by then.
                        Packet::Added if node.votes(&self.rules) => {
                            *packet = Packet::None;
                            if node.lets(&self.rules, token) {
                                votes.add(token);
                            }
                        }
                        _ => {}
                    }
                }
                packets.sort_unstable();
            }
        }
    }
}

/// Puts clients into an order of what they are. Those that look alike stay as they are: that costs states, and hides
/// nothing.
fn sort_clients<const CLIENTS: usize>(world: &mut World<CLIENTS>) {
    let mut order: [usize; CLIENTS] = std::array::from_fn(|client| client);
    order.sort_by(|one, other| world.clients[*one].cmp(&world.clients[*other]));
    if order.is_sorted() {
        return;
    }
    world.clients = order.map(|client| world.clients[client].clone());
    for place in &mut world.places {
        place.seats = order.map(|client| place.seats[client]);
        if let Some(lock) = &mut place.node.lock {
            let (owner, attempt) = (usize::from(lock.id) / ATTEMPTS, usize::from(lock.id) % ATTEMPTS);
            let now = order.iter().position(|client| *client == owner).expect("every owner is a client");
            lock.id = u8::try_from(now * ATTEMPTS + attempt).expect("there are few clients");
        }
    }
}
