//! The calls that change something and are answered at once: each is one request to the table.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Details;
use tollgate_proto::{self as proto, Admitted, Broken, Grant, LossCause, Problem, ProblemKind, Released};

use super::driver::{Stopped, TableService};
use crate::show::{kind, limit, millis};
use crate::table::{Answer, Key, Request};

pub(super) async fn extend(service: &TableService, call: proto::Extend) -> Result<Grant, Problem> {
    let key = Key { name: call.name.clone(), owner: call.owner.id() };
    let held = service.held(&key).ok_or_else(|| unknown(service))?;
    let ttl = call.ttl_ms.map_or(held.ttl, Duration::from_millis);
    service.check_ttl(millis(ttl), millis(held.lock_delay))?;
    let details = call.meta.map(|meta| Arc::new(Details { meta, ..Details::clone(&held.details) }));
    match ask(service, Request::Extend { key, ttl, details }).await? {
        Answer::Granted(granted) => Ok(Grant {
            name: call.name,
            mode: kind(held.mode).into(),
            limit: limit(held.mode),
            owner: call.owner,
            token: granted.token,
            ttl_ms: millis(ttl),
            valid_ms: millis(granted.valid),
            again: false,
            party_age: held.age,
        }),
        Answer::Revoked => {
            let detail = "an operator asked the holder to leave; stop the work and release the lock";
            Err(Problem::lost(LossCause::Revoked, detail))
        }
        Answer::NotGranting => Err(not_granting(service)),
        _ => Err(lost()),
    }
}

pub(super) async fn release(service: &TableService, call: proto::Release) -> Result<Released, Problem> {
    let (mut repeated, mut is_lost) = (true, false);
    for name in call.names()? {
        let key = Key { name: name.clone(), owner: call.owner.id() };
        match ask(service, Request::Release(key)).await? {
            Answer::Released { again } => repeated &= again,
            _ => is_lost = true,
        }
    }
    if is_lost {
        return Err(unknown(service));
    }
    Ok(Released { released: true, repeated })
}

pub(super) async fn withdraw(service: &TableService, call: proto::Withdraw) -> Result<Released, Problem> {
    let mut released = false;
    for name in call.names()? {
        let key = Key { name: name.clone(), owner: call.owner.id() };
        released |= service.held(&key).is_some();
        ask(service, Request::Withdraw(key)).await?;
    }
    Ok(Released { released, repeated: false })
}

pub(super) async fn break_lock(service: &TableService, call: proto::Break) -> Result<Broken, Problem> {
    let request = Request::Break { name: call.name, token: call.token, by_force: call.force };
    match ask(service, request).await? {
        Answer::Broken => Ok(Broken::REVOKED),
        Answer::Asked => Ok(Broken::PENDING),
        _ if service.wait().is_some() => Err(not_granting(service)),
        _ => {
            let detail =
                format!("no holder has the token {}; look who holds the lock with GET /v1/lock", call.token);
            Err(Problem::new(ProblemKind::NotFound, detail))
        }
    }
}

pub(super) async fn admit(service: &TableService, call: proto::Admit) -> Result<Admitted, Problem> {
    if service.look(|table, _| table.last_token()).is_none_or(|last| call.token > last) {
        let rule = "is larger than every token that this server has granted; show the token of a grant";
        return Err(Problem::invalid("token", rule));
    }
    let resource = call.resource.as_str().to_owned();
    let raises = call.mode == proto::ModeKind::Exclusive;
    match ask(service, Request::Admit { resource, token: call.token, raises }).await? {
        Answer::Admitted { mark } => Ok(Admitted { mark: Some(mark) }),
        Answer::Stale { mark } => Err(Problem::stale(call.token, Some(mark))),
        Answer::NotGranting => Err(not_granting(service)),
        _ => Err(stopping()),
    }
}

async fn ask(service: &TableService, request: Request) -> Result<Answer, Problem> {
    service.ask(request).await.map_err(|Stopped| stopping())
}

pub(super) fn stopping() -> Problem {
    later("the server is stopping; repeat the call with the same owner when it is back")
}

/// 503: the same call may be answered later.
pub(super) fn later(detail: &str) -> Problem {
    let mut problem = Problem::new(ProblemKind::Unavailable, detail);
    problem.retry_after_ms = Some(1000);
    problem
}

/// The problem that no grant of this owner is here. While the server waits after a crash, it does
/// not know which grants there are.
fn unknown(service: &TableService) -> Problem {
    if service.wait().is_some() { not_granting(service) } else { lost() }
}

pub(super) fn lost() -> Problem {
    let detail = "the lock is not held by this owner any more; stop the work, and take the lock again";
    Problem::lost(LossCause::Gone, detail)
}

pub(super) fn not_granting(service: &TableService) -> Problem {
    if service.is_full() {
        let detail = "the disk of the server is full: nothing is granted until there is room; held locks are \
                      renewed and released as usual";
        return later(detail);
    }
    let Some(wait) = service.wait() else { return stopping() };
    let detail = format!(
        "after an unclean stop or a restore nothing is granted for another {} ms, until every lock of the time before has ended",
        millis(wait)
    );
    let mut problem = Problem::new(ProblemKind::Unavailable, detail);
    problem.retry_after_ms = Some(millis(wait));
    problem
}
