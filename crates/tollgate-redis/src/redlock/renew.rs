//! Renewing a grant, and giving it to nodes that lost it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tollgate_core::{Clock, Deadline, Details, Extension, Grant, LossCause, Moment, OwnerId, Result};

use crate::backend::millis;
use crate::redlock::backend::RedlockBackend;
use crate::redlock::lanes::Links;
use crate::redlock::quorum::{Count, Outcome, Said};
use crate::redlock::round::Round;
use crate::redlock::script::{self, Question};
use crate::reply::written;

/// The grants that are being renewed here: a release must not be undone by a node that is healed after it.
#[derive(Default)]
pub(super) struct Healing {
    owners: Mutex<HashMap<OwnerId, Arc<AtomicBool>>>,
    /// What holders have said since they took their locks. It goes along with every renewal: a node may have missed it.
    said: Mutex<HashMap<OwnerId, Spoken>>,
}

/// Details as they are stored.
#[derive(Debug, Clone, Default)]
struct Spoken {
    revision: u32,
    text: Vec<u8>,
}

impl Healing {
    fn owners(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<AtomicBool>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, owner: OwnerId) -> Renewal {
        let released = self.owners().entry(owner).or_default().clone();
        Renewal { healing: self.clone(), owner, released }
    }

    fn said(&self) -> MutexGuard<'_, HashMap<OwnerId, Spoken>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a renewal says: what is new, or what was said last, or nothing.
    fn says(&self, owner: OwnerId, details: Option<&Details>) -> Result<Vec<u8>> {
        let Some(details) = details else {
            return Ok(self.said().get(&owner).map(|said| said.text.clone()).unwrap_or_default());
        };
        let new = Spoken { revision: details.revision, text: written(details)? };
        let mut all = self.said();
        let last = all.entry(owner).or_default();
        if new.revision >= last.revision {
            last.clone_from(&new);
        }
        Ok(new.text)
    }

    /// The grant is given back from here on.
    pub(super) fn forget(&self, owner: OwnerId) {
        self.said().remove(&owner);
        if let Some(released) = self.owners().get(&owner) {
            released.store(true, Ordering::Release);
        }
    }
}

/// One renewal under way.
struct Renewal {
    healing: Arc<Healing>,
    owner: OwnerId,
    released: Arc<AtomicBool>,
}

impl Renewal {
    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let mut owners = self.healing.owners();
        // The table's and this one: no other renewal of the grant is under way.
        if Arc::strong_count(&self.released) <= 2 {
            owners.remove(&self.owner);
        }
    }
}

/// What a node that lost the grant needs to be healed.
struct Remedy {
    renewal: Renewal,
    lock: String,
    fence: String,
    grant: Grant,
    ends: Moment,
    clock: Arc<dyn Clock>,
    release: Question,
}

impl RedlockBackend {
    pub(super) async fn renew(
        &self,
        grant: &Grant,
        ttl: Duration,
        details: Option<&Details>,
    ) -> Result<Extension> {
        self.capabilities.check_ttl(ttl)?;
        let details = self.healing.says(grant.owner, details)?;
        let renewal = self.healing.begin(grant.owner);
        let links = self.lanes.links().await?;
        let sent = self.clock.now();
        let [lock, fence] = self.keys(&grant.name);
        let revoked = self.revoked_key(&grant.name);
        let request = script::RENEW.of_voter(&[&lock, &fence, &revoked]).arg(grant.owner.to_hex());
        let request = request.arg(grant.token.get()).arg(millis(ttl)).arg(details);
        let mut count = Count::new(links.len());
        let (mut has, mut lacks, mut is_revoked) = (None, Vec::new(), false);
        let mut round = Round::new(&self.lanes, &links, sent, &request, |_| true);
        let outcome = round
            .until(|node, reply| {
                // A majority has the mark, or is about to: one node that knows of it is enough.
                if reply.text() == Some("V") {
                    is_revoked = true;
                    return Some(Outcome::Gone);
                }
                let said = self.said(node, &links, &reply);
                match said {
                    Said::Yes => has = Some(node),
                    Said::No => lacks.push(node),
                    Said::NoVote | Said::Nothing { .. } => {}
                }
                count.add(said);
                count.outcome()
            })
            .await;
        match (outcome, has) {
            (Some(Outcome::Done), Some(has)) => {
                if round.is_under_way() || !lacks.is_empty() {
                    let release = self.release_request(&grant.name, &grant.owner.to_hex());
                    let (grant, clock, ends) = (grant.clone(), self.clock.clone(), sent + ttl);
                    let remedy = Remedy { renewal, lock, fence, grant, ends, clock, release };
                    tokio::spawn(remedy.heal(round, links, has, lacks));
                }
                Ok(Extension::Extended { deadline: Deadline::counted_from(sent, ttl) })
            }
            (Some(Outcome::Gone), _) => {
                self.healing.said().remove(&grant.owner);
                let cause = if is_revoked { LossCause::Revoked } else { LossCause::Gone };
                Ok(Extension::Lost { cause })
            }
            (outcome, _) => {
                let unknown = matches!(outcome, Some(Outcome::Unclear { unknown: true }));
                drop(round);
                Err(self.lanes.without(&self.silent_ones(&links), unknown))
            }
        }
    }
}

impl Remedy {
    /// Waits for the rest of the answers, and gives the grant to those who do not have it. They count from the next
    /// renewal on.
    async fn heal(self, mut round: Round, links: Links, has: usize, mut lacks: Vec<usize>) {
        let _: Option<()> = round
            .until(|node, reply| {
                if reply.text() == Some("0") {
                    lacks.push(node);
                }
                None
            })
            .await;
        let (Some(model), false) = (&links[has], lacks.is_empty()) else { return };
        let look = script::LOOK.of_voter(&[&self.lock]);
        let Ok((value, _)) = model.query::<(Vec<u8>, Value)>(look.to(model)).await else { return };
        if !value.starts_with(self.grant.owner.to_hex().as_bytes()) {
            return;
        }
        for node in lacks {
            let left = millis(self.ends.since(self.clock.now()));
            let Some(link) = &links[node] else { continue };
            if left == 0 || self.renewal.is_released() {
                return;
            }
            let heal = script::HEAL.of_voter(&[&self.lock, &self.fence]);
            let heal = heal.arg(&value).arg(self.grant.token.get()).arg(left);
            // Whether it is there is found out by the next renewal.
            let _ = link.query::<Value>(heal.to(link)).await;
            if self.renewal.is_released() {
                // It may have arrived after the release.
                let _ = link.query::<Value>(self.release.to(link)).await;
            }
        }
    }
}
