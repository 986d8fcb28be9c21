//! Taking a set of locks, all or nothing.
//!
//! The locks are taken one after the other in the order of their names, so that two sets never wait
//! for each other in a circle. Until the set is complete its grants are attached to this call: if
//! the client is gone, they last no longer than a waiting claim keeps its place, or end at once if
//! the client does not know the owner.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{LockName, OwnerId, Party};
use tollgate_proto::{self as proto, Grant, Grants, Problem};

use super::acquire::{details, grant, refused};
use super::calls::{lost, stopping};
use super::driver::{Connection, Stopped, TableService};
use crate::table::{Acquire, Answer, Granted, Key, Request};

/// Takes all locks of the call.
pub(super) async fn acquire_all(service: &TableService, call: proto::AcquireAll) -> Result<Grants, Problem> {
    service.check_ttl(call.ttl_ms, call.lock_delay_ms)?;
    let owner = call.owner.as_ref().map(proto::Owner::id);
    let each = call.each();
    let names: Vec<LockName> = each.iter().map(|one| one.name.clone()).collect();
    let set = Set {
        service,
        connection: service.connection(),
        owner: owner.unwrap_or_else(OwnerId::random),
        can_return: owner.is_some(),
        round_ends: Instant::now() + each[0].round(),
        gives_up: Instant::now() + Duration::from_millis(call.wait_ms),
        each,
        call,
    };
    let mut granted = Vec::with_capacity(names.len());
    for at in 0..names.len() {
        match set.take(&names, at).await? {
            Answer::Granted(answer) => granted.push(answer),
            answer @ Answer::Waiting { .. } => return Err(refused(service, &set.key(&names[at]), answer)),
            // A repeat of the call has the set now: this call must not touch it any more.
            answer @ Answer::Moved => return Err(refused(service, &set.key(&names[at]), answer)),
            // The claim has left the queue, and so does the set.
            answer => {
                let problem = refused(service, &set.key(&names[at]), answer);
                set.withdraw(&names[..at]).await?;
                return Err(problem);
            }
        }
    }
    set.complete(&names, granted).await
}

/// A set that is being taken.
struct Set<'a> {
    service: &'a TableService,
    connection: Connection<'a>,
    owner: OwnerId,
    can_return: bool,
    round_ends: Instant,
    gives_up: Instant,
    /// The requests for the single locks, in the order of their names.
    each: Vec<proto::Acquire>,
    call: proto::AcquireAll,
}

impl Set<'_> {
    fn key(&self, name: &LockName) -> Key {
        Key { name: name.clone(), owner: self.owner }
    }

    async fn ask(&self, request: Request) -> Result<Answer, Problem> {
        self.connection.ask(request).await.map_err(|Stopped| stopping())
    }

    /// Waits for one lock, and renews those that were taken before.
    async fn take(&self, names: &[LockName], at: usize) -> Result<Answer, Problem> {
        let ttl = Duration::from_millis(self.call.ttl_ms);
        let now = Instant::now();
        let request = Request::Acquire(Acquire {
            key: self.key(&names[at]),
            mode: self.each[at].mode()?,
            ttl,
            wait: self.gives_up.saturating_duration_since(now),
            round: self.round_ends.saturating_duration_since(now),
            can_return: self.can_return,
            is_part: true,
            hears_of_queue: false,
            lock_delay: Duration::from_millis(self.call.lock_delay_ms),
            party: self.call.party.map(|id| Party { id, age: self.call.party_age }),
            on_deadlock: self.call.on_deadlock,
            details: Arc::new(details(&self.each[at])),
        });
        let taking = self.ask(request);
        tokio::pin!(taking);
        loop {
            tokio::select! {
                biased;
                answer = &mut taking => return answer,
                () = tokio::time::sleep(ttl / 3) => {
                    for name in &names[..at] {
                        self.ask(Request::Extend { key: self.key(name), ttl, details: None }).await?;
                    }
                }
            }
        }
    }

    async fn withdraw(&self, names: &[LockName]) -> Result<(), Problem> {
        for name in names {
            self.ask(Request::Abandon(self.key(name))).await?;
        }
        Ok(())
    }

    /// All locks are taken: renews them, and tells the client.
    async fn complete(&self, names: &[LockName], granted: Vec<Granted>) -> Result<Grants, Problem> {
        let ttl = Duration::from_millis(self.call.ttl_ms);
        // A repeat of a set that was answered before renews nothing.
        let is_repeat = granted.iter().all(|granted| granted.again);
        let mut grants = Vec::with_capacity(names.len());
        for (each, granted) in self.each.iter().zip(granted) {
            let key = self.key(&each.name);
            let granted = if is_repeat {
                granted
            } else {
                match self.ask(Request::Extend { key: key.clone(), ttl, details: None }).await? {
                    Answer::Granted(granted) => granted,
                    _ => {
                        self.withdraw(names).await?;
                        return Err(lost());
                    }
                }
            };
            let answer = Grant { again: is_repeat, ..grant(self.service, each, &key, &granted) };
            grants.push(answer);
        }
        for name in names {
            self.ask(Request::Hear(self.key(name))).await?;
        }
        Ok(Grants { grants })
    }
}
