//! The contract's side: what each call means for several Redises.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_core::{
    Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Details, Event, Extension, Grant,
    LockName, LockState, Release, Result, Revocation, RevokeMode, Token, events, wait,
};

use crate::backend::{CONTENDED, EVENTS_EVERY, EXPIRY_EVERY};
use crate::keys::{fence_of, key_of};
use crate::redlock::acquire::is_undecided;
use crate::redlock::capabilities::capabilities;
use crate::redlock::config::RedlockConfig;
use crate::redlock::lanes::{Lanes, Links};
use crate::redlock::node::Node;
use crate::redlock::quorum::Count;
use crate::redlock::recovery::Recovery;
use crate::redlock::release::Unanswered;
use crate::redlock::renew::Healing;
use crate::redlock::round::Round;
use crate::redlock::script;
use tollgate_core::recent::Recent;

/// Locks on a majority of independent Redises.
pub struct RedlockBackend {
    pub(super) lanes: Arc<Lanes>,
    pub(super) prefix: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) capabilities: Capabilities,
    /// Acquires whose outcome is unknown: a withdrawal must not overtake them.
    pub(super) unanswered: Mutex<Unanswered>,
    pub(super) healing: Arc<Healing>,
    pub(super) recovery: Recovery,
    /// The highest token that was seen here, of any lock: the next hint is above it.
    pub(super) highest: AtomicU64,
    /// Names that somebody else wanted, too: there scripts are quicker.
    pub(super) contended: Recent,
    /// Names whose tokens are remembered long enough.
    pub(super) remembered: Recent,
}

impl RedlockBackend {
    /// Connects, so that what is wrong is told at once. A majority is enough; whether it votes is found out by the
    /// first lock.
    pub fn connect(config: RedlockConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let nodes = config.checked()?.into_iter().map(Node::new).collect();
            let lanes = Lanes::new(nodes, config.max_ttl);
            lanes.links().await?;
            lanes.check_config()?;
            let recovery = Recovery::new(&lanes);
            Ok(Self {
                lanes,
                prefix: config.prefix,
                clock,
                capabilities: capabilities(config.max_ttl),
                unanswered: Mutex::default(),
                healing: Arc::default(),
                recovery,
                highest: AtomicU64::new(0),
                contended: Recent::new(CONTENDED),
                remembered: Recent::new(EXPIRY_EVERY),
            })
        })
    }

    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        tollgate_core::floor::check(floor)?;
        let links = self.lanes.links().await?;
        let [_, fence] = self.keys(name);
        let request = script::FLOOR.of_voter(&[&fence]).arg(floor.get());
        let mut count = Count::new(links.len());
        let mut round = Round::new(&self.lanes, &links, self.clock.now(), &request, |_| true);
        // All that can be reached, though a majority is enough.
        let _: Option<()> = round
            .until(|node, reply| {
                count.add(self.said(node, &links, &reply));
                None
            })
            .await;
        match count.outcome() {
            Some(crate::redlock::quorum::Outcome::Done) => Ok(()),
            _ => Err(self.lanes.without(&self.silent_ones(&links), false)),
        }
    }

    /// The lock's key, and its counter's.
    pub(super) fn keys(&self, name: &LockName) -> [String; 2] {
        let lock = key_of(&self.prefix, name);
        let fence = fence_of(&lock);
        [lock, fence]
    }

    /// Where a node remembers whose lock was broken.
    pub(super) fn revoked_key(&self, name: &LockName) -> String {
        format!("{{{}}}:revoked", key_of(&self.prefix, name))
    }

    /// A node said that it does not vote.
    pub(super) fn meets_recovering(&self, node: usize, links: &Links) {
        if links[node].is_some() {
            self.recovery.meets(node);
        }
    }
}

impl Backend for RedlockBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(wait::poll_past(self, &*self.clock, claim, is_undecided))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.withdraw_claim(claim))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(self.renew(grant, ttl, details))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(self.release_grant(grant))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(self.seen(name.clone()))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        self.all_seen(prefix)
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.clock.clone(), prefix, EVENTS_EVERY)
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(self.break_lock(name, token, mode))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.recovery.finish().await;
            let _ = tokio::time::timeout(Lanes::AT_THE_END, self.lanes.idle()).await;
            self.lanes.close();
        })
    }
}

impl Drop for RedlockBackend {
    fn drop(&mut self) {
        // Whoever looks after nodes in the background has nobody to do it for.
        self.lanes.close();
    }
}
