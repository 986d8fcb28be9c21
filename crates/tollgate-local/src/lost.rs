//! Noticing that an operator asked a holder to leave, or that a lock's file vanished: one task looks, while
//! somebody wants to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_core::{Grant, LossCause};

use crate::registry::{Phase, Slot};
use crate::steps::Shared;

/// How often holders are looked at.
const EVERY: Duration = Duration::from_millis(250);

/// Whether the task that looks is running.
#[derive(Debug, Default)]
pub(crate) struct Looking(AtomicBool);

/// Completes when `grant` is lost.
pub(crate) async fn wait(shared: Arc<Shared>, grant: &Grant) -> LossCause {
    let Some((slot, _)) = shared.registry.held(grant) else { return LossCause::Gone };
    let mut lost = slot.lost.subscribe();
    start(&shared);
    // Neither the slot nor the backend is kept alive by somebody who only listens.
    drop((slot, shared));
    let cause = lost.wait_for(Option::is_some).await.ok().and_then(|cause| *cause);
    match cause {
        Some(cause) => cause,
        // Released: nothing was lost, and there is nothing more to tell.
        None => std::future::pending().await,
    }
}

fn start(shared: &Shared) {
    if shared.looking.0.swap(true, Ordering::SeqCst) {
        return;
    }
    let (weak, clock, keeper) = (shared.this.clone(), shared.clock.clone(), shared.keeper.clone());
    shared.keeper.spawn(async move {
        loop {
            let Some(shared) = weak.upgrade() else { return };
            if keeper.spawn_blocking(move || look(&shared)).await.ok() != Some(true) {
                return;
            }
            clock.sleep_until(clock.now() + EVERY).await;
        }
    });
}

/// Looks at every holder that is listened to; says whether there are any.
fn look(shared: &Shared) -> bool {
    loop {
        let mut listened = false;
        for slot in shared.registry.all() {
            listened |= look_at(&slot);
        }
        if listened {
            return true;
        }
        shared.looking.0.store(false, Ordering::SeqCst);
        // Somebody may have begun to listen since, and believed that this goes on.
        let late = shared.registry.all().iter().any(|slot| slot.lost.receiver_count() > 0);
        if !late || shared.looking.0.swap(true, Ordering::SeqCst) {
            return false;
        }
    }
}

fn look_at(slot: &Slot) -> bool {
    if slot.lost.receiver_count() == 0 || slot.lost.borrow().is_some() {
        return false;
    }
    let place = match &slot.lock().phase {
        Phase::Held(place, _) => place.clone(),
        _ => return false,
    };
    if !place.is_current() {
        slot.lost.send_replace(Some(LossCause::Gone));
    } else if place.is_revoked().unwrap_or(false) {
        // A file that cannot be read asks for nothing; a renewal finds out what is wrong with it.
        slot.lost.send_replace(Some(LossCause::Revoked));
    }
    true
}
