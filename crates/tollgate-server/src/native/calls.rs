//! Applies calls to the table.

use std::rc::Rc;
use std::time::Duration;

use tollgate_core::{Details, Moment, OwnerId};
use tollgate_proto::frame::{Call, ClaimCall, Reply, Who};

use super::outbox::{Open, Outbox};
use super::shown;
use crate::own::TableService;
use crate::table::{Acquire, Key, Request, Source};

/// A client waits as long as it likes: it ends a wait by withdrawing its claim, or with its
/// connection.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// The shortest time to live.
const SHORTEST: Duration = Duration::from_millis(100);
/// How many locks a page has at most, and how many positions of the table one call looks at.
const PAGE: usize = 1024;
/// The most bytes of a host's name.
const MOST_HOST: usize = 255;

/// Applies one call. Its answer goes into the outbox, now or later.
pub(super) fn apply(service: &TableService, outbox: &Rc<Outbox>, id: u32, call: Call<'_>, now: Moment) {
    outbox.has_read(id, now);
    let source = Source { connection: outbox.connection, request: u64::from(id) };
    let ask = |owner: OwnerId, wants_age: bool, request: Request| {
        outbox.open(id, Open { owner, wants_age });
        service.request(source, request, now);
    };
    match call {
        // The first frame alone is a greeting.
        Call::Hello(_) => outbox.send(id, &Reply::Invalid { detail: "this connection has been greeted" }),
        Call::Acquire(claim) => {
            if let Err(detail) = check(service, claim.ttl, claim.lock_delay, Some(&claim.who)) {
                return outbox.send(id, &Reply::Invalid { detail: &detail });
            }
            let wants_age = claim.party.is_some_and(|party| party.age.is_none());
            ask(claim.owner, wants_age, Request::Acquire(acquire(*claim)));
        }
        Call::Extend { name, owner, ttl, who } => {
            if let Err(detail) = check(service, ttl, Duration::ZERO, who.as_ref()) {
                return outbox.send(id, &Reply::Invalid { detail: &detail });
            }
            let details = who.as_ref().map(shown::details);
            ask(owner, false, Request::Extend { key: Key { name, owner }, ttl, details });
        }
        Call::Release { name, owner } => ask(owner, false, Request::Release(Key { name, owner })),
        Call::Withdraw { name, owner } => ask(owner, false, Request::Withdraw(Key { name, owner })),
        Call::Break { name, token, by_force } => {
            service.request(source, Request::Break { name, token, by_force }, now);
        }
        Call::RaiseFloor { token } => service.request(source, Request::RaiseFloor { token }, now),
        Call::Admit { resource, token, raises, is_foreign } => {
            let last = service.look(|table, _| table.last_token());
            if !is_foreign && last.is_none_or(|last| token > last) {
                return outbox.send(id, &Reply::NeverGiven);
            }
            let resource = resource.to_owned();
            service.request(source, Request::Admit { resource, token, raises }, now);
        }
        Call::Mark { resource } => service.mark(source, resource),
        Call::Age => outbox.send(id, &Reply::Age { age: service.age(now) }),
        Call::Inspect { name } => {
            service.look(|table, now| {
                if let Some(view) = table.inspect(&name) {
                    outbox.send(id, &Reply::Seen(shown::lock(&view, now)));
                }
            });
            outbox.send(id, &Reply::Listed { next: None });
        }
        Call::List { prefix, from } => {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let next = service.look(|table, now| {
                let (views, next) = table.page(prefix, from, PAGE);
                for view in &views {
                    outbox.send(id, &Reply::Seen(shown::lock(view, now)));
                }
                next
            });
            outbox.send(id, &Reply::Listed { next: next.map(|next| next as u64) });
        }
        Call::Follow { prefix } => {
            let detail = "this connection follows enough already; end an earlier call with unfollow";
            let is_followed = service.native().follow(outbox, id, prefix);
            outbox.send(id, &if is_followed { Reply::Done } else { Reply::Invalid { detail } });
        }
        Call::Unfollow { call } => {
            service.native().unfollow(outbox, call);
            outbox.send(id, &Reply::Done);
        }
        Call::Ping => outbox.send(id, &Reply::Pong),
        Call::Pong => {}
    }
}

fn acquire(claim: ClaimCall<'_>) -> Acquire {
    let wait = if claim.waits { FOR_EVER } else { Duration::ZERO };
    Acquire {
        details: shown::details(&claim.who),
        key: Key { name: claim.name, owner: claim.owner },
        mode: claim.mode,
        ttl: claim.ttl,
        wait,
        round: wait,
        can_return: true,
        is_part: false,
        hears_of_queue: true,
        lock_delay: claim.lock_delay,
        party: claim.party,
        on_deadlock: claim.on_deadlock,
    }
}

/// Refuses what is outside the limits, in words for the caller.
fn check(
    service: &TableService,
    ttl: Duration,
    delay: Duration,
    who: Option<&Who<'_>>,
) -> Result<(), String> {
    let longest = service.native().longest;
    if ttl < SHORTEST || ttl.saturating_add(delay) > longest {
        return Err(format!(
            "this server takes a ttl from {SHORTEST:?} to {longest:?}, with its lock-delay; not {ttl:?} and {delay:?}"
        ));
    }
    let Some(who) = who else { return Ok(()) };
    let meta: usize = who.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
    if meta > Details::MAX_META_BYTES || who.host.len() > MOST_HOST {
        return Err(format!(
            "meta has {meta} bytes and the limit is {}, the host's name {} and the limit is {MOST_HOST}",
            Details::MAX_META_BYTES,
            who.host.len()
        ));
    }
    Ok(())
}
