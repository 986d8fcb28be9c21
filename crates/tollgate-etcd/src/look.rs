//! One lock as others see it, and an operator who breaks it.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::floor::Floor;
use tollgate_core::turn::how_many_are_in;
use tollgate_core::{
    Age, Details, Error, Holder, LockName, LockState, Mode, Result, Revocation, RevokeMode, Token, Waiter,
};

use crate::acquire::Value;
use crate::backend::EtcdBackend;
use crate::keys::{Span, mode_of};
use crate::links::Repeat;
use crate::ops::{created_at, delete, unchanged};
use crate::proof::any_key;
use crate::wire::range_request::{SortOrder, SortTarget};
use crate::wire::request_op::Request as Op;
use crate::wire::{KeyValue, LeaseTimeToLiveRequest, RangeRequest, RequestOp, TxnRequest};

/// How long leases still have, as far as it was asked.
pub(crate) type Left = HashMap<i64, Option<Duration>>;

impl EtcdBackend {
    pub(crate) async fn seen(&self, name: &LockName) -> Result<Option<LockState>> {
        let claims = self.claims(name, false).await?;
        let floor = if claims.is_empty() { Floor::default() } else { self.floor(name).await? };
        self.state(name, claims, &floor, &mut Left::new()).await
    }

    /// The newest revision: etcd's time.
    pub(crate) async fn newest(&self) -> Result<Age> {
        let answer = self.links.range(any_key(self.links.prefix())).await?;
        Ok(Age(crate::wait::revision(&answer).unsigned_abs()))
    }

    /// All claims on a lock, the oldest first.
    async fn claims(&self, name: &LockName, keys_only: bool) -> Result<Vec<KeyValue>> {
        let span = self.layout.claims_on(name);
        let request = RangeRequest {
            key: span.key.clone().into(),
            range_end: span.end.clone().into(),
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            keys_only,
            ..RangeRequest::default()
        };
        let mut claims = self.links.range(request).await?.kvs;
        claims.retain(|claim| span.remainder(&claim.key).is_some());
        Ok(claims)
    }

    /// What `claims`, the oldest first, make of a lock.
    pub(crate) async fn state(
        &self,
        name: &LockName,
        claims: Vec<KeyValue>,
        floor: &Floor,
        left: &mut Left,
    ) -> Result<Option<LockState>> {
        if claims.is_empty() {
            return Ok(None);
        }
        let span = self.layout.claims_on(name);
        let inside = inside(&span, &claims);
        let mut state = LockState { name: name.clone(), holders: Vec::new(), waiters: Vec::new() };
        for (at, claim) in claims.iter().enumerate() {
            let mode = mode(&span, claim);
            let details = details(claim);
            if at < inside {
                let expires_in = self.left(claim.lease, left).await?;
                let token = Some(floor.token(claim.create_revision)?);
                state.holders.push(Holder { mode, token, expires_in, details });
            } else {
                state.waiters.push(Waiter { mode, details });
            }
        }
        Ok(Some(state))
    }

    /// How long a lease still has; `None` for a key that hangs on none, or on one that has just ended.
    async fn left(&self, lease: i64, asked: &mut Left) -> Result<Option<Duration>> {
        if lease == 0 {
            return Ok(None);
        }
        if let Some(known) = asked.get(&lease) {
            return Ok(*known);
        }
        let request = LeaseTimeToLiveRequest { id: lease, keys: false };
        let answer = self.links.lease_time_to_live(request).await?;
        // Rounded down by etcd; less than nothing if it is gone.
        let left = Some(Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0)));
        asked.insert(lease, left);
        Ok(left)
    }

    /// Asks the holder with `token` to leave, or deletes its claim.
    ///
    /// A mark in the claim's value asks: the holder watches its own key. A forced break leaves the mark, too, so that the holder
    /// can tell an operator from lost data.
    pub(crate) async fn broken(&self, name: &LockName, token: Token, mode: RevokeMode) -> Result<Revocation> {
        let span = self.layout.claims_on(name);
        let floor: Floor = self.floor(name).await?;
        loop {
            let claims = self.claims(name, false).await?;
            let holders = &claims[..inside(&span, &claims)];
            let Some(holder) =
                holders.iter().find(|claim| floor.token(claim.create_revision).is_ok_and(|own| own == token))
            else {
                return Ok(Revocation::NotHeld);
            };
            let marked = match Value::of(holder) {
                Some(value) if value.revoked => true,
                Some(value) => {
                    let value = Value { revoked: true, ..value };
                    let unchanged = vec![unchanged(&holder.key, holder.mod_revision)];
                    match self.put_if(unchanged, &holder.key, &value).await {
                        // It has left, or written its details meanwhile.
                        Ok(false) => continue,
                        Ok(true) => true,
                        // An etcd that is full takes no mark, but deletes.
                        Err(_) if mode == RevokeMode::Force => false,
                        Err(error) => return Err(error),
                    }
                }
                None => false,
            };
            return match mode {
                RevokeMode::Ask if marked => Ok(Revocation::Pending),
                RevokeMode::Ask => Err(Error::unsupported(
                    "the holder does not use tollgate and cannot be asked to leave; end that client, or \
                     take the lock away by force",
                )
                .on(name)),
                RevokeMode::Force => self.evict(holder).await,
            };
        }
    }

    async fn evict(&self, holder: &KeyValue) -> Result<Revocation> {
        let request = TxnRequest {
            compare: vec![created_at(&holder.key, holder.create_revision)],
            success: vec![RequestOp { request: Some(Op::RequestDeleteRange(delete(&holder.key))) }],
            failure: Vec::new(),
        };
        let broken = self.links.txn(request, Repeat::No).await?.succeeded;
        Ok(if broken { Revocation::Revoked } else { Revocation::NotHeld })
    }
}

/// How many of `claims`, the oldest first, are in. Once one has to wait, so have all behind it.
pub(crate) fn inside(span: &Span, claims: &[KeyValue]) -> usize {
    let modes: Vec<Mode> = claims.iter().map(|claim| mode(span, claim)).collect();
    how_many_are_in(&modes)
}

fn mode(span: &Span, claim: &KeyValue) -> Mode {
    span.remainder(&claim.key).map_or(Mode::Exclusive, mode_of)
}

/// Who a claim is of; others' values say nothing to us.
fn details(claim: &KeyValue) -> Details {
    Value::of(claim).map(|value| value.details).unwrap_or_default()
}
