//! Taking one lock.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Conflict, Details, LockName, OwnerId, Party};
use tollgate_proto::{self as proto, Grant, LossCause, Problem, ProblemKind, Waiting, Waits};

use super::calls::{later, not_granting, stopping};
use super::driver::{Stopped, TableService};
use super::look::seen;
use crate::show::{describe, kind, millis, unix_ms};
use crate::table::{Acquire, Answer, Granted, Key, Request};

/// Takes a lock, or says why not.
pub(super) async fn acquire(service: &TableService, call: proto::Acquire) -> Result<Grant, Problem> {
    let owner = call.owner.as_ref().map(proto::Owner::id);
    let key = Key { name: call.name.clone(), owner: owner.unwrap_or_else(OwnerId::random) };
    service.check_ttl(call.ttl_ms, call.lock_delay_ms)?;
    let request = Acquire {
        key: key.clone(),
        mode: call.mode()?,
        ttl: Duration::from_millis(call.ttl_ms),
        wait: Duration::from_millis(call.wait_ms),
        round: call.round(),
        can_return: owner.is_some(),
        is_part: false,
        hears_of_queue: false,
        lock_delay: Duration::from_millis(call.lock_delay_ms),
        party: call.party.map(|id| Party { id, age: call.party_age }),
        on_deadlock: call.on_deadlock,
        details: Arc::new(details(&call)),
    };
    let answer = service.ask(Request::Acquire(request)).await.map_err(|Stopped| stopping())?;
    match answer {
        Answer::Granted(granted) => Ok(grant(service, &call, &key, &granted)),
        other => Err(refused(service, &key, other)),
    }
}

/// Why a claim was not granted, in the words of the API.
pub(super) fn refused(service: &TableService, key: &Key, answer: Answer) -> Problem {
    match answer {
        Answer::Waiting { ahead } => {
            let waiting = Waiting { owner: key.owner.into(), ahead: Some(ahead as u64) };
            with_holders(service, &key.name, Problem::waiting(waiting))
        }
        Answer::Busy { ahead, retry_after } => {
            let detail = "other holders have the lock, and the claim has left the queue; try again \
                          later, or wait with `wait_ms`";
            let mut problem = Problem::new(ProblemKind::Busy, detail);
            problem.ahead = Some(ahead as u64);
            problem.retry_after_ms = retry_after.map(millis);
            with_holders(service, &key.name, problem)
        }
        Answer::Deadlock(conflict) => {
            let detail = format!(
                "waiting might never have ended ({conflict}), so the claim was withdrawn; release \
                 what the party holds, and start over"
            );
            let mut problem = Problem::new(ProblemKind::Deadlock, detail);
            if let Conflict::Cycle(cycle) = conflict {
                problem.cycle = Some(cycle.into_iter().map(Waits::from).collect());
            }
            problem
        }
        Answer::Moved => {
            let detail = "a later call with this owner took the claim over, and gets the answer";
            Problem::new(ProblemKind::Moved, detail)
        }
        Answer::Mismatch => {
            Problem::invalid("owner", "is that of a claim with another mode or party; use a fresh owner")
        }
        Answer::Exhausted => later("no fencing token is left below 2^53"),
        Answer::Lost => {
            let detail = "the claim of this owner is over; use a fresh owner";
            Problem::lost(LossCause::Gone, detail)
        }
        _ => not_granting(service),
    }
}

/// The problem with the lock's holders, and the number of its waiters.
fn with_holders(service: &TableService, name: &LockName, mut problem: Problem) -> Problem {
    describe(&mut problem, seen(service, name));
    problem
}

pub(super) fn grant(service: &TableService, call: &proto::Acquire, key: &Key, granted: &Granted) -> Grant {
    // A repeat may ask for another ttl than the claim has.
    let held = service.held(key);
    Grant {
        name: key.name.clone(),
        mode: held.as_ref().map_or(call.mode, |held| kind(held.mode)).into(),
        limit: call.limit,
        owner: key.owner.into(),
        token: granted.token,
        ttl_ms: held.as_ref().map_or(call.ttl_ms, |held| millis(held.ttl)),
        valid_ms: millis(granted.valid),
        again: granted.again,
        party_age: held.and_then(|held| held.age),
    }
}

pub(super) fn details(call: &proto::Acquire) -> Details {
    Details {
        host: call.host.clone().unwrap_or_default(),
        pid: call.pid.unwrap_or_default(),
        since_ms: unix_ms(),
        meta: call.meta.clone(),
        ..Details::default()
    }
}
