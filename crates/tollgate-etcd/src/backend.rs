//! The contract's side: what each call means for etcd.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error,
    ErrorKind, Event, Extension, Grant, Keeper, LockName, LockState, LossCause, OwnerId, Release, Result,
    Revocation, RevokeMode, Token,
};

use crate::acquire::{Handle, Said, Value};
use crate::capabilities::{capabilities, ttl_from};
use crate::config::EtcdConfig;
use crate::error::{Failure, Why};
use crate::hub::{Hub, Signal, What};
use crate::keys::{Layout, Span};
use crate::line::Lines;
use crate::links::{Links, Repeat};
use crate::ops::{created_at, delete, put};
use crate::session::{Means, keep_alive_once};
use crate::sessions::{Deletion, Leftover, Sessions, Spot};
use crate::wire::event::EventType;
use crate::wire::request_op::Request as Op;
use crate::wire::{
    Event as Change, KeyValue, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest, RequestOp, TxnRequest,
};

/// The shortest ttl of an etcd whose settings nobody has changed.
const USUAL_TTL: Duration = Duration::from_secs(2);
/// How long a caller is kept waiting for the end of a lease that nobody needs any more.
const TO_TIDY_UP: Duration = Duration::from_secs(1);
/// How many acquires are under way at once. etcd refuses everybody's when it has 5 000 of them to do.
const AT_ONCE: usize = 256;
/// Before a watch that broke is made again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often a renewal is tried that no read has proven, because there was an election in between.
const TO_PROVE: usize = 3;

/// Locks on one etcd.
pub struct EtcdBackend {
    pub(crate) links: Links,
    pub(crate) layout: Layout,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) hub: Hub,
    pub(crate) lines: Arc<Lines>,
    /// Those who may ask for a lock now.
    pub(crate) turnstile: Semaphore,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
}

impl EtcdBackend {
    /// Connects, so that what is wrong is told at once, and asks etcd for the shortest ttl it can do.
    pub fn connect(config: EtcdConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let links = Links::new(&config, Keeper::global()?)?;
            let layout = Layout::new(config.prefix);
            // What a lease needs no rights for, a key does.
            Self::note_restore(&links, &layout).await?;
            let ttl = ttl_from(shortest_ttl(&links).await?);
            let sessions = Arc::new(Sessions::new(Means { links: links.clone(), clock: clock.clone(), ttl }));
            let hub = Hub::new(links.clone());
            let (lines, turnstile) = (Arc::default(), Semaphore::new(AT_ONCE));
            Ok(Self {
                links,
                layout,
                sessions,
                hub,
                lines,
                turnstile,
                clock,
                capabilities: capabilities(ttl),
            })
        })
    }

    /// The key of a grant.
    fn key_of(&self, grant: &Grant) -> Result<(Handle, Vec<u8>)> {
        let handle = Handle::of(grant)?;
        Ok((handle, self.layout.claim(&grant.name, handle.lease, handle.slot, grant.mode)))
    }

    /// Whether the key that was created at `revision` is there.
    async fn is_there(&self, key: &[u8], revision: i64) -> Result<bool> {
        let request = RangeRequest { key: key.to_vec().into(), keys_only: true, ..RangeRequest::default() };
        let found = self.links.range(request).await?;
        Ok(found.kvs.first().is_some_and(|found| found.create_revision == revision))
    }

    /// Completes when the claim that was created at `revision` is gone, or its holder is asked to leave.
    async fn until_lost(&self, key: &[u8], revision: i64) -> LossCause {
        // etcd tells what happened since the grant; only if it has forgotten is there something to ask.
        let (mut from, mut pause) = (revision + 1, PAUSE.0);
        loop {
            let mut watch = self.hub.watch(What { span: Span::one(key.to_vec()), deletions: false, from });
            if let Signal::Created(_) = watch.signal().await {
                pause = PAUSE.0;
                // What happened before a watch from now on, it does not tell.
                let seen = if from > 0 { Ok(Ok(())) } else { self.look_at(key, revision).await };
                match seen {
                    Ok(Err(cause)) => return cause,
                    Ok(Ok(())) => {
                        while let Signal::Events(changes) = watch.event().await {
                            if let Err(cause) = standing_after(&changes, revision) {
                                return cause;
                            }
                        }
                    }
                    Err(_) => {}
                }
            }
            from = 0;
            drop(watch);
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Whether the claim that was created at `revision` still holds.
    async fn look_at(&self, key: &[u8], revision: i64) -> Result<Result<(), LossCause>> {
        let request = RangeRequest { key: key.to_vec().into(), ..RangeRequest::default() };
        let found = self.links.range(request).await?;
        Ok(standing(found.kvs.first(), revision))
    }

    /// Deletes the key of a claim whose acquire was answered: whether it was there, and whether an earlier request that was not
    /// answered may have deleted it.
    ///
    /// The key is this claim's alone as long as it is in our books, and until everything that deletes it is answered. After
    /// that it may be another claim's: then etcd compares.
    pub(crate) async fn remove(&self, owner: OwnerId, key: &[u8], revision: i64) -> Result<(bool, bool)> {
        if self.sessions.deleting(owner) == Deletion::Unknown {
            let request = TxnRequest {
                compare: vec![created_at(key, revision)],
                success: vec![RequestOp { request: Some(Op::RequestDeleteRange(delete(key))) }],
                failure: Vec::new(),
            };
            return Ok(self.links.delete_if(request).await?);
        }
        self.remove_own(owner, key).await
    }

    /// The same for a claim that is in our books.
    async fn remove_own(&self, owner: OwnerId, key: &[u8]) -> Result<(bool, bool)> {
        let (deleted, again) = self.links.delete(delete(key)).await?;
        if again {
            self.sessions.forget(owner)
        } else {
            self.sessions.forget_clean(owner)
        }
        Ok((deleted, again))
    }

    /// Removes whatever there is of a claim, now and for as long as its acquire may still arrive.
    ///
    /// A request that was sent and not answered may be executed at any time: it may wait on a member that is cut off
    /// from the others, and no connection of ours that is closed calls it back. So its transaction compares: it does
    /// nothing once there is a key that says "withdrawn", one for each copy. These keys hang on the same lease as the claim's
    /// own would. While the lease lives they are there, and once it is gone etcd refuses the late request for want of it.
    async fn retract_late(&self, claim: &Claim, Spot { lease, slot }: Spot, copies: u32) -> Result<()> {
        if claim.standalone {
            // Nothing else hangs on it, and nothing can hang on it any more.
            return self.end_lease(lease).await;
        }
        let key = self.layout.claim(&claim.name, lease, slot, claim.mode);
        let mut success = vec![RequestOp { request: Some(Op::RequestDeleteRange(delete(&key))) }];
        success.extend(
            (1..=copies).map(|copy| put(&self.layout.withdrawn(claim.owner, lease, copy), Vec::new(), lease)),
        );
        let request = TxnRequest { compare: Vec::new(), success, failure: Vec::new() };
        match self.links.txn(request, Repeat::Yes).await {
            Ok(_) | Err(Failure { why: Why::NoLease, .. }) => Ok(()),
            Err(failure) => {
                if failure.why == Why::Full {
                    // It takes no more keys, and so no late acquires either. To delete is allowed.
                    let _ = self.links.delete(delete(&key)).await;
                }
                Err(failure.into())
            }
        }
    }

    /// Ends a lease on which nothing hangs any more. If that fails it ends by itself. Not in the background: a process that
    /// has nothing else to do would be gone before.
    pub(crate) async fn tidy_up(&self, lease: i64) {
        let _ = tokio::time::timeout(TO_TIDY_UP, self.end_lease(lease)).await;
    }

    async fn end_lease(&self, lease: i64) -> Result<()> {
        match self.links.lease_revoke(LeaseRevokeRequest { id: lease }).await {
            Ok(_) | Err(Failure { why: Why::NoLease, .. }) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Renews a grant whose lease is its own.
    async fn extend_alone(&self, key: &[u8], handle: Handle, ttl: Duration) -> Result<Extension> {
        for _ in 0..TO_PROVE {
            let kept = keep_alive_once(&self.links, &*self.clock, handle.lease).await?;
            let Some((sent, renewed)) = kept else {
                return Ok(Extension::Lost { cause: LossCause::SessionEnded });
            };
            let request = RangeRequest { key: key.to_vec().into(), ..RangeRequest::default() };
            let found = self.links.range(request).await?;
            if let Err(cause) = standing(found.kvs.first(), handle.revision) {
                return Ok(Extension::Lost { cause });
            }
            if renewed.is_proven_by(found.header.as_ref()) {
                return Ok(Extension::Extended { deadline: Deadline::counted_from(sent, ttl) });
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "etcd changed its leader repeatedly while the lock was renewed; try again",
        ))
    }

    async fn extended(&self, grant: &Grant, ttl: Duration, details: Option<&Details>) -> Result<Extension> {
        if ttl != grant.ttl {
            return Err(Error::unsupported(
                "the ttl belongs to the session and cannot be changed; take the lock again with another ttl",
            ));
        }
        let (handle, key) = self.key_of(grant)?;
        if !handle.is_of(grant.owner) {
            return Ok(Extension::Lost { cause: LossCause::Gone });
        }
        if let Some(details) = details {
            let value = Value::new(grant.mode, details.clone());
            match self.say(&key, handle.revision, &value).await? {
                Said::Yes => {}
                Said::Gone => return Ok(Extension::Lost { cause: LossCause::Gone }),
                Said::Revoked => return Ok(Extension::Lost { cause: LossCause::Revoked }),
            }
        }
        if grant.standalone {
            return self.extend_alone(&key, handle, ttl).await;
        }
        let session = self.sessions.with_lease(ttl, handle.lease);
        // Of those we know of, `lost` tells.
        let Some(session) = session.filter(|_| self.sessions.has(grant.owner)) else {
            if self.is_there(&key, handle.revision).await? {
                // Whoever renews a stranger's session keeps all the stranger's locks.
                return Err(Error::unsupported("this lock belongs to another client's session"));
            }
            return Ok(Extension::Lost { cause: LossCause::Gone });
        };
        if self.sessions.is_revoked(grant.owner) {
            return Ok(Extension::Lost { cause: LossCause::Revoked });
        }
        match session.refresh().await {
            Ok(()) => Ok(Extension::Extended { deadline: session.deadline() }),
            Err(_) => Ok(Extension::Lost { cause: LossCause::SessionEnded }),
        }
    }

    async fn released(&self, grant: &Grant) -> Result<Release> {
        let (handle, key) = self.key_of(grant)?;
        if !handle.is_of(grant.owner) {
            return Ok(Release::AlreadyLost);
        }
        let (deleted, again) = self.remove(grant.owner, &key, handle.revision).await?;
        if grant.standalone {
            self.tidy_up(handle.lease).await;
        }
        // A lock that was still ours by the deadline was given back by the request whose answer was lost.
        let in_time = matches!(grant.deadline, Deadline::At(end) if self.clock.now() < end);
        Ok(if deleted || (again && in_time) { Release::Released } else { Release::AlreadyLost })
    }
}

/// Whether the claim that was created at `revision` still holds, by what its key says now.
fn standing(found: Option<&KeyValue>, revision: i64) -> Result<(), LossCause> {
    match found.filter(|found| found.create_revision == revision) {
        None => Err(LossCause::Gone),
        Some(found) if Value::of(found).is_some_and(|value| value.revoked) => Err(LossCause::Revoked),
        Some(_) => Ok(()),
    }
}

/// The same by what changed, in order.
fn standing_after(changes: &[Change], revision: i64) -> Result<(), LossCause> {
    changes.iter().try_for_each(|change| match change.r#type() {
        EventType::Delete => Err(LossCause::Gone),
        EventType::Put => standing(change.kv.as_ref(), revision),
    })
}

/// The shortest ttl that this etcd can do.
async fn shortest_ttl(links: &Links) -> Result<Duration> {
    match links.lease_grant(LeaseGrantRequest { ttl: 1, id: 0 }).await {
        Ok(granted) => {
            // If it fails the lease ends by itself, soon.
            let _ = links.lease_revoke(LeaseRevokeRequest { id: granted.id }).await;
            Ok(Duration::from_secs(granted.ttl.unsigned_abs()))
        }
        // No lock can be taken, but all can be looked at and given back.
        Err(Failure { why: Why::Full, .. }) => Ok(USUAL_TTL),
        Err(failure) => Err(failure.into()),
    }
}

impl Drop for EtcdBackend {
    fn drop(&mut self) {
        self.hub.close();
        self.links.close();
    }
}

impl Backend for EtcdBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(self.wait(claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.sessions.leftover(claim.owner) {
                Leftover::Nothing => self.sessions.forget_clean(claim.owner),
                Leftover::Key(Spot { lease, .. }) if claim.standalone => {
                    self.end_lease(lease).await?;
                    self.sessions.forget(claim.owner);
                }
                Leftover::Key(Spot { lease, slot }) => {
                    let key = self.layout.claim(&claim.name, lease, slot, claim.mode);
                    if self.sessions.deleting(claim.owner) == Deletion::Own {
                        self.remove_own(claim.owner, &key).await?;
                    }
                }
                Leftover::Late(spot, copies) => {
                    self.retract_late(claim, spot, copies).await?;
                    if self.sessions.withdrawn(claim.owner) && !claim.standalone {
                        // It was answered meanwhile. If this fails the key ends with the session.
                        let last = self.layout.withdrawn(claim.owner, spot.lease, copies);
                        let _ = self.links.delete(delete(&last)).await;
                    }
                }
            }
            Ok(())
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(self.extended(grant, ttl, details))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(self.released(grant))
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        if grant.standalone {
            return None;
        }
        let (handle, key) = self.key_of(grant).ok()?;
        Some(Box::pin(async move {
            let cause = match self.sessions.with_lease(grant.ttl, handle.lease) {
                None if self.sessions.has(grant.owner) => LossCause::SessionEnded,
                None => LossCause::Gone,
                Some(session) => tokio::select! {
                    () = session.ended() => LossCause::SessionEnded,
                    cause = self.until_lost(&key, handle.revision) => {
                        if !self.sessions.has(grant.owner) {
                            // By our own release.
                            std::future::pending::<()>().await;
                        }
                        cause
                    }
                },
            };
            match cause {
                // Its key is there until the holder leaves.
                LossCause::Revoked => self.sessions.note_revoked(grant.owner),
                _ => self.sessions.forget(grant.owner),
            }
            cause
        }))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(self.seen(name))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        self.listed(prefix)
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        self.told(prefix)
    }

    fn tells_events(&self) -> bool {
        true
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(self.broken(name, token, mode))
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(self.newest())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.hub.close();
            self.sessions.close().await;
            self.links.close();
        })
    }
}
