//! What can happen next: a client does something, a request arrives, a node loses its data, a recovery goes on.

use crate::client::{Client, Phase};
use crate::node::{Answer, Id, Token};
use crate::world::{MAJORITY, NODES, Recovery, Redlock, Renewals, World};

/// A request that a client sends to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire { attempt: u8, again: bool },
    Commit { attempt: u8 },
    Release { attempt: u8 },
    Renew,
    Heal,
}

/// One step of the world. A place is a position among the sorted places before the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Start {
        client: usize,
    },
    /// It gives up what it has and asks anew.
    StartOver {
        client: usize,
    },
    Commit {
        client: usize,
        token: Token,
    },
    Grant {
        client: usize,
        token: Token,
    },
    Release {
        client: usize,
    },
    /// A request arrives, perhaps just after the lock that was there expired.
    Arrive {
        client: usize,
        place: usize,
        request: Request,
        expired: bool,
        hint: Token,
    },
    Lose {
        place: usize,
    },
    /// max_ttl has passed since the node lost its data.
    WaitIsOver {
        place: usize,
    },
    /// The steps of a recovery.
    Read {
        place: usize,
    },
    Raise {
        place: usize,
    },
    Join {
        place: usize,
    },
}

impl<const CLIENTS: usize> Redlock<CLIENTS> {
    /// Every step that may do something.
    pub(crate) fn possible(&self, world: &World<CLIENTS>, steps: &mut Vec<Step>) {
        for client in 0..CLIENTS {
            self.client_steps(world, client, steps);
            for place in 0..NODES {
                self.arrivals(world, client, place, steps);
            }
        }
        for place in 0..NODES {
            self.node_steps(world, place, steps);
        }
    }

    fn client_steps(&self, world: &World<CLIENTS>, client: usize, steps: &mut Vec<Step>) {
        let Client { phase, attempt, .. } = world.clients[client];
        if phase == Phase::Idle {
            steps.push(Step::Start { client });
        }
        if phase == Phase::Asking {
            for token in world.votes(client).tokens() {
                let stands = world.majority_at(client, token);
                let largest = world.largest_of_a_majority(client, token);
                if stands || largest && !self.rules.grant_needs_majority_at_token {
                    steps.push(Step::Grant { client, token });
                } else if largest && world.clients[client].target().is_none() {
                    steps.push(Step::Commit { client, token });
                }
            }
        }
        if matches!(phase, Phase::Asking | Phase::TooLate) && attempt + 1 < self.size.attempts {
            steps.push(Step::StartOver { client });
        }
        if world.clients[client].holds() && !self.size.expiry {
            steps.push(Step::Release { client });
        }
    }

    fn arrivals(&self, world: &World<CLIENTS>, client: usize, place: usize, steps: &mut Vec<Step>) {
        let Client { phase, attempt: current, targets, duplicates, .. } = world.clients[client];
        let seat = &world.places[place].seats[client];
        let lock = world.places[place].node.lock;
        let may_expire = self.size.expiry && lock.is_some();
        let mut arrive = |request, expired, hint| {
            steps.push(Step::Arrive { client, place, request, expired, hint });
        };
        if phase == Phase::Idle {
            return;
        }
        for attempt in 0..=current {
            let on_its_way = seat.acquires[usize::from(attempt)];
            if on_its_way || duplicates > 0 {
                let request = Request::Acquire { attempt, again: !on_its_way };
                if lock.is_some() {
                    arrive(request, false, 0);
                }
                if lock.is_none() || may_expire {
                    self.size.hints.iter().for_each(|hint| arrive(request, may_expire, *hint));
                }
            }
            if targets[usize::from(attempt)].is_some() {
                arrive(Request::Commit { attempt }, false, 0);
            }
            if seat.releases[usize::from(attempt)] {
                arrive(Request::Release { attempt }, false, 0);
            }
        }
        if world.clients[client].was_granted() {
            let renewals = self.size.renewals;
            if renewals == Renewals::Rounds {
                arrive(Request::Renew, false, 0);
            }
            if renewals == Renewals::Unconditional || renewals == Renewals::Rounds && phase != Phase::Held {
                arrive(Request::Heal, may_expire, 0);
            }
        }
    }

    fn node_steps(&self, world: &World<CLIENTS>, place: usize, steps: &mut Vec<Step>) {
        let votes = |place: usize| world.places[place].node.votes(&self.rules);
        let without = (0..NODES).filter(|place| !votes(*place)).count();
        if world.losses > 0 && without + usize::from(votes(place)) <= self.size.lost_at_once {
            steps.push(Step::Lose { place });
        }
        let here = &world.places[place];
        if !votes(place) && !here.waited {
            steps.push(Step::WaitIsOver { place });
        }
        if without == 0 {
            return;
        }
        let whole = world.recovery.map_or(NODES - without < MAJORITY, |recovery| recovery.whole);
        let needed = if whole { NODES } else { MAJORITY };
        let all_waited = || world.places.iter().all(|place| place.waited || place.node.votes(&self.rules));
        let may_read = !self.rules.recovery_reads_after_its_wait || all_waited();
        let all_read = world.count(|place| place.read) >= needed;
        if !all_read && !here.read && may_read && (whole || votes(place)) {
            steps.push(Step::Read { place });
        }
        if all_read && here.read && !here.raised && self.rules.recovery_raises_the_others {
            steps.push(Step::Raise { place });
        }
        let all_raised = !self.rules.recovery_raises_the_others
            || world.places.iter().all(|place| place.read == place.raised);
        if all_read && all_raised && !votes(place) && here.waited {
            steps.push(Step::Join { place });
        }
    }

    /// Takes a step, or `None` if nothing changes by it.
    pub(crate) fn take(&self, world: &mut World<CLIENTS>, step: Step) -> Option<()> {
        match step {
            Step::Start { client } => {
                world.clients[client].granted_before = world.largest_granted();
                self.ask(world, client);
            }
            Step::StartOver { client } => self.start_over(world, client),
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
            Step::Lose { place } => self.lose(world, place),
            Step::WaitIsOver { place } => self.wait_is_over(world, place),
            Step::Read { place } => {
                let voting = world.count(|place| place.node.votes(&self.rules));
                let start = Recovery { highest: 0, whole: voting < MAJORITY };
                let highest = world.places[place].node.highest();
                let recovery = world.recovery.get_or_insert(start);
                recovery.highest = recovery.highest.max(highest);
                world.places[place].read = true;
            }
            Step::Raise { place } => {
                let general = world.recovery?.highest + self.size.margin;
                world.places[place].node.raise(general);
                world.places[place].raised = true;
            }
            Step::Join { place } => {
                let general = world.recovery?.highest + self.size.margin;
                world.places[place].node.join(general);
                world.places[place].waited = false;
                if world.count(|place| !place.node.votes(&self.rules)) == 0 {
                    world.forget_recovery();
                }
            }
        }
        Some(())
    }

    fn id(&self, client: usize, attempt: u8) -> Id {
        let own = if self.rules.attempts_have_own_ids { attempt } else { 0 };
        u8::try_from(client).expect("there are few clients") * 2 + own
    }

    fn ask(&self, world: &mut World<CLIENTS>, client: usize) {
        world.clients[client].phase = Phase::Asking;
        let attempt = usize::from(world.clients[client].attempt);
        world.places.iter_mut().for_each(|place| place.seats[client].acquires[attempt] = true);
    }

    fn start_over(&self, world: &mut World<CLIENTS>, client: usize) {
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
        let Client { phase, attempt: current, targets, token: granted, .. } = world.clients[client];
        let node = &mut world.places[place].node;
        let seat = &mut world.places[place].seats[client];
        let before = (node.clone(), *seat);
        let of_attempt = match request {
            Request::Acquire { attempt, .. } | Request::Commit { attempt } | Request::Release { attempt } => {
                attempt
            }
            Request::Renew | Request::Heal => current,
        };
        let id = self.id(client, of_attempt);
        let of_attempt_index = usize::from(of_attempt);
        let answer = match request {
            Request::Acquire { again, .. } => {
                let overtakes = of_attempt > 0 && seat.releases[of_attempt_index - 1];
                if overtakes && self.rules.release_comes_before_next_acquire {
                    return None;
                }
                if again {
                    world.clients[client].duplicates -= 1;
                } else {
                    seat.acquires[of_attempt_index] = false;
                }
                node.acquire(&self.rules, id, hint)
            }
            Request::Commit { .. } => {
                if self.heals_at_will(&world.clients[client]) {
                    // Its lock was taken off the books; see `normalize`.
                    node.heal(&self.rules, id, granted);
                }
                node.commit(&self.rules, id, targets[of_attempt_index]?)
            }
            Request::Release { .. } => {
                seat.releases[of_attempt_index] = false;
                let _ = node.release(&self.rules, id);
                // Gone is as good as released: the next attempt may go on.
                return Some(());
            }
            Request::Renew => node.renew(&self.rules, id, granted),
            Request::Heal => node.heal(&self.rules, id, granted),
        };
        // A refusal changes nothing: the request might as well be still on its way.
        let Answer::Ok(token) = answer else { return None };
        let is_vote = matches!(request, Request::Acquire { .. } | Request::Commit { .. });
        let counts = of_attempt == current || !self.rules.tally_is_the_attempts_own;
        if is_vote && counts && phase == Phase::Asking {
            seat.votes.add(token);
        }
        seat.renewed |= request == Request::Renew && phase == Phase::Held;
        let changed = before != (node.clone(), *seat);
        let is_retry = matches!(request, Request::Acquire { again: true, .. }) && phase == Phase::Asking;
        if is_retry && !self.rules.validity_counts_from_first_send {
            world.places.iter_mut().for_each(|place| place.seats[client].predates_loss = false);
        } else if !changed {
            return None;
        }
        if phase == Phase::Held && world.count(|place| place.seats[client].renewed) >= MAJORITY {
            world.clients[client].phase = Phase::Renewed;
            world.places.iter_mut().for_each(|place| place.seats[client].renewed = false);
        }
        Some(())
    }

    fn lose(&self, world: &mut World<CLIENTS>, place: usize) {
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
        if self.rules.recovery_minds_new_losses {
            world.forget_recovery();
        }
    }

    fn wait_is_over(&self, world: &mut World<CLIENTS>, place: usize) {
        world.places[place].waited = true;
        for client in 0..CLIENTS {
            let waited_for = std::mem::take(&mut world.places[place].seats[client].predates_loss);
            if waited_for && world.clients[client].phase == Phase::Asking {
                world.clients[client].phase = Phase::TooLate;
                world.places.iter_mut().for_each(|place| place.seats[client].close_tally());
            }
        }
    }
}
