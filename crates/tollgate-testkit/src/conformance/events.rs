//! What the event stream yields: grants and ends in order, and every one of a holder that stays.

use futures_util::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tollgate_core::{Event, Happening};

use super::prelude::*;

pub(super) const CASES: &[Case] =
    &[case!(events_come_in_order), case!(every_grant_that_lasts_is_reported_with_its_holder)];

/// How many grants follow one another.
const GRANTS: usize = 8;

/// Follows everything under the prefix of `world`.
async fn follow(world: &World) -> UnboundedReceiver<Event> {
    let (watcher, prefix) = (world.locks().await, world.prefix().to_owned());
    let (sender, events) = unbounded_channel();
    tokio::spawn(async move {
        let mut stream = watcher.events(&prefix);
        while let Some(event) = stream.next().await {
            if sender.send(event.expect("events go on")).is_err() {
                return;
            }
        }
    });
    events
}

async fn events_come_in_order(world: World) {
    let name = world.name("events");
    let locks = world.locks().await;
    let mut events = follow(&world).await;
    let mut seen = Vec::new();
    let mut last = None;
    // Events may skip, and start some time after they are asked for: go on until both kinds were told.
    while !(seen.contains(&true) && seen.contains(&false)) {
        let guard = locks.lock(&name).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        while let Ok(event) = events.try_recv() {
            assert_eq!(event.name, name);
            let granted = event.what == Happening::Granted;
            let order = (event.token, !granted);
            assert!(last < Some(order), "{order:?} was reported after {last:?}");
            last = Some(order);
            seen.push(granted);
        }
    }
}

/// However long a loaded engine takes to be listed, a holder that stays is reported, and so is its end.
async fn every_grant_that_lasts_is_reported_with_its_holder(world: World) {
    let name = world.name("steady");
    let locks = world.locks().await;
    let mut events = follow(&world).await;
    // The stream starts some time after it is asked for.
    let mut guard = locks.lock(&name).acquire().await.unwrap();
    loop {
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        guard = locks.lock(&name).meta("job", "steady").acquire().await.unwrap();
        let token = guard.token();
        let is_granted = |event: &Event| (event.token, event.what) == (token, Happening::Granted);
        let limit = Duration::from_secs(2);
        if tokio::time::timeout(limit, next_of(&mut events, is_granted)).await.is_ok() {
            break;
        }
    }
    for _ in 0..GRANTS {
        let token = guard.token();
        guard.release().await.unwrap();
        let is_end = |event: &Event| event.token == token && event.what != Happening::Granted;
        let ended = soon("an end is reported", next_of(&mut events, is_end)).await;
        guard = locks.lock(&name).meta("job", "steady").acquire().await.unwrap();
        let token = guard.token();
        let is_granted = |event: &Event| (event.token, event.what) == (token, Happening::Granted);
        let granted = soon("a grant is reported", next_of(&mut events, is_granted)).await;
        for event in [ended, granted] {
            let holder = event.holder.as_ref().expect("the holder is named");
            assert_eq!((holder.pid, &*holder.meta["job"]), (std::process::id(), "steady"), "{event:?}");
        }
    }
    guard.release().await.unwrap();
}

/// The next event that is as wanted.
async fn next_of(events: &mut UnboundedReceiver<Event>, wanted: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = events.recv().await.expect("the stream goes on");
        if wanted(&event) {
            return event;
        }
    }
}
