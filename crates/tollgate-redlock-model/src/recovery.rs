//! Nodes lose their data, and are recovered from the others.

use crate::client::Phase;
use crate::node::Token;
use crate::steps::Step;
use crate::world::{MAJORITY, NODES, Place, Recovery, Redlock, World};

impl<const CLIENTS: usize> Redlock<CLIENTS> {
    pub(crate) fn node_steps(&self, world: &World<CLIENTS>, place: usize, steps: &mut Vec<Step>) {
        let votes = |place: usize| world.places[place].node.votes(&self.rules);
        let without = (0..NODES).filter(|place| !votes(*place)).count();
        if world.losses > 0 && without + usize::from(votes(place)) <= self.size.lost_at_once {
            steps.push(Step::Lose { place });
        }
        let here = &world.places[place];
        if !votes(place) && !here.waited {
            steps.push(Step::WaitIsOver { place });
        }
        if here.late_member.is_some() && !votes(place) {
            steps.push(Step::JoinLate { place });
        }
        if without > 0 {
            self.recovery_steps(world, place, steps);
        }
    }

    fn recovery_steps(&self, world: &World<CLIENTS>, place: usize, steps: &mut Vec<Step>) {
        let here = &world.places[place];
        let all_waited = || world.places.iter().all(|place| place.waited || place.node.votes(&self.rules));
        let may_begin = || all_waited() || !self.rules.recovery_reads_after_its_wait;
        let may_read = || self.whole(world) || here.node.votes(&self.rules);
        let all_read = self.all_read(world);
        if !all_read && !here.read && may_read() && (world.recovery.is_some() || may_begin()) {
            steps.push(Step::Read { place });
        }
        if all_read && here.read && !here.raised && self.rules.recovery_raises_the_others {
            steps.push(Step::Raise { place });
        }
        let raised = |place: &Place<CLIENTS>| !place.read || self.is_raised(world, place);
        if all_read && here.recovering && here.waited && world.places.iter().all(raised) {
            steps.push(Step::Join { place });
        }
    }

    /// Too few vote for a recovery that reads a majority of others: it takes all.
    fn whole(&self, world: &World<CLIENTS>) -> bool {
        let voting = || world.count(|place| place.node.votes(&self.rules));
        world.recovery.map_or_else(|| voting() < MAJORITY, |recovery| recovery.whole)
    }

    fn all_read(&self, world: &World<CLIENTS>) -> bool {
        let needed = if self.whole(world) { NODES } else { MAJORITY };
        world.count(|place| place.read) >= needed
    }

    fn is_raised(&self, world: &World<CLIENTS>, place: &Place<CLIENTS>) -> bool {
        place.raised || !self.rules.recovery_raises_the_others && self.all_read(world)
    }

    pub(crate) fn lose(&self, world: &mut World<CLIENTS>, place: usize) {
        world.losses -= 1;
        let lost = &mut world.places[place];
        lost.node.forget();
        // Where time is not to be trusted nothing is made of it, so that it need not be told apart either.
        lost.waited = !self.size.clocks_can_be_trusted;
        for (seat, client) in lost.seats.iter_mut().zip(&world.clients) {
            // Whatever was sent before carries the id of another run: it will never be answered but RECOVERING.
            if self.rules.run_id_is_checked {
                seat.cut();
            }
            seat.predates_loss = client.phase == Phase::Asking && self.size.clocks_can_be_trusted;
        }
        if world.recovery.is_some() {
            self.disturb_recovery(world, place);
        }
    }

    /// A node that was raised may be lost: the recovery has done with it, and does not notice. One that was only
    /// read refuses to be raised, and `member` is refused by a node that has started again.
    fn disturb_recovery(&self, world: &mut World<CLIENTS>, place: usize) {
        world.places[place].recovering = false;
        let refuses = !self.is_raised(world, &world.places[place]);
        if refuses || world.count(|place| place.recovering) == 0 {
            world.forget_recovery();
        }
    }

    pub(crate) fn read(&self, world: &mut World<CLIENTS>, place: usize) {
        if world.recovery.is_none() {
            let time = self.size.wait * (self.size.losses - world.losses);
            world.recovery = Some(Recovery { highest: 0, time, whole: self.whole(world) });
            for place in &mut world.places {
                place.recovering = !place.node.votes(&self.rules);
            }
        }
        let highest = world.places[place].node.highest();
        world.places[place].read = true;
        if let Some(recovery) = &mut world.recovery {
            recovery.highest = recovery.highest.max(highest);
        }
    }

    pub(crate) fn wait_is_over(&self, world: &mut World<CLIENTS>, place: usize) {
        world.places[place].waited = true;
        for client in 0..CLIENTS {
            let waited_for = std::mem::take(&mut world.places[place].seats[client].predates_loss);
            if waited_for && world.clients[client].phase == Phase::Asking {
                world.clients[client].phase = Phase::TooLate;
                world.places.iter_mut().for_each(|place| place.seats[client].close_tally());
            }
        }
    }

    /// The G of the recovery that is under way.
    fn general(&self, world: &World<CLIENTS>) -> Option<Token> {
        let Recovery { highest, time, .. } = world.recovery?;
        Some(if self.rules.margin_is_for_times_alone {
            highest.max(time + self.size.margin)
        } else {
            highest.max(time) + self.size.margin
        })
    }

    pub(crate) fn raise(&self, world: &mut World<CLIENTS>, place: usize) -> Option<()> {
        let general = self.general(world)?;
        world.places[place].node.raise(general);
        world.places[place].raised = true;
        Some(())
    }

    pub(crate) fn join(&self, world: &mut World<CLIENTS>, place: usize) -> Option<()> {
        let general = self.general(world)?;
        let joined = &mut world.places[place];
        joined.node.join(general);
        joined.waited = false;
        joined.recovering = false;
        // Where another start refuses it, it never does anything.
        joined.late_member = (!self.rules.member_is_of_one_start).then_some(general);
        if world.count(|place| place.recovering) == 0 {
            world.forget_recovery();
        }
        Some(())
    }
}
