//! The calls that change something.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Deadline, Moment, Revocation};
use tollgate_core::{Details, ErrorKind, Grant, LockName, Locks, Mode, OnDeadlock, OwnerId, Release};
use tollgate_proto::{
    self as proto, Admitted, Broken, KeepState, Kept, KeptItem, LossCause, Problem, ProblemKind, Released,
    Waiting,
};

use super::claims::{Key, Outcome};
use super::look;
use super::owner::{engine_owner, grant_of, owner_of};
use super::problems::{lost, problem};
use super::service::OverService;
use crate::clock::boottime;
use crate::show;

/// What all locks of a call have in common.
#[derive(Clone)]
struct Wanted {
    owner: OwnerId,
    is_set: bool,
    mode: Mode,
    ttl: Duration,
    lock_delay: Duration,
    details: Details,
    gives_up: Option<Instant>,
}

/// Takes one lock, or a set of them.
pub(super) async fn acquire(
    service: &OverService,
    calls: Vec<proto::Acquire>,
) -> Result<Vec<proto::Grant>, Problem> {
    service.check_writable()?;
    let arrived = (Instant::now(), boottime());
    let first = &calls[0];
    if first.on_deadlock != OnDeadlock::Timeout || first.party.is_some() {
        return Err(unsupported(
            "parties and deadlock policies are for the server's own engine; leave them out",
        ));
    }
    let proposed = first.owner.as_ref().map(proto::Owner::id);
    let owner = proposed.unwrap_or_else(OwnerId::random);
    let names: Vec<LockName> = calls.iter().map(|call| call.name.clone()).collect();
    let key: Key = (names.clone(), owner);
    if service.claims.has_ended(owner) {
        return Err(Problem::lost(LossCause::Gone, "the claim of this owner is over; use a fresh owner"));
    }
    if !service.claims.is_open(&key) {
        let wait = Duration::from_millis(first.wait_ms);
        let wanted = Wanted {
            owner,
            is_set: names.len() > 1,
            mode: first.mode()?,
            ttl: Duration::from_millis(first.ttl_ms),
            lock_delay: Duration::from_millis(first.lock_delay_ms),
            details: details(first),
            gives_up: (!wait.is_zero()).then(|| arrived.0 + wait),
        };
        let ttl = wanted.ttl;
        service.claims.begin(key.clone(), ttl, take_all(service.locks.clone(), names, wanted));
    }
    let Some(mut attached) = service.claims.attach(&key, &service.locks, proposed.is_some()) else {
        return Err(lost());
    };
    match attached.outcome(arrived.0 + first.round()).await {
        None => {
            let waiting = Waiting { owner: owner.into(), ahead: None };
            Err(look::with_holders(service, &key.0[0], Problem::waiting(waiting)).await)
        }
        Some(Err(problem)) => {
            attached.settle();
            Err(problem)
        }
        Some(Ok(grants)) => {
            // Before it is settled: a client that is gone by then leaves the grants to their place.
            let confirmed = match confirm(service, grants, proposed.is_some()).await {
                // The grants may be held: a repeat of the call confirms them again.
                Err(problem) if problem.status >= 500 => return Err(problem),
                confirmed => confirmed,
            };
            attached.settle();
            let confirmed = confirmed?;
            confirmed.iter().map(|grant| answered(grant, owner, arrived.1)).collect()
        }
    }
}

/// Takes the locks one after the other, in the order of their names, and renews the first while it
/// waits for the last.
async fn take_all(locks: Locks, names: Vec<LockName>, wanted: Wanted) -> Outcome {
    let mut grants: Vec<Grant> = Vec::with_capacity(names.len());
    for name in &names {
        let taking = take(&locks, name, &wanted);
        tokio::pin!(taking);
        let taken = loop {
            tokio::select! {
                biased;
                taken = &mut taking => break taken,
                () = tokio::time::sleep(wanted.ttl / 3) => {
                    for grant in &mut grants {
                        // A grant that is lost meanwhile shows itself when all are confirmed.
                        if let Ok(longer) = locks.extend_grant(grant, wanted.ttl).await {
                            *grant = longer;
                        }
                    }
                }
            }
        };
        match taken {
            Ok(grant) => grants.push(grant),
            Err(problem) => {
                for grant in grants {
                    let _ = locks.release_grant(&grant).await;
                }
                return Err(problem);
            }
        }
    }
    Ok(grants)
}

async fn take(locks: &Locks, name: &LockName, wanted: &Wanted) -> Result<Grant, Problem> {
    let request = locks.lock(name.as_str()).ttl(wanted.ttl).lock_delay(wanted.lock_delay);
    let request = match wanted.mode {
        Mode::Exclusive => request,
        Mode::Shared => request.shared(),
        Mode::Permit { limit } => request.permit(limit.get()),
    };
    let request = request
        .no_renew()
        .on_behalf_of(engine_owner(wanted.owner, name, wanted.is_set), wanted.details.clone());
    let taken = match wanted.gives_up {
        None => request.try_acquire().await,
        Some(end) => request.wait(end.saturating_duration_since(Instant::now())).try_acquire().await,
    };
    match taken.and_then(|guard| guard.map(tollgate_core::Guard::into_grant).transpose()) {
        Ok(Some(grant)) => Ok(grant),
        Ok(None) => {
            let detail = "other holders have the lock, and the claim has left the queue; try again later, or \
                          wait with `wait_ms`";
            let mut busy = Problem::new(ProblemKind::Busy, detail);
            if let Ok(Some(state)) = locks.inspect(name.as_str()).await {
                show::describe(&mut busy, look::lock_of(&state));
            }
            Err(busy)
        }
        Err(error) => Err(problem(&error)),
    }
}

/// Extends grants that the client may have got from another server before: their deadlines are not
/// known here.
async fn confirm(service: &OverService, grants: Vec<Grant>, is_owners: bool) -> Outcome {
    if !is_owners {
        return Ok(grants);
    }
    let mut confirmed = Vec::with_capacity(grants.len());
    for grant in grants {
        let longer = service.locks.extend_grant(&grant, grant.ttl).await.map_err(|error| problem(&error))?;
        // The engine knows the claim by its owner id alone, and how it is held by itself.
        let seen = service.locks.inspect(grant.name.as_str()).await.map_err(|error| problem(&error))?;
        let holders = seen.map(|lock| lock.holders).unwrap_or_default();
        let held = holders.iter().find(|holder| holder.token == Some(grant.token));
        if held.is_some_and(|held| held.mode != grant.mode) {
            let rule = "is that of a grant with another mode; use a fresh owner";
            return Err(Problem::invalid("owner", rule));
        }
        confirmed.push(longer);
    }
    Ok(confirmed)
}

/// A grant as it is answered to a call that arrived at `arrived`, which is not before it was sent.
fn answered(grant: &Grant, client: OwnerId, arrived: Moment) -> Result<proto::Grant, Problem> {
    let Deadline::At(deadline) = grant.deadline else {
        return Err(super::problems::unexpected("the engine tells no deadline of the grant"));
    };
    let valid = deadline.since(arrived);
    if deadline <= boottime() {
        return Err(lost());
    }
    Ok(proto::Grant {
        name: grant.name.clone(),
        mode: show::kind(grant.mode).into(),
        limit: show::limit(grant.mode),
        owner: owner_of(grant, client)?,
        token: grant.token,
        ttl_ms: show::millis(grant.ttl),
        valid_ms: show::millis(valid),
        again: false,
        party_age: None,
    })
}

/// Renews one grant.
pub(super) async fn extend(service: &OverService, call: proto::Extend) -> Result<proto::Grant, Problem> {
    service.check_writable()?;
    if call.meta.is_some() {
        return Err(unsupported("`meta` cannot be changed through this server; leave it out"));
    }
    let arrived = boottime();
    let grant = grant_of(&call.name, &call.owner)?;
    let ttl = call.ttl_ms.map_or(grant.ttl, Duration::from_millis);
    let longer = service.locks.extend_grant(&grant, ttl).await.map_err(|error| problem(&error))?;
    let answer = answered(&longer, call.owner.id(), arrived)?;
    Ok(proto::Grant { owner: call.owner, ..answer })
}

/// Gives locks back.
pub(super) async fn release(service: &OverService, call: proto::Release) -> Result<Released, Problem> {
    service.check_writable()?;
    for name in call.names()? {
        let grant = grant_of(name, &call.owner)?;
        match service.locks.release_grant(&grant).await {
            Ok(Release::Released) => {}
            Ok(Release::AlreadyLost) => return Err(lost()),
            Err(error) => return Err(problem(&error)),
        }
    }
    Ok(Released { released: true, repeated: false })
}

/// Removes claims in whatever state they are.
pub(super) async fn withdraw(service: &OverService, call: proto::Withdraw) -> Result<Released, Problem> {
    service.check_writable()?;
    let mut names = call.names()?.to_vec();
    names.sort_unstable();
    let mut released = service.claims.withdraw(&(names.clone(), call.owner.id()), &service.locks);
    for name in &names {
        if call.owner.rest().is_some() {
            let grant = grant_of(name, &call.owner)?;
            let ended = service.locks.release_grant(&grant).await.map_err(|error| problem(&error))?;
            released |= ended == Release::Released;
        } else {
            let request = service.locks.lock(name.as_str()).no_renew();
            let request = request
                .on_behalf_of(engine_owner(call.owner.id(), name, names.len() > 1), Details::default());
            if !request.withdraw().await.map_err(|error| problem(&error))? {
                let detail = "the engine did not answer; the withdrawal goes on in the background";
                return Err(Problem::new(ProblemKind::Indeterminate, detail));
            }
        }
    }
    Ok(Released { released, repeated: false })
}

/// Takes a lock from its holder.
pub(super) async fn break_lock(service: &OverService, call: proto::Break) -> Result<Broken, Problem> {
    service.check_writable()?;
    let revoked = match call.force {
        true => service.locks.revoke_by_force(call.name.as_str(), call.token).await,
        false => service.locks.revoke(call.name.as_str(), call.token).await,
    };
    match revoked.map_err(|error| problem(&error))? {
        Revocation::Revoked => Ok(Broken::REVOKED),
        Revocation::Pending => Ok(Broken::PENDING),
        Revocation::NotHeld => {
            let detail =
                format!("no holder has the token {}; look up the holder with GET /v1/lock", call.token);
            Err(Problem::new(ProblemKind::NotFound, detail))
        }
    }
}

/// Marks are kept by gates of the engine itself.
pub(super) fn admit() -> Result<Admitted, Problem> {
    Err(unsupported(
        "this server keeps no marks: let the resource itself compare tokens, or put `tollgate fence-proxy` \
         before it",
    ))
}

/// How often grants are looked at while a call waits for a change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Renews grants, and waits for claims until the first change, but for no more than half of the time
/// that the grants are valid.
pub(super) async fn keep(service: &OverService, call: proto::Keep) -> Result<Kept, Problem> {
    service.check_writable()?;
    let arrived = (Instant::now(), boottime());
    let mut items = pass_all(service, &call.items, arrived.1).await?;
    let before: Vec<_> = items.iter().map(|item| item.state.clone()).collect();
    let valid = items.iter().filter_map(|item| item.valid_ms).min();
    let wait = call.wait_ms.min(valid.map_or(u64::MAX, |valid| valid / 2));
    let end = arrived.0 + Duration::from_millis(wait);
    // A grant that was fetched, and a loss, are news.
    let is_news = |items: &[KeptItem]| {
        let states = items.iter().map(|item| item.state.clone());
        items.iter().any(|item| item.owner.is_some() || item.state.known() == Some(KeepState::Lost))
            || states.ne(before.iter().cloned())
    };
    while !is_news(&items) && Instant::now() < end {
        let next = end.min(Instant::now() + LOOK_AGAIN);
        let waiting = (0..items.len()).filter(|at| items[*at].state.known() == Some(KeepState::Waiting));
        let waits: Vec<_> = waiting
            .filter_map(|at| {
                let item = &call.items[at];
                let key = (vec![item.name.clone()], item.owner.id());
                let mut attached = service.claims.attach(&key, &service.locks, true)?;
                Some(Box::pin(async move { attached.outcome(next).await.map(drop) }))
            })
            .collect();
        if waits.is_empty() {
            tokio::time::sleep_until(next).await;
        } else {
            let _ = futures_util::future::select_all(waits).await;
        }
        items = pass_all(service, &call.items, arrived.1).await?;
    }
    Ok(Kept { items })
}

async fn pass_all(
    service: &OverService,
    items: &[proto::KeepItem],
    arrived: Moment,
) -> Result<Vec<KeptItem>, Problem> {
    let passes = items.iter().map(|item| pass(service, item, arrived));
    futures_util::future::join_all(passes).await.into_iter().collect()
}

async fn pass(service: &OverService, item: &proto::KeepItem, arrived: Moment) -> Result<KeptItem, Problem> {
    let kept = |state: KeepState| KeptItem {
        name: item.name.clone(),
        state: state.into(),
        owner: None,
        token: None,
        valid_ms: None,
        ahead: None,
        cause: None,
    };
    let lost = || KeptItem { cause: Some(LossCause::Gone.into()), ..kept(KeepState::Lost) };
    let held = |answer: proto::Grant| KeptItem {
        token: Some(answer.token),
        valid_ms: Some(answer.valid_ms),
        owner: Some(answer.owner).filter(|owner| *owner != item.owner),
        ..kept(KeepState::Held)
    };
    if item.owner.rest().is_none() {
        // A claim that was granted is fetched: the answer has the owner to go on with.
        let key = (vec![item.name.clone()], item.owner.id());
        let Some(mut attached) = service.claims.attach(&key, &service.locks, true) else { return Ok(lost()) };
        return match attached.outcome(Instant::now()).await {
            None => Ok(kept(KeepState::Waiting)),
            Some(Err(_)) => {
                attached.settle();
                Ok(lost())
            }
            Some(Ok(grants)) => {
                let confirmed = confirm(service, grants, true).await?;
                attached.settle();
                let answers: Result<Vec<_>, _> =
                    confirmed.iter().map(|grant| answered(grant, item.owner.id(), arrived)).collect();
                Ok(answers?.pop().map_or_else(lost, held))
            }
        };
    }
    let grant = grant_of(&item.name, &item.owner)?;
    let ttl = item.ttl_ms.map_or(grant.ttl, Duration::from_millis);
    match service.locks.extend_grant(&grant, ttl).await {
        Ok(longer) => Ok(match answered(&longer, item.owner.id(), arrived) {
            // The item's own owner goes on to be the right one.
            Ok(answer) => KeptItem { owner: None, ..held(answer) },
            Err(_) => lost(),
        }),
        Err(error) if error.kind() == ErrorKind::Lost => Ok(lost()),
        Err(error) => Err(problem(&error)),
    }
}

fn details(call: &proto::Acquire) -> Details {
    Details {
        host: call.host.clone().unwrap_or_default(),
        pid: call.pid.unwrap_or_default(),
        since_ms: show::unix_ms(),
        meta: call.meta.clone(),
        ..Details::default()
    }
}

fn unsupported(detail: &str) -> Problem {
    Problem::new(ProblemKind::Unsupported, detail)
}
