//! Details of holders and waiters, from and into frames.

use tollgate_core::{Details, Happening, Holder, LockState, Stake, Waiter};
use tollgate_proto::frame::{self, Happened, LockSeen, Who};

pub(crate) fn who(details: &Details) -> Who<'_> {
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

fn details(who: &Who<'_>) -> Details {
    Details {
        host: who.host.to_owned(),
        pid: who.pid,
        since_ms: who.since_ms,
        meta: who.meta.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        revision: who.revision,
        stake: who.stake.map(|stake| Stake::shown(stake.party, stake.age, stake.on_deadlock, stake.claim)),
    }
}

/// Adds a lock, or a part of the last one, to what was seen so far.
pub(crate) fn add(seen: &mut Vec<LockState>, part: &LockSeen<'_>) {
    let holders = part.holders.iter().map(|holder| Holder {
        mode: holder.mode,
        token: Some(holder.token),
        expires_in: Some(holder.expires_in),
        details: details(&holder.who),
    });
    let waiters = part.waiters.iter();
    let waiters = waiters.map(|waiter| Waiter { mode: waiter.mode, details: details(&waiter.who) });
    match seen.last_mut() {
        Some(last) if last.name == part.name => {
            last.holders.extend(holders);
            last.waiters.extend(waiters);
        }
        _ => {
            let (holders, waiters) = (holders.collect(), waiters.collect());
            seen.push(LockState { name: part.name.clone(), holders, waiters });
        }
    }
}

pub(crate) fn event(happened: &Happened<'_>) -> tollgate_core::Event {
    let what = match happened.what {
        0 => Happening::Granted,
        1 => Happening::Released,
        2 => Happening::Expired,
        3 => Happening::Revoked,
        // Ended, or what a later version tells.
        _ => Happening::Ended,
    };
    let event = tollgate_core::Event::now(happened.name.clone(), happened.token, what);
    match &happened.who {
        Some(who) => event.of(details(who)),
        None => event,
    }
}
