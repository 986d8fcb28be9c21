//! The calls that change something: each is one request to the table.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::{Conflict, Details, LockName, OwnerId, Party};
use tollgate_proto::{
    self as proto, Admitted, Broken, Grant, LossCause, Problem, ProblemKind, Released, Waiting, Waits, parse,
};

use super::Reply;
use super::look::{kind, limit, millis, seen};
use crate::service::{Service, Stopped};
use crate::table::{Acquire, Answer, Granted, Key, Request};

pub(super) async fn acquire(service: &Service, body: &[u8]) -> Result<Reply, Problem> {
    let call: proto::Acquire = parse(body)?;
    let owner = call.owner.as_ref().map(proto::Owner::id);
    let key = Key { name: call.name.clone(), owner: owner.unwrap_or_else(OwnerId::random) };
    let request = Acquire {
        key: key.clone(),
        mode: call.mode()?,
        ttl: Duration::from_millis(call.ttl_ms),
        wait: Duration::from_millis(call.wait_ms),
        round: call.round(),
        can_return: owner.is_some(),
        lock_delay: Duration::from_millis(call.lock_delay_ms),
        party: call.party.map(|id| Party { id, age: call.party_age }),
        on_deadlock: call.on_deadlock,
        details: Arc::new(details(&call)),
    };
    match ask(service, Request::Acquire(request)).await? {
        Answer::Granted(granted) => Ok(Reply::json(&grant(&call, key.owner, &granted))),
        Answer::Waiting { ahead } => {
            let waiting = Waiting { owner: key.owner.into(), ahead: Some(ahead as u64) };
            Err(with_holders(service, &call.name, Problem::waiting(waiting)))
        }
        Answer::Busy { ahead, retry_after } => {
            let detail = "other holders have the lock, and the claim has left the queue; try again later, or wait with \
                          `wait_ms`";
            let mut problem = Problem::new(ProblemKind::Busy, detail);
            problem.ahead = Some(ahead as u64);
            problem.retry_after_ms = retry_after.map(millis);
            Err(with_holders(service, &call.name, problem))
        }
        Answer::Deadlock(conflict) => {
            let detail = format!(
                "waiting might never have ended ({conflict}), so the claim was withdrawn; release what the party holds, and \
                 start over"
            );
            let mut problem = Problem::new(ProblemKind::Deadlock, detail);
            if let Conflict::Cycle(cycle) = conflict {
                problem.cycle = Some(cycle.into_iter().map(Waits::from).collect());
            }
            Err(problem)
        }
        Answer::Moved => {
            let detail = "a later call with this owner took the claim over, and gets the answer";
            Err(Problem::new(ProblemKind::Moved, detail))
        }
        Answer::Mismatch => {
            Err(Problem::invalid("owner", "is that of a claim with another mode or party; use a fresh owner"))
        }
        Answer::Exhausted => {
            Err(Problem::new(ProblemKind::Unavailable, "no fencing token is left below 2^53"))
        }
        Answer::Lost => {
            let detail = "the claim of this owner is over; use a fresh owner";
            Err(Problem::lost(LossCause::Gone, detail))
        }
        _ => Err(not_granting(service)),
    }
}

pub(super) async fn extend(service: &Service, body: &[u8]) -> Result<Reply, Problem> {
    let call: proto::Extend = parse(body)?;
    let key = Key { name: call.name.clone(), owner: call.owner.id() };
    let held = service.held(&key).ok_or_else(lost)?;
    let ttl = call.ttl_ms.map_or(held.ttl, Duration::from_millis);
    let details = call.meta.map(|meta| Arc::new(Details { meta, ..Details::clone(&held.details) }));
    match ask(service, Request::Extend { key, ttl, details }).await? {
        Answer::Granted(granted) => Ok(Reply::json(&Grant {
            name: call.name,
            mode: kind(held.mode).into(),
            limit: limit(held.mode),
            owner: call.owner,
            token: granted.token,
            ttl_ms: millis(ttl),
            valid_ms: millis(granted.valid),
            again: false,
            party_age: None,
        })),
        Answer::Revoked => {
            let detail = "an operator asked the holder to leave; stop the work and release the lock";
            Err(Problem::lost(LossCause::Revoked, detail))
        }
        _ => Err(lost()),
    }
}

pub(super) async fn release(service: &Service, body: &[u8]) -> Result<Reply, Problem> {
    let call: proto::Release = parse(body)?;
    let (mut repeated, mut is_lost) = (true, false);
    for name in call.names()? {
        let key = Key { name: name.clone(), owner: call.owner.id() };
        match ask(service, Request::Release(key)).await? {
            Answer::Released { again } => repeated &= again,
            _ => is_lost = true,
        }
    }
    if is_lost {
        return Err(lost());
    }
    Ok(Reply::json(&Released { released: true, repeated }))
}

pub(super) async fn withdraw(service: &Service, body: &[u8]) -> Result<Reply, Problem> {
    let call: proto::Withdraw = parse(body)?;
    let mut released = false;
    for name in call.names()? {
        let key = Key { name: name.clone(), owner: call.owner.id() };
        released |= service.held(&key).is_some();
        ask(service, Request::Withdraw(key)).await?;
    }
    Ok(Reply::json(&Released { released, repeated: false }))
}

pub(super) async fn break_lock(service: &Service, body: &[u8]) -> Result<Reply, Problem> {
    let call: proto::Break = parse(body)?;
    let request = Request::Break { name: call.name, token: call.token, by_force: call.force };
    match ask(service, request).await? {
        Answer::Broken => Ok(Reply::json(&Broken::REVOKED)),
        Answer::Asked => Ok(Reply::json(&Broken::PENDING)),
        _ => {
            let detail =
                format!("no holder has the token {}; look who holds the lock with GET /v1/lock", call.token);
            Err(Problem::new(ProblemKind::NotFound, detail))
        }
    }
}

pub(super) async fn admit(service: &Service, body: &[u8]) -> Result<Reply, Problem> {
    let call: proto::Admit = parse(body)?;
    if service.look(|table, _| table.last_token()).is_none_or(|last| call.token > last) {
        let rule = "is larger than every token that this server has granted; show the token of a grant";
        return Err(Problem::invalid("token", rule));
    }
    let resource = call.resource.as_str().to_owned();
    let raises = call.mode == proto::ModeKind::Exclusive;
    match ask(service, Request::Admit { resource, token: call.token, raises }).await? {
        Answer::Admitted { mark } => Ok(Reply::json(&Admitted { mark: Some(mark) })),
        Answer::Stale { mark } => Err(Problem::stale(call.token, Some(mark))),
        _ => Err(stopping()),
    }
}

async fn ask(service: &Service, request: Request) -> Result<Answer, Problem> {
    service.ask(request).await.map_err(|Stopped| stopping())
}

fn stopping() -> Problem {
    Problem::new(
        ProblemKind::Unavailable,
        "the server is stopping; repeat the call with the same owner when it is back",
    )
}

fn lost() -> Problem {
    let detail = "the lock is not held by this owner any more; stop the work, and take the lock again";
    Problem::lost(LossCause::Gone, detail)
}

fn not_granting(service: &Service) -> Problem {
    let Some(wait) = service.wait() else { return stopping() };
    let detail = format!(
        "after an unclean stop nothing is granted for another {} ms, until every lock of the time before has ended",
        millis(wait)
    );
    let mut problem = Problem::new(ProblemKind::Unavailable, detail);
    problem.retry_after_ms = Some(millis(wait));
    problem
}

/// The problem with who holds the lock, and how many wait.
fn with_holders(service: &Service, name: &LockName, mut problem: Problem) -> Problem {
    let lock = seen(service, name);
    problem.name = Some(name.clone());
    problem.waiting = Some(lock.waiters.len() as u64);
    problem.holders = Some(lock.holders);
    problem
}

fn grant(call: &proto::Acquire, owner: OwnerId, granted: &Granted) -> Grant {
    Grant {
        name: call.name.clone(),
        mode: call.mode.into(),
        limit: call.limit,
        owner: owner.into(),
        token: granted.token,
        ttl_ms: call.ttl_ms,
        valid_ms: millis(granted.valid),
        again: granted.again,
        party_age: None,
    }
}

fn details(call: &proto::Acquire) -> Details {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Details {
        host: call.host.clone().unwrap_or_default(),
        pid: call.pid.unwrap_or_default(),
        since_ms: millis(now),
        meta: call.meta.clone(),
        ..Details::default()
    }
}
