//! Worlds that can only behave alike are made one, so that there are fewer to look at.

use crate::client::{ATTEMPTS, Client, Phase};
use crate::world::{NODES, Redlock, Renewals, World};

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
            let owner = &world.clients[usize::from(lock.id) / ATTEMPTS];
            let may_ask = owner.phase == Phase::Asking || world.may_start_over(owner);
            let may_commit = owner.targets.iter().any(Option::is_some);
            let may_renew = self.size.renewals == Renewals::Rounds && owner.phase == Phase::Held;
            let needed = may_ask || may_commit || may_renew;
            if !needed || self.heals_at_will(owner) {
                world.places[place].node.lock = None;
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
