//! One run: the queue of everything that happens, in its order.

mod clients;
mod faults;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use tollgate_core::Token;
use tollgate_embedded::durable::Durability;
use tollgate_server::table::{Answer, Request, Source};

use crate::client::{Client, Doing, SECOND, name};
use crate::disk::Disk;
use crate::judge::{Judge, Violation};
use crate::mutant::Mutant;
use crate::random::Random;
use crate::server::{Process, Rate};

const MILLI: u64 = 1_000_000;
/// For how long faults happen, and for how long the world goes on without them.
const FAULTY: u64 = 150 * SECOND;
const QUIET: u64 = 150 * SECOND;
/// How long a client waits for an answer before it asks again.
const PATIENCE: u64 = 2 * SECOND;
const CLIENTS: usize = 6;
const LOCKS: u64 = 3;
/// How many lines of the trace are kept.
const TRACE: usize = 400;

/// What happens.
#[derive(Debug)]
enum Event {
    ToServer {
        id: u64,
        request: Request,
    },
    Closed {
        id: u64,
    },
    ToClient {
        id: u64,
        answer: Answer,
    },
    Client(usize),
    Operator,
    Turn(u64),
    Committed(u64),
    /// Soon after a start.
    PowerLoss(u64),
    /// While the disk is slow.
    Crash(u64),
    Start,
    Fault,
}

/// A request that a client, or the operator, has sent.
#[derive(Debug, Clone)]
struct Sent {
    at: u64,
    by: By,
}

#[derive(Debug, Clone)]
enum By {
    Claim { client: usize, lock: u64, owner: u128, is_extend: bool },
    Mark { lock: u64, token: Token, mark: Option<Token> },
    Break { lock: u64, token: Token },
}

/// What a run was like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Grants that clients believed.
    pub grants: u64,
    /// Starts of the server.
    pub starts: u64,
    /// The last things that happened.
    pub trace: Vec<String>,
}

struct Timed {
    at: u64,
    sequence: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Everything of one run.
pub struct World {
    random: Random,
    now: u64,
    queue: BinaryHeap<Reverse<Timed>>,
    sequence: u64,
    server: Option<Process>,
    /// Which start of the server this is: what was meant for an earlier one is void.
    generation: u64,
    paused_until: u64,
    /// Until when every commit takes seconds.
    slow_until: u64,
    /// What arrived while the server was stopped.
    inbox: Vec<Event>,
    disk: Disk,
    durability: Durability,
    floor: Option<Token>,
    rate: Rate,
    clients: Vec<Client>,
    judge: Judge,
    sent: BTreeMap<u64, Sent>,
    next_id: u64,
    /// The highest token that left the server: what an operator has to name as the floor.
    highest: Token,
    /// Until when each lease lasts at the server at least.
    leases: BTreeMap<u128, u64>,
    /// Claims that a request has ended, or may have.
    over: BTreeSet<u128>,
    /// Renewals that arrived in time at a server that was stopped, with the start that it was in.
    in_time: BTreeMap<u64, (u128, u64)>,
    /// When holders may last have been forgotten: a crash in `grace`, a restored backup.
    forgot_at: u64,
    /// Grants whose holders were asked to leave, and since when an operator knows.
    revoked: BTreeMap<(u64, Token), u64>,
    mutant: Option<Mutant>,
    report: Report,
    trace: VecDeque<String>,
}

impl World {
    /// The world of a seed, with a flaw or without.
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut random = Random::new(seed);
        let clients = (0..CLIENTS)
            .map(|_| Client {
                rate: Rate(random.between(990_000, 1_010_000)),
                doing: Doing::Idle,
                open: None,
                paused_until: 0,
            })
            .collect();
        let durability = if random.one_in(2) { Durability::Sync } else { Durability::Grace };
        let rate = Rate(random.between(990_000, 1_010_000));
        let mut world = Self {
            random,
            now: SECOND,
            queue: BinaryHeap::new(),
            sequence: 0,
            server: None,
            generation: 0,
            paused_until: 0,
            slow_until: 0,
            inbox: Vec::new(),
            disk: Disk::new(mutant),
            durability,
            floor: None,
            rate,
            clients,
            judge: Judge::default(),
            sent: BTreeMap::new(),
            next_id: 1,
            highest: Token::MIN,
            leases: BTreeMap::new(),
            over: BTreeSet::new(),
            in_time: BTreeMap::new(),
            forgot_at: 0,
            revoked: BTreeMap::new(),
            mutant,
            report: Report::default(),
            trace: VecDeque::new(),
        };
        world.after(0, Event::Start);
        for client in 0..CLIENTS {
            let pause = world.random.below(SECOND);
            world.after(pause, Event::Client(client));
        }
        world.after(2 * SECOND, Event::Operator);
        world.after(SECOND, Event::Fault);
        world
    }

    /// Runs it to its end, or to the first promise that is broken.
    pub fn run(mut self) -> Result<Report, (Violation, Report)> {
        let ended = self.go_on();
        self.report.trace = self.trace.into_iter().collect();
        match ended {
            Ok(()) => Ok(self.report),
            Err(violation) => Err((violation, self.report)),
        }
    }

    fn go_on(&mut self) -> Result<(), Violation> {
        let end = SECOND + FAULTY + QUIET;
        while let Some(Reverse(Timed { at, event, .. })) = self.queue.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.judge.expired(at);
            self.happen(event)?;
            self.give_answers()?;
        }
        // Without faults, and with nothing new, everything ends.
        let Some(server) = &self.server else {
            return Err(Violation("the server does not run at the end".to_owned()));
        };
        if server.table.open_claims() > 0 {
            return Err(Violation(format!("{} claims are never over", server.table.open_claims())));
        }
        for lock in 0..LOCKS {
            if let Some(view) = server.table.inspect(&name(lock)) {
                let (holders, waiters) = (view.holders.len(), view.waiters.len());
                if holders + waiters > 0 {
                    return Err(Violation(format!(
                        "lock {lock} has {holders} holders and {waiters} waiters for ever"
                    )));
                }
            }
        }
        Ok(())
    }

    fn is_faulty(&self) -> bool {
        self.now < SECOND + FAULTY
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::ToServer { .. } | Event::Closed { .. } if self.server.is_none() => {}
            Event::ToServer { .. } | Event::Closed { .. } if self.now < self.paused_until => {
                self.note_renewal(&event);
                self.inbox.push(event);
            }
            Event::ToServer { id, request } => {
                self.tell(|| format!("server takes {id}: {request:?}"));
                let source = Source { connection: id, request: 0 };
                self.note_lease(&request);
                if let (
                    Some(Sent { by: By::Break { lock, token }, .. }),
                    Request::Break { by_force: true, .. },
                ) = (self.sent.get(&id), &request)
                {
                    self.judge.forced(*lock, *token);
                }
                if let Some(server) = &mut self.server {
                    server.request(source, request, self.now);
                }
                self.turn();
            }
            Event::Closed { id } => {
                if let Some(server) = &mut self.server {
                    server.close(id, self.now);
                }
                self.turn();
            }
            Event::Turn(generation) if generation == self.generation && self.server.is_some() => {
                if self.now < self.paused_until {
                    self.at(self.paused_until, Event::Turn(generation));
                    return Ok(());
                }
                for event in std::mem::take(&mut self.inbox) {
                    self.happen(event)?;
                }
                self.turn();
                self.after(100 * MILLI, Event::Turn(generation));
            }
            Event::Committed(generation) if generation == self.generation => {
                if self.now < self.paused_until {
                    self.at(self.paused_until, Event::Committed(generation));
                    return Ok(());
                }
                if let Some(server) = &mut self.server {
                    server.committed(&mut self.disk, self.now);
                }
                self.turn();
            }
            Event::PowerLoss(generation) if generation == self.generation => self.end_process(true),
            Event::Crash(generation) if generation == self.generation => self.end_process(false),
            Event::Turn(_) | Event::Committed(_) | Event::PowerLoss(_) | Event::Crash(_) => {}
            Event::Start => self.start()?,
            Event::Fault => self.fault()?,
            Event::Client(client) => self.act(client),
            Event::Operator => self.operate(),
            Event::ToClient { id, answer } => self.hear(id, answer)?,
        }
        Ok(())
    }

    /// A turn of the server's loop.
    fn turn(&mut self) {
        let Some(server) = &mut self.server else { return };
        if server.turn(self.now).is_some() {
            let takes = match self.random.below(30) {
                _ if self.now < self.slow_until => self.random.between(500, 4_000) * MILLI,
                0 => 3 * SECOND,
                1..=20 => self.random.between(1, 40) * MILLI,
                _ => self.random.between(100, 900) * 1_000,
            };
            self.after(takes, Event::Committed(self.generation));
        }
    }

    /// A renewal that arrives while the server is stopped, well before the lease is over, has to find the lease.
    fn note_renewal(&mut self, event: &Event) {
        let Event::ToServer { id, request: Request::Extend { key, .. } } = event else { return };
        let owner = key.owner.to_bits();
        if self.leases.get(&owner).is_some_and(|until| *until > self.now + SECOND) {
            self.in_time.insert(*id, (owner, self.generation));
        }
    }

    /// Leases that a request may end.
    fn note_lease(&mut self, request: &Request) {
        match request {
            Request::Release(key) | Request::Withdraw(key) => {
                self.leases.remove(&key.owner.to_bits());
                self.over.insert(key.owner.to_bits());
            }
            Request::Break { name: broken, .. } => {
                for Sent { by, .. } in self.sent.values() {
                    if let By::Claim { lock, owner, .. } = by
                        && name(*lock) == *broken
                    {
                        self.leases.remove(owner);
                        self.over.insert(*owner);
                    }
                }
            }
            Request::Acquire(_)
            | Request::Extend { .. }
            | Request::Admit { .. }
            | Request::Keep { .. }
            | Request::Hear(_)
            | Request::Abandon(_)
            | Request::RaiseFloor { .. } => {}
        }
    }

    /// Sends a request: it may be lost, doubled or late.
    fn send(&mut self, by: By, request: Request) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.sent.insert(id, Sent { at: self.now, by });
        if !self.is_faulty() || !self.random.one_in(15) {
            let delay = self.delay();
            self.after(delay, Event::ToServer { id, request: request.clone() });
        }
        if self.is_faulty() && self.random.one_in(15) {
            let delay = self.delay() + self.random.below(8) * SECOND;
            self.after(delay, Event::ToServer { id, request });
        }
        id
    }

    fn delay(&mut self) -> u64 {
        if self.is_faulty() && self.random.one_in(20) {
            self.random.below(6_000) * MILLI
        } else {
            self.random.between(50, 20_000) * 1_000
        }
    }

    fn give_answers(&mut self) -> Result<(), Violation> {
        let Some(server) = &mut self.server else { return Ok(()) };
        for (source, answer) in server.take_answers() {
            if let (Some(Sent { at, by: By::Claim { lock, owner, .. } }), Answer::Granted(granted)) =
                (self.sent.get(&source.connection), &answer)
            {
                self.judge.answers(*lock, granted.token)?;
                self.highest = self.highest.max(granted.token);
                if !self.over.contains(owner) {
                    self.leases.insert(*owner, at + granted.valid.as_nanos() as u64);
                }
            }
            if let Some((owner, generation)) = self.in_time.remove(&source.connection)
                && answer == Answer::Lost
                && generation == self.generation
                && self.leases.contains_key(&owner)
            {
                return Err(Violation(
                    "a lease ended while its renewal waited for the stopped server".to_owned(),
                ));
            }
            if self.is_faulty() && self.random.one_in(15) {
                continue;
            }
            let delay = self.delay();
            self.after(delay, Event::ToClient { id: source.connection, answer });
        }
        Ok(())
    }

    fn after(&mut self, pause: u64, event: Event) {
        self.at(self.now + pause, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse(Timed { at, sequence: self.sequence, event }));
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        let line = line();
        self.trace.push_back(format!("{:>12.6} s  {line}", self.now as f64 / SECOND as f64));
    }
}
