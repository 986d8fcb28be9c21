//! All native connections: where answers go, and which client holds which grant.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::{Age, Moment, OwnerId};
use tollgate_embedded::durable::Durability;
use tollgate_proto::frame::{Gone, Reply};

use super::outbox::Outbox;
use super::shown;
use crate::table::{Answer, Happened, Told};

/// As many calls of one connection may follow what happens.
const MOST_FOLLOWED: usize = 64;

/// The native connections of one server.
pub(crate) struct Registry {
    /// Another one after each start.
    pub(super) run: u128,
    pub(super) durability: Durability,
    /// The longest time to live, with its lock-delay.
    pub(super) longest: Duration,
    connections: RefCell<HashMap<u64, Rc<Outbox>>>,
    /// The connections of each client.
    clients: RefCell<HashMap<u128, Vec<Rc<Outbox>>>>,
    /// Which client holds a grant, to be told of its loss.
    holders: RefCell<HashMap<OwnerId, u128>>,
    /// Calls that follow what happens: the connection, the call, and the prefix of the names.
    followers: RefCell<Vec<Follower>>,
    is_stopped: Cell<bool>,
}

struct Follower {
    outbox: Rc<Outbox>,
    call: u32,
    prefix: String,
}

impl Registry {
    pub(crate) fn new(durability: Durability, longest: Duration) -> Self {
        Self {
            run: OwnerId::random().to_bits(),
            durability,
            longest,
            connections: RefCell::default(),
            clients: RefCell::default(),
            holders: RefCell::default(),
            followers: RefCell::default(),
            is_stopped: Cell::new(false),
        }
    }

    pub(super) fn add(&self, connection: u64) -> Rc<Outbox> {
        let outbox = Rc::new(Outbox::new(connection));
        if self.is_stopped.get() {
            outbox.end();
        }
        self.connections.borrow_mut().insert(connection, outbox.clone());
        outbox
    }

    /// A client has introduced itself over a connection.
    pub(super) fn introduce(&self, outbox: &Rc<Outbox>, client: u128) {
        outbox.client.set(client);
        self.clients.borrow_mut().entry(client).or_default().push(outbox.clone());
    }

    pub(super) fn remove(&self, outbox: &Outbox) {
        self.connections.borrow_mut().remove(&outbox.connection);
        self.followers.borrow_mut().retain(|follower| follower.outbox.connection != outbox.connection);
        let mut clients = self.clients.borrow_mut();
        let client = outbox.client.get();
        if let Some(connections) = clients.get_mut(&client) {
            connections.retain(|other| other.connection != outbox.connection);
            if connections.is_empty() {
                clients.remove(&client);
            }
        }
    }

    /// Has a call follow what happens; `false` if its connection follows enough already.
    pub(super) fn follow(&self, outbox: &Rc<Outbox>, call: u32, prefix: &str) -> bool {
        let followers = self.followers.borrow();
        let same = followers.iter().filter(|other| other.outbox.connection == outbox.connection);
        if same.count() >= MOST_FOLLOWED {
            return false;
        }
        drop(followers);
        let follower = Follower { outbox: outbox.clone(), call, prefix: prefix.to_owned() };
        self.followers.borrow_mut().push(follower);
        true
    }

    pub(super) fn unfollow(&self, outbox: &Outbox, call: u32) {
        let is_it = |other: &Follower| other.outbox.connection == outbox.connection && other.call == call;
        self.followers.borrow_mut().retain(|follower| !is_it(follower));
    }

    /// Tells followers what happened to locks.
    pub(crate) fn happened(&self, happened: &[Happened]) {
        let followers = self.followers.borrow();
        if followers.is_empty() {
            return;
        }
        for happened in happened {
            let reply = Reply::Happened(shown::happened(happened));
            for follower in followers.iter() {
                if happened.name.as_str().starts_with(&follower.prefix) {
                    follower.outbox.push(follower.call, &reply);
                }
            }
        }
    }

    /// Sends an answer over the connection that asked. `false` if that is no native connection; its
    /// answer is dropped if the connection is gone. `age` is what a party gets whose first claim
    /// comes now, and `left` how long nothing is granted.
    pub(crate) fn deliver(
        &self,
        (connection, call): (u64, u64),
        answer: &Answer,
        age: impl FnOnce() -> Age,
        left: Option<Duration>,
    ) -> bool {
        let connections = self.connections.borrow();
        let Some(outbox) = connections.get(&connection) else { return false };
        let Ok(call) = u32::try_from(call) else { return true };
        let open = match answer {
            // The outcome follows.
            Answer::Queued { .. } => outbox.opened(call),
            _ => outbox.close(call),
        };
        if let (Answer::Granted(_), Some(open)) = (answer, open) {
            self.holders.borrow_mut().insert(open.owner, outbox.client.get());
        }
        let age = open.filter(|open| open.wants_age).map(|_| age);
        outbox.send(call, &reply(answer, outbox.last_read(), age, left));
        true
    }

    /// Tells holders what became of their grants.
    pub(crate) fn tell(&self, told: Vec<Told>) {
        for told in told {
            match told {
                Told::Over(owner) => drop(self.holders.borrow_mut().remove(&owner)),
                Told::Revoked(owner) => {
                    let client = self.holders.borrow().get(&owner).copied();
                    let clients = self.clients.borrow();
                    // Every connection: the runtime of one may be blocked.
                    for outbox in client.iter().filter_map(|client| clients.get(client)).flatten() {
                        outbox.push(0, &Reply::Gone { owner, cause: Gone::Revoked });
                    }
                }
            }
        }
    }

    /// The server stops: clients are told, and connections end when that is sent.
    pub(crate) fn stop(&self) {
        self.is_stopped.set(true);
        for outbox in self.connections.borrow().values() {
            outbox.push(0, &Reply::Stopping);
            outbox.end();
        }
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn reply<'a>(
    answer: &'a Answer,
    (call, read_at): (u32, Moment),
    age: Option<impl FnOnce() -> Age>,
    left: Option<Duration>,
) -> Reply<'a> {
    match answer {
        Answer::Granted(granted) => Reply::Granted {
            token: granted.token,
            call,
            // From the moment at which that call was read, which was sent before: never longer than
            // the lease.
            lasts: granted.expires.since(read_at),
            again: granted.again,
            age: granted.age,
        },
        Answer::Queued { ahead, age } => Reply::Queued { ahead: count(*ahead), age: *age },
        Answer::Busy { ahead, retry_after } => {
            Reply::Busy { ahead: count(*ahead), retry_after: *retry_after, age: age.map(|age| age()) }
        }
        Answer::Deadlock(conflict) => {
            Reply::Deadlock { conflict: conflict.clone(), age: age.map(|age| age()) }
        }
        // A native call has no round, so that it ends with one of the others.
        Answer::Moved | Answer::Waiting { .. } => Reply::Moved,
        Answer::Mismatch => Reply::Mismatch,
        Answer::NotGranting => Reply::NotGranting { left },
        Answer::Exhausted => Reply::Exhausted,
        Answer::Lost => Reply::Lost,
        Answer::Revoked => Reply::Revoked,
        Answer::Released { again } => Reply::Released { again: *again },
        Answer::Withdrawn | Answer::FloorRaised | Answer::Heard => Reply::Done,
        Answer::Broken => Reply::Broken,
        Answer::Asked => Reply::Asked,
        Answer::Admitted { mark } => Reply::Admitted { mark: *mark },
        Answer::Stale { mark } => Reply::Stale { mark: *mark },
        Answer::Mark { mark } => Reply::Mark { mark: *mark },
    }
}
