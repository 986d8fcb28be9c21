//! Random histories with crashes at random moments, judged by what clients were answered.

use std::collections::BTreeMap;

use tollgate_core::Token;
use tollgate_embedded::durable::{Commit, Durability};
use tollgate_engine::{Answer, Command, Event};

use crate::support::*;

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// What clients know: a client believes an answer when it has left the server.
#[derive(Default)]
struct Clients {
    /// Grants that were answered, with the latest time at which they may still be held, in real seconds.
    held: BTreeMap<(String, u128), (Token, u64)>,
    highest: BTreeMap<String, Token>,
}

const LOCKS: u64 = 3;
const TTL: u64 = 8;

/// Answers that have not left yet, each with the commit that it waits for.
type Waiting = Vec<(Option<Commit>, Told)>;

enum Told {
    Granted { lock: String, owner: u128, token: Token, sent: u64 },
    Ended { lock: String, owner: u128 },
}

impl Clients {
    fn hear(&mut self, told: Told, now: u64, seed: u64) {
        match told {
            Told::Granted { lock, owner, token, sent } => {
                let until = sent + TTL;
                if until <= now {
                    return;
                }
                let others = self
                    .held
                    .iter()
                    .filter(|((other, who), (_, until))| *other == lock && *who != owner && *until > now);
                assert_eq!(others.count(), 0, "seed {seed}: two clients hold {lock} at {now}");
                let last = self.highest.entry(lock.clone()).or_insert(token);
                assert!(token >= *last, "seed {seed}: {token} came after {last} on {lock}");
                *last = token;
                self.held.insert((lock, owner), (token, until));
            }
            Told::Ended { lock, owner } => drop(self.held.remove(&(lock, owner))),
        }
    }
}

fn run(seed: u64, durability: Durability) {
    let mut random = Random(seed);
    let mut server = Server::new(durability);
    let mut clients = Clients::default();
    let mut waiting = Waiting::new();
    let (mut now, mut grants_from, mut owners) = (0_u64, 0_u64, 0_u128);
    for _ in 0..300 {
        match random.below(12) {
            0..=4 => {
                owners += 1;
                let lock = random.below(LOCKS).to_string();
                let applied = server.acquire(claim(&lock, owners, secs(TTL)));
                if let Answer::Granted(granted) = &applied.answer {
                    let told = Told::Granted { lock, owner: owners, token: granted.token, sent: now };
                    waiting.push((applied.after, told));
                }
                note(&applied.events, &mut waiting, now);
            }
            5..=7 => {
                // A client that holds releases: it believes its lock is over when it sends that.
                let held = clients.held.keys().nth(random.below(LOCKS) as usize).cloned();
                if let Some((lock, owner)) = held {
                    clients.held.remove(&(lock.clone(), owner));
                    let applied = server.release(&lock, owner);
                    note(&applied.events, &mut waiting, now);
                }
            }
            8 => {
                if let Some((lock, owner)) = clients.held.keys().next().cloned() {
                    let applied = server.extend(&lock, owner, secs(TTL));
                    match applied.answer {
                        Answer::Extended { .. } if applied.after.is_none() => {
                            let (token, _) = clients.held[&(lock.clone(), owner)];
                            clients.held.insert((lock, owner), (token, now + TTL));
                        }
                        Answer::Extended { .. } => {}
                        _ => {
                            let (_, until) = clients.held.remove(&(lock.clone(), owner)).unwrap();
                            // `Grace` forgets grants, and gives no others before they are over.
                            let is_over = until <= now || grants_from >= until;
                            assert!(is_over, "seed {seed}: {lock} was forgotten at {now}");
                        }
                    }
                    note(&applied.events, &mut waiting, now);
                }
            }
            9 => {
                let token = server.tokens(&random.below(LOCKS).to_string()).first().copied();
                if let Some(token) = token {
                    let lock = (0..LOCKS)
                        .map(|lock| lock.to_string())
                        .find(|lock| server.tokens(lock).contains(&token));
                    let revoke = Command::Revoke { name: name(&lock.unwrap()), token, by_force: true };
                    let applied = server.apply(revoke);
                    // An operator who breaks a lock by force takes the risk upon itself: the client is told at once.
                    for (event, _) in &applied.events {
                        if let Event::Revoked { name, owner, .. } = event {
                            clients.held.remove(&(name.as_str().to_owned(), owner.to_bits()));
                            waiting.retain(|(_, told)| !is_grant_of(told, name.as_str(), owner.to_bits()));
                        }
                    }
                    note(&applied.events, &mut waiting, now);
                }
            }
            10 => {
                let seconds = random.below(4);
                now += seconds;
                let applied = server.pass(secs(seconds));
                note(&applied.events, &mut waiting, now);
            }
            _ => {
                // A crash: at a random moment of the commit that may be under way.
                if random.below(2) == 0 {
                    server.commit();
                }
                let down = random.below(3);
                now += down;
                waiting.clear();
                server = server.crash(durability);
                grants_from = server.wait.map_or(0, |wait| now + wait.as_secs());
                clients.held.retain(|_, (_, until)| *until > now);
                for ((lock, _), (token, until)) in &clients.held {
                    let is_kept = server.tokens(lock).contains(token);
                    let is_waited_for = grants_from >= *until;
                    assert!(is_kept || is_waited_for, "seed {seed}: {lock} was forgotten at {now}");
                }
            }
        }
        if grants_from > 0 && now >= grants_from {
            grants_from = 0;
            let events = server.engine.end_wait(server.now);
            note(&events, &mut waiting, now);
        }
        if random.below(3) == 0 {
            server.commit();
        }
        clients.held.retain(|_, (_, until)| *until > now);
        for (after, told) in std::mem::take(&mut waiting) {
            // `commit` leaves nothing behind: what depends on a commit may leave if nothing is gathered any more.
            if after.is_none_or(|commit| server.engine.is_committed(commit)) {
                clients.hear(told, now, seed);
            } else {
                waiting.push((after, told));
            }
        }
    }
}

fn is_grant_of(told: &Told, lock: &str, owner: u128) -> bool {
    matches!(told, Told::Granted { lock: of, owner: by, .. } if of == lock && *by == owner)
}

fn note(events: &[(Event, Option<Commit>)], waiting: &mut Waiting, now: u64) {
    for (event, after) in events {
        match event {
            Event::Granted { name, owner, token, .. } => {
                let (lock, owner) = (name.as_str().to_owned(), owner.to_bits());
                waiting.push((*after, Told::Granted { lock, owner, token: *token, sent: now }));
            }
            Event::Expired { name, owner, .. } => {
                let (lock, owner) = (name.as_str().to_owned(), owner.to_bits());
                waiting.push((None, Told::Ended { lock, owner }));
            }
            _ => {}
        }
    }
}

#[test]
fn no_history_with_crashes_has_two_holders_or_a_token_that_steps_back() {
    for durability in [Durability::Sync, Durability::Grace] {
        for seed in 0..300 {
            run(seed, durability);
        }
    }
}
