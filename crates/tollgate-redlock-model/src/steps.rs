//! What can happen next: a client does something, a request arrives, a node loses its data, a recovery goes on.

use crate::client::{Client, Phase};
use crate::node::Token;
use crate::plain::Command;
use crate::world::{NODES, Redlock, Renewals, World};

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
    /// It starts by a plain take.
    StartPlainly {
        client: usize,
        token: Token,
    },
    /// It gives up what it has and asks anew.
    StartOver {
        client: usize,
    },
    /// It sends a request again and takes the time from there. By the rules a retry is no step of its own: all that
    /// comes of it is that a request arrives twice.
    Retry {
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
    /// A node executes one command of a plain take's packet.
    Execute {
        client: usize,
        place: usize,
        packet: usize,
        command: Command,
        expired: bool,
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
    /// The request of the last step arrives once more.
    JoinLate {
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
        let phase = world.clients[client].phase;
        if phase == Phase::Idle {
            steps.push(Step::Start { client });
            let plainly = |token: &Token| Step::StartPlainly { client, token: *token };
            steps.extend(self.size.proposals.iter().map(plainly));
        }
        if phase == Phase::Asking {
            for token in world.votes(client).tokens() {
                let stands = world.majority_at(client, token);
                let largest = world.largest_of_a_majority(client, token);
                if stands || largest && !self.rules.grant_needs_majority_at_token {
                    steps.push(Step::Grant { client, token });
                } else if largest && world.clients[client].may_commit() {
                    steps.push(Step::Commit { client, token });
                }
            }
        }
        let may_retry = phase == Phase::Asking && world.clients[client].duplicates > 0;
        if may_retry && !self.rules.validity_counts_from_first_send {
            steps.push(Step::Retry { client });
        }
        if world.may_start_over(&world.clients[client]) {
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
            if on_its_way || duplicates > 0 && !world.clients[client].is_plain(attempt) {
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
        if world.clients[client].is_plain(0) {
            self.commands(world, client, place, steps);
        }
    }
}
