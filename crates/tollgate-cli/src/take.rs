//! Taking locks as the user asked: waiting, telling who is in the way, and hearing signals meanwhile.

use std::time::Duration;

use tollgate::{Guards, Locks, Result, SetRequest};

use crate::args::ClaimArgs;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::{show, tell};

/// Which locks, and how.
pub(crate) struct Wanted<'a> {
    pub(crate) names: &'a [String],
    pub(crate) ttl: Duration,
    pub(crate) claim: &'a ClaimArgs,
    /// What people see who look at the locks.
    pub(crate) meta: Vec<(String, String)>,
    /// Nobody will renew them: they are to be handed to somebody else.
    pub(crate) detached: bool,
}

/// What trying to take them came to.
pub(crate) enum Taken {
    Held(Guards),
    /// They were busy, or a signal came first.
    Not(Exit),
}

/// Takes the locks, waiting as long as was asked for.
pub(crate) async fn take(locks: &Locks, wanted: &Wanted<'_>, signals: &mut Signals) -> Result<Taken> {
    let request = request(locks, wanted);
    let waits_for_ever = !wanted.claim.try_once && wanted.claim.wait.is_none();
    let taking = async {
        if waits_for_ever { request.acquire().await.map(Some) } else { request.try_acquire().await }
    };
    // Beside it: to look who is in the way may take long, and must not keep us from taking.
    let telling = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tell::note_on_terminal(&format!("waiting for {}", in_the_way(locks, wanted).await));
    };
    let mut told = false;
    let ended = {
        tokio::pin!(taking, telling);
        loop {
            tokio::select! {
                biased;
                guards = &mut taking => match guards {
                    Ok(Some(guards)) => return Ok(Taken::Held(guards)),
                    Ok(None) => break busy(locks, wanted).await,
                    Err(error) => {
                        // What was half taken is given back in the background.
                        close(locks).await;
                        return Err(error);
                    }
                },
                signal = signals.next() => break Exit::of_signal(signal),
                () = &mut telling, if !told => told = true,
            }
        }
    };
    close(locks).await;
    Ok(Taken::Not(ended))
}

/// Finishes what is under way in the background, but does not wait for ever for an engine that is gone.
pub(crate) async fn close(locks: &Locks) {
    const PATIENCE: Duration = Duration::from_secs(5);
    let _ = tokio::time::timeout(PATIENCE, locks.close()).await;
}

fn request(locks: &Locks, wanted: &Wanted<'_>) -> SetRequest {
    let mut request = locks.lock_all(wanted.names).ttl(wanted.ttl);
    for (key, value) in &wanted.meta {
        request = request.meta(key, value);
    }
    if wanted.claim.shared {
        request = request.shared();
    }
    if let Some(permits) = wanted.claim.permits {
        request = request.permit(permits);
    }
    if let Some(wait) = wanted.claim.wait {
        request = request.wait(wait);
    }
    if wanted.detached { request.no_renew() } else { request }
}

/// Which lock is held by whom, as far as can be seen.
async fn in_the_way(locks: &Locks, wanted: &Wanted<'_>) -> String {
    for name in wanted.names {
        if let Ok(Some(state)) = locks.inspect(name).await
            && let Some(somebody) = show::in_the_way(&state)
        {
            return format!("{name:?}, {somebody}");
        }
    }
    format!("{:?}", wanted.names.join(", "))
}

async fn busy(locks: &Locks, wanted: &Wanted<'_>) -> Exit {
    tell::note(&format!("busy: {}", in_the_way(locks, wanted).await));
    wanted.claim.conflict_exit_code.map_or(Exit::BUSY, Exit::of_command)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate::LockName;
    use tollgate_core::layer::Layer;
    use tollgate_core::{Backend, BoxFuture, LockState};
    use tollgate_embedded::MemoryBackend;

    use super::*;

    /// An engine that gives locks, and never says who has them.
    struct Discreet(MemoryBackend);

    impl Layer for Discreet {
        fn inner(&self) -> &dyn Backend {
            &self.0
        }

        fn inspect<'a>(&'a self, _: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn who_looks_who_is_in_the_way_goes_on_taking() {
        let engine = MemoryBackend::named("discreet").unwrap();
        let holder = Locks::new(Arc::new(engine.clone())).unwrap().lock("x").acquire().await.unwrap();
        let locks = Locks::new(Arc::new(Discreet(engine))).unwrap();
        let (claim, ttl) = (ClaimArgs::default(), Duration::from_secs(60));
        let names = ["x".to_owned()];
        let wanted = Wanted { names: &names, ttl, claim: &claim, meta: Vec::new(), detached: false };
        let mut signals = Signals::listen().unwrap();
        let released = async {
            // Longer than it takes until somebody wants to know.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            holder.release().await.unwrap();
        };
        let both = async { tokio::join!(take(&locks, &wanted, &mut signals), released) };
        let (taken, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.expect("it is taken");
        assert!(matches!(taken, Ok(Taken::Held(_))));
    }
}
