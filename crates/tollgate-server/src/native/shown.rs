//! Details of holders and waiters, from and into frames.

use std::sync::Arc;

use tollgate_core::{Details, Happening, Moment, Stake};
use tollgate_engine::LockView;
use tollgate_proto::frame::{self, HolderSeen, LockSeen, WaiterSeen, Who};

use crate::table::Happened;

pub(super) fn details(who: &Who<'_>) -> Arc<Details> {
    Arc::new(Details {
        host: who.host.to_owned(),
        pid: who.pid,
        since_ms: who.since_ms,
        meta: who.meta.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        revision: who.revision,
        stake: who.stake.map(|stake| Stake::shown(stake.party, stake.age, stake.on_deadlock, stake.claim)),
    })
}

pub(super) fn who(details: &Details) -> Who<'_> {
    Who {
        host: &details.host,
        pid: details.pid,
        since_ms: details.since_ms,
        meta: details.meta.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
        revision: details.revision,
        stake: details.stake.as_ref().map(|stake| {
            let (party, age, on_deadlock, claim) = stake.parts();
            frame::Stake { party, age, on_deadlock, claim }
        }),
    }
}

pub(super) fn lock<'a>(view: &LockView<'a, Arc<Details>>, now: Moment) -> LockSeen<'a> {
    let holders = view.holders.iter().map(|holder| HolderSeen {
        mode: holder.mode,
        token: holder.token,
        expires_in: holder.expires.since(now),
        who: who(holder.details),
    });
    let waiters = view.waiters.iter();
    let waiters = waiters.map(|waiter| WaiterSeen { mode: waiter.mode, who: who(waiter.details) });
    LockSeen { name: view.name.clone(), holders: holders.collect(), waiters: waiters.collect() }
}

pub(super) fn happened(happened: &Happened) -> frame::Happened<'_> {
    frame::Happened {
        name: happened.name.clone(),
        token: happened.token,
        what: match happened.what {
            Happening::Granted => 0,
            Happening::Released => 1,
            Happening::Expired => 2,
            Happening::Revoked => 3,
            _ => 4,
        },
        who: happened.holder.as_ref().map(|(_, details)| who(details)),
    }
}
