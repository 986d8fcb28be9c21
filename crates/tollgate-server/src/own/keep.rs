//! Keep: renew all grants of a process and wait for all its claims with one call.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use tollgate_proto::{self as proto, KeepItem, KeepState, Kept, KeptItem, LossCause, Problem};

use super::calls::{not_granting, stopping};
use super::driver::{Stopped, TableService};
use super::watch::Watch;
use crate::show::millis;
use crate::table::{Answer, Key, Request};

/// What a pass over the claims found out about one of them.
struct Found {
    item: KeptItem,
    /// Whether the client learns something: a grant it has not heard of, or a loss.
    is_news: bool,
}

/// Renews what is held and refreshes what waits; then, if nothing has changed, waits for the first
/// change, but for no more than half of the time that the grants are valid.
pub(super) async fn keep(service: &TableService, call: proto::Keep) -> Result<Kept, Problem> {
    for item in &call.items {
        let held = service.held(&key(item));
        if let Some(ttl_ms) = item.ttl_ms {
            service.check_ttl(ttl_ms, held.map_or(0, |held| millis(held.lock_delay)))?;
        }
    }
    let began = Instant::now();
    let end = began + Duration::from_millis(call.wait_ms);
    let mut found = Vec::with_capacity(call.items.len());
    for item in &call.items {
        found.push(pass(service, item).await?);
    }
    // A call that stays open longer would outlive what it says of the grants.
    let valid = found.iter().filter_map(|found| found.item.valid_ms).min();
    let end = valid.map_or(end, |valid| end.min(began + Duration::from_millis(valid / 2)));
    if call.wait_ms > 0 && !found.iter().any(|found| found.is_news) {
        wait(service, &call.items, &mut found, end).await?;
    }
    Ok(Kept { items: found.into_iter().map(|found| found.item).collect() })
}

async fn pass(service: &TableService, item: &KeepItem) -> Result<Found, Problem> {
    let request = Request::Keep { key: key(item), ttl: ttl(item), round: Duration::ZERO };
    let answer = service.ask(request).await.map_err(|Stopped| stopping())?;
    if answer == Answer::Lost && service.wait().is_some() {
        return Err(not_granting(service));
    }
    understood(item, answer)
}

/// Waits until a claim is granted, a grant is lost, or the round is over.
async fn wait(
    service: &TableService,
    items: &[KeepItem],
    found: &mut [Found],
    end: Instant,
) -> Result<(), Problem> {
    let round = end.saturating_duration_since(Instant::now());
    let is_waiting = |found: &Found| found.item.state.known() == Some(KeepState::Waiting);
    let mut waiting: FuturesUnordered<_> = (0..items.len())
        .filter(|at| is_waiting(&found[*at]))
        .map(|at| async move {
            let request = Request::Keep { key: key(&items[at]), ttl: ttl(&items[at]), round };
            (at, service.ask(request).await)
        })
        .collect();
    let mut held: FuturesUnordered<_> = (0..items.len())
        .filter(|at| !is_waiting(&found[*at]))
        .map(|at| async move { (at, until_lost(service, &items[at]).await) })
        .collect();
    let over = tokio::time::sleep_until(end);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            Some((at, answer)) = waiting.next() => {
                // The answers that are there already leave together.
                found[at] = understood(&items[at], answer.map_err(|Stopped| stopping())?)?;
                if found[at].is_news {
                    break;
                }
            }
            Some((at, cause)) = held.next() => {
                found[at] = lost(&items[at], cause);
                break;
            }
            () = &mut over => break,
            () = service.stopped() => return Err(stopping()),
        }
    }
    Ok(())
}

/// Completes when a grant is over or an operator asked for it.
async fn until_lost(service: &TableService, item: &KeepItem) -> LossCause {
    let watch = Watch::new(&service.inner, &item.name);
    loop {
        let changed = watch.changed();
        match service.held(&key(item)) {
            None => return LossCause::Gone,
            Some(held) if held.is_revoked => return LossCause::Revoked,
            Some(_) => changed.await,
        }
    }
}

fn key(item: &KeepItem) -> Key {
    Key { name: item.name.clone(), owner: item.owner.id() }
}

fn ttl(item: &KeepItem) -> Option<Duration> {
    item.ttl_ms.map(Duration::from_millis)
}

fn understood(item: &KeepItem, answer: Answer) -> Result<Found, Problem> {
    Ok(match answer {
        Answer::Granted(granted) => Found {
            item: KeptItem {
                token: Some(granted.token),
                valid_ms: Some(millis(granted.valid)),
                ..state(item, KeepState::Held)
            },
            is_news: !granted.again,
        },
        Answer::Waiting { ahead } => Found {
            item: KeptItem { ahead: Some(ahead as u64), ..state(item, KeepState::Waiting) },
            is_news: false,
        },
        // Another call waits for the claim now.
        Answer::Moved => Found { item: state(item, KeepState::Waiting), is_news: false },
        Answer::Revoked => lost(item, LossCause::Revoked),
        // The server stops, or its disk is full: the claim is not lost, and may be repeated.
        Answer::NotGranting => return Err(stopping()),
        _ => lost(item, LossCause::Gone),
    })
}

fn lost(item: &KeepItem, cause: LossCause) -> Found {
    let item = KeptItem { cause: Some(cause.into()), ..state(item, KeepState::Lost) };
    Found { item, is_news: true }
}

fn state(item: &KeepItem, state: KeepState) -> KeptItem {
    KeptItem {
        name: item.name.clone(),
        state: state.into(),
        owner: None,
        token: None,
        valid_ms: None,
        ahead: None,
        cause: None,
    }
}
