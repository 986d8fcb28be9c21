//! What a step makes of the world.

use crate::client::{ATTEMPTS, Client, Phase};
use crate::node::{Answer, Id, Token};
use crate::steps::{Request, Step};
use crate::world::{MAJORITY, Place, Redlock, World};

impl<const CLIENTS: usize> Redlock<CLIENTS> {
    /// Takes a step, or `None` if nothing changes by it.
    pub(crate) fn take(&self, world: &mut World<CLIENTS>, step: Step) -> Option<()> {
        match step {
            Step::Start { client } => {
                world.clients[client].granted_before = world.largest_granted();
                self.ask(world, client);
            }
            Step::StartPlainly { client, token } => {
                world.clients[client].granted_before = world.largest_granted();
                self.propose(world, client, token);
            }
            Step::StartOver { client } => self.start_over(world, client),
            Step::Retry { client } => {
                world.clients[client].duplicates -= 1;
                world.places.iter_mut().for_each(|place| place.seats[client].predates_loss = false);
            }
            Step::Commit { client, token } => {
                let attempt = usize::from(world.clients[client].attempt);
                world.clients[client].targets[attempt] = Some(token);
            }
            Step::Grant { client, token } => {
                world.clients[client].grant(token);
                world.places.iter_mut().for_each(|place| place.seats[client].close_tally());
            }
            Step::Release { client } => {
                world.clients[client].phase = Phase::Released;
                self.send_release(world, client);
            }
            Step::Arrive { client, place, request, expired, hint } => {
                if expired {
                    world.places[place].node.lock = None;
                }
                self.arrive(world, client, place, request, hint)?;
            }
            Step::Execute { client, place, packet, command, expired } => {
                if expired {
                    world.places[place].node.lock = None;
                }
                self.execute(world, client, place, packet, command)?;
            }
            Step::Lose { place } => self.lose(world, place),
            Step::WaitIsOver { place } => self.wait_is_over(world, place),
            Step::Read { place } => self.read(world, place),
            Step::Raise { place } => self.raise(world, place)?,
            Step::Join { place } => self.join(world, place)?,
            Step::JoinLate { place } => {
                let general = world.places[place].late_member.take()?;
                world.places[place].node.join(general);
            }
        }
        Some(())
    }

    pub(crate) fn id(&self, client: usize, attempt: u8) -> Id {
        let own = if self.rules.attempts_have_own_ids { attempt } else { 0 };
        u8::try_from(client * ATTEMPTS).expect("there are few clients") + own
    }

    fn ask(&self, world: &mut World<CLIENTS>, client: usize) {
        world.clients[client].phase = Phase::Asking;
        let attempt = usize::from(world.clients[client].attempt);
        world.places.iter_mut().for_each(|place| place.seats[client].acquires[attempt] = true);
    }

    fn start_over(&self, world: &mut World<CLIENTS>, client: usize) {
        world.restarts -= 1;
        self.send_release(world, client);
        for seat in world.places.iter_mut().map(|place| &mut place.seats[client]) {
            if self.rules.tally_is_the_attempts_own {
                seat.close_tally();
            }
            seat.predates_loss = false;
        }
        world.clients[client].attempt += 1;
        self.ask(world, client);
    }

    /// Where locks expire at any moment a release adds nothing, and is not sent.
    fn send_release(&self, world: &mut World<CLIENTS>, client: usize) {
        let attempt = usize::from(world.clients[client].attempt);
        if !self.size.expiry {
            world.places.iter_mut().for_each(|place| place.seats[client].releases[attempt] = true);
        }
    }

    fn arrive(
        &self,
        world: &mut World<CLIENTS>,
        client: usize,
        place: usize,
        request: Request,
        hint: Token,
    ) -> Option<()> {
        let before = (world.places[place].node.clone(), world.places[place].seats[client]);
        let answer = self.answer(world, client, place, request, hint)?;
        let Client { phase, attempt: current, .. } = world.clients[client];
        let seat = &mut world.places[place].seats[client];
        match (request, answer) {
            // Gone is as good as released: the next attempt may go on.
            (Request::Release { .. }, _) => {}
            // A refusal changes nothing: the request might as well be still on its way.
            (_, Answer::Refused) => return None,
            (Request::Acquire { attempt, .. } | Request::Commit { attempt }, Answer::Ok(token)) => {
                let counts = attempt == current || !self.rules.tally_is_the_attempts_own;
                if counts && phase == Phase::Asking {
                    seat.votes.add(token);
                }
            }
            (Request::Renew, Answer::Ok(_)) => seat.renewed = phase == Phase::Held,
            (Request::Heal, Answer::Ok(_)) => {}
        }
        if before == (world.places[place].node.clone(), world.places[place].seats[client]) {
            return None;
        }
        if phase == Phase::Held && world.count(|place| place.seats[client].renewed) >= MAJORITY {
            world.clients[client].phase = Phase::Renewed;
            world.places.iter_mut().for_each(|place| place.seats[client].renewed = false);
        }
        Some(())
    }

    /// What the node says to a request, which is on its way no more.
    fn answer(
        &self,
        world: &mut World<CLIENTS>,
        client: usize,
        place: usize,
        request: Request,
        hint: Token,
    ) -> Option<Answer> {
        let heals_at_will = self.heals_at_will(&world.clients[client]);
        let id = match request {
            Request::Acquire { attempt, .. } | Request::Commit { attempt } | Request::Release { attempt } => {
                self.id(client, attempt)
            }
            Request::Renew | Request::Heal => self.id(client, world.clients[client].attempt),
        };
        let Place { node, seats, .. } = &mut world.places[place];
        let (client, seat, rules) = (&mut world.clients[client], &mut seats[client], &self.rules);
        Some(match request {
            Request::Acquire { attempt, again } => {
                let attempt = usize::from(attempt);
                let overtakes = attempt > 0 && seat.releases[attempt - 1];
                if overtakes && rules.release_comes_before_next_acquire {
                    return None;
                }
                if again {
                    client.duplicates -= 1;
                } else {
                    seat.acquires[attempt] = false;
                }
                node.acquire(rules, id, hint)
            }
            Request::Commit { attempt } => {
                if heals_at_will {
                    // Its lock was taken off the books; see `normalize`.
                    node.heal(rules, id, client.token);
                }
                node.commit(rules, id, client.targets[usize::from(attempt)]?)
            }
            Request::Release { attempt } => {
                seat.releases[usize::from(attempt)] = false;
                node.release(rules, id)
            }
            Request::Renew => node.renew(rules, id, client.token),
            Request::Heal => node.heal(rules, id, client.token),
        })
    }
}
