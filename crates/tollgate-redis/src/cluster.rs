//! A cluster: which of its servers has a key, and following it when it moves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind as Kind, FromRedisValue, RedisError, ServerErrorKind, Value};
use tollgate_core::url::Host;
use tollgate_core::{Clock, Error, ErrorKind, Result};

use crate::endpoint::{Endpoint, Speech, Target};
use crate::error::{of_request, unexpected};
use crate::link::Link;
use crate::links::{Links, Subscription};
use crate::script::Request;
use crate::sentinel::once;

/// How often a request follows a key that moves.
const FOLLOWED: usize = 8;
/// How long it waits for the rest of a lock's keys.
const WHILE_IT_MOVES: Duration = Duration::from_millis(50);
const SLOTS: u16 = 16384;

/// The servers of a cluster.
pub(crate) struct Cluster {
    /// What the user named.
    seeds: Vec<Host>,
    speech: Speech,
    subscription: Option<Subscription>,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

/// What is known of it.
#[derive(Default)]
struct Known {
    /// The first slot of each range, in order, and where it is.
    ranges: Vec<(u16, Host)>,
    links: HashMap<Host, Arc<Links>>,
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<Host>,
        speech: Speech,
        subscription: Option<Subscription>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { seeds, speech, subscription, clock, known: Mutex::default() }
    }

    /// A connection to the server that has `key`, as far as is known.
    pub(crate) async fn link(&self, key: &str) -> Result<Link> {
        let server = self.server_of(slot_of(key)).await?;
        self.links_to_host(&server).here().await
    }

    /// Runs a script on the server that has `key`. One that has not says so and has not run it.
    pub(crate) async fn run(
        &self,
        key: &str,
        request: &Request,
        mut asked: impl FnMut(&Link),
    ) -> Result<Value> {
        let (slot, request) = (slot_of(key), &request.with_all_keys(key));
        let mut next = self.server_of(slot).await?;
        let mut asking = false;
        for _ in 0..FOLLOWED {
            let links = self.links_to_host(&next);
            let link = match links.here().await {
                Ok(link) => link,
                // It may have died and another taken its place.
                Err(error) => match self.replacement(slot, &next).await {
                    Some(other) => {
                        next = other;
                        continue;
                    }
                    None => return Err(error),
                },
            };
            asked(&link);
            let answer = if asking { link.run_asking(request).await } else { link.run(request).await };
            match answer {
                Ok(value) => return Ok(value),
                Err(error) => match redirection(&error, &next) {
                    Some((to, moved)) => {
                        asking = !moved;
                        if moved {
                            // The whole map may have changed, but this much is sure.
                            let _ = self.look_around().await;
                        }
                        next = to;
                    }
                    // Its keys are on two servers at the moment, and nothing was done.
                    None if error.code() == Some("TRYAGAIN") => {
                        tokio::time::sleep(WHILE_IT_MOVES).await;
                        (next, asking) = (self.server_of(slot).await?, false);
                    }
                    None => return Err(of_request(error, &link)),
                },
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "the lock's slot is moving between servers of the cluster; try again",
        ))
    }

    async fn server_of(&self, slot: u16) -> Result<Host> {
        if self.known().ranges.is_empty() {
            self.look_around().await?;
        }
        let known = self.known();
        let after = known.ranges.partition_point(|(first, _)| *first <= slot);
        let found = after.checked_sub(1).map(|index| known.ranges[index].1.clone());
        found.ok_or_else(|| not_covered(slot))
    }

    /// Who has `slot` now, if it is not `gone` any more.
    async fn replacement(&self, slot: u16, gone: &Host) -> Option<Host> {
        self.look_around().await.ok()?;
        self.server_of(slot).await.ok().filter(|server| server != gone)
    }

    /// Makes sure that nothing more is executed, that will last, of what was sent over `link`.
    pub(crate) async fn cut(&self, link: &Link) -> Result<()> {
        match self.links_to(link.server()).cut(link).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                // Another may have taken its place. Whatever the old one still executes, nobody sees: it has no slots.
                self.look_around().await?;
                let primaries = self.primaries().await?;
                if primaries.iter().any(|primary| **primary == **link.server()) { Err(error) } else { Ok(()) }
            }
            answer => answer,
        }
    }

    /// Asks those who are known where everything is.
    pub(crate) async fn look_around(&self) -> Result<()> {
        let mut hosts: Vec<Host> = self.known().links.keys().cloned().collect();
        hosts.extend(self.seeds.iter().cloned());
        let mut question = Cmd::new();
        question.arg("CLUSTER").arg("SLOTS");
        let mut trouble = None;
        for host in hosts {
            match once::<Value>(&Endpoint::new(host.clone(), self.speech.clone()), &question).await {
                Ok(answer) => {
                    let ranges = ranges(&answer, &host).ok_or_else(|| unexpected(&"CLUSTER SLOTS"))?;
                    if ranges.is_empty() {
                        trouble = Some(not_covered(0));
                        continue;
                    }
                    let mut known = self.known();
                    known.links.retain(|host, _| ranges.iter().any(|(_, server)| server == host));
                    known.ranges = ranges;
                    return Ok(());
                }
                Err(error) => trouble = Some(error),
            }
        }
        Err(trouble.unwrap_or_else(|| Error::invalid("name at least one server of the cluster")))
    }

    /// Every server that has slots.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<str>>> {
        if self.known().ranges.is_empty() {
            self.look_around().await?;
        }
        let mut hosts: Vec<Host> = self.known().ranges.iter().map(|(_, host)| host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        Ok(hosts.into_iter().map(|host| Arc::from(host.to_string())).collect())
    }

    /// The connections to the server at `address`.
    pub(crate) fn links_to(&self, address: &str) -> Arc<Links> {
        let host = Host::parse(address, 6379);
        self.links_to_host(&host.expect("it was written by Host itself"))
    }

    fn links_to_host(&self, host: &Host) -> Arc<Links> {
        let fresh = || {
            let target = Target::Member(Endpoint::new(host.clone(), self.speech.clone()));
            Arc::new(Links::new(target, self.subscription.clone(), self.clock.clone()))
        };
        self.known().links.entry(host.clone()).or_insert_with(fresh).clone()
    }

    pub(crate) fn close(&self) {
        self.known().links.clear();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_covered(slot: u16) -> Error {
    let message = format!("no server of the cluster has slot {slot}; see redis-cli --cluster check");
    Error::new(ErrorKind::Unavailable, message)
}

/// Where an answer sends us, and whether for good.
fn redirection(error: &RedisError, from: &Host) -> Option<(Host, bool)> {
    let moved = match error.kind() {
        Kind::Server(ServerErrorKind::Moved) => true,
        Kind::Server(ServerErrorKind::Ask) => false,
        _ => return None,
    };
    let (name, _) = error.redirect_node()?;
    let mut host = Host::parse(name, from.port).ok()?;
    if name.starts_with(':') {
        host.name.clone_from(&from.name);
    }
    Some((host, moved))
}

/// The slot of a key without a tag of its own: names have their braces encoded.
fn slot_of(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS
}

/// `CLUSTER SLOTS`: first, last, then the primary and its replicas.
fn ranges(answer: &Value, asked: &Host) -> Option<Vec<(u16, Host)>> {
    let mut ranges = Vec::new();
    for range in answer.as_sequence()? {
        let [first, _, primary, ..] = range.as_sequence()? else { return None };
        let [name, port, ..] = primary.as_sequence()? else { return None };
        let name = String::from_redis_value_ref(name).ok().filter(|name| !name.is_empty() && name != "?");
        let name = name.unwrap_or_else(|| asked.name.clone());
        let (first, port) = (u16::from_redis_value_ref(first).ok()?, u16::from_redis_value_ref(port).ok()?);
        ranges.push((first, Host { name, port }));
    }
    ranges.sort();
    Some(ranges)
}
