//! Taking locks as the user asked: waits, reports the holders of a busy lock, and reacts to
//! signals.

use std::time::Duration;

use tollgate::{ErrorKind, Guards, Locks, Result, SetRequest};

use crate::args::ClaimArgs;
use crate::exit::Exit;
use crate::patience::Patience;
use crate::signals::Signals;
use crate::{show, tell};

/// How long pending releases and withdrawals may take when the command ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same, for an engine that has just left a request unanswered.
const SILENT: Duration = Duration::from_millis(300);

/// The locks to take, and how.
pub(crate) struct Wanted<'a> {
    pub(crate) names: &'a [String],
    pub(crate) ttl: Duration,
    pub(crate) claim: &'a ClaimArgs,
    /// Shown with the locks by `tollgate ls` and `inspect`.
    pub(crate) meta: Vec<(String, String)>,
    /// The locks are not renewed here: they are to be handed to another process.
    pub(crate) detached: bool,
}

/// The result of taking locks.
pub(crate) enum Taken {
    Held(Guards),
    /// The locks were busy, or a signal came first.
    Not(Exit),
}

/// Takes the locks, and waits for them as long as the arguments say.
///
/// A claim that waits for ever is made again as long as there is `patience`, if an overloaded engine
/// left it without an answer: the client withdraws the first one.
pub(crate) async fn take(
    locks: &Locks,
    wanted: &Wanted<'_>,
    patience: &mut Patience,
    signals: &mut Signals,
) -> Result<Taken> {
    let waits_for_ever = !wanted.claim.try_once && wanted.claim.wait.is_none();
    let taking = async {
        if !waits_for_ever {
            return request(locks, wanted).try_acquire().await;
        }
        loop {
            match request(locks, wanted).acquire().await {
                Ok(guards) => return Ok(Some(guards)),
                Err(error) => tokio::time::sleep(patience.pause(error)?).await,
            }
        }
    };
    // Concurrently: an inspection may take long, and must not delay the grant.
    let reporting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tell::note_on_terminal(&format!("waiting for {}", in_the_way(locks, wanted).await));
    };
    let mut reported = false;
    let ended = {
        tokio::pin!(taking, reporting);
        loop {
            tokio::select! {
                biased;
                guards = &mut taking => match guards {
                    Ok(Some(guards)) => return Ok(Taken::Held(guards)),
                    Ok(None) => break busy(locks, wanted).await,
                    Err(error) => {
                        // Locks of the set that were granted are released in the background, if the
                        // engine answers.
                        let is_silent = matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable);
                        close_within(locks, if is_silent { SILENT } else { PATIENCE }).await;
                        return Err(error);
                    }
                },
                signal = signals.next() => break Exit::of_signal(signal),
                () = &mut reporting, if !reported => reported = true,
            }
        }
    };
    close(locks).await;
    Ok(Taken::Not(ended))
}

/// Waits for pending releases and withdrawals, but not without a limit: the engine may be gone.
pub(crate) async fn close(locks: &Locks) {
    close_within(locks, PATIENCE).await;
}

async fn close_within(locks: &Locks, limit: Duration) {
    let _ = tokio::time::timeout(limit, locks.close()).await;
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

/// The first busy lock and its holders, as far as the engine answers.
async fn in_the_way(locks: &Locks, wanted: &Wanted<'_>) -> String {
    for name in wanted.names {
        if let Ok(Some(state)) = locks.inspect(name).await
            && let Some(holders) = show::in_the_way(&state)
        {
            return format!("{name:?}, {holders}");
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

    /// An engine that grants locks, and never answers an inspection.
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
    async fn an_inspection_that_hangs_does_not_delay_the_grant() {
        let engine = MemoryBackend::named("discreet").unwrap();
        let holder = Locks::new(Arc::new(engine.clone())).unwrap().lock("x").acquire().await.unwrap();
        let locks = Locks::new(Arc::new(Discreet(engine))).unwrap();
        let (claim, ttl) = (ClaimArgs::default(), Duration::from_secs(60));
        let names = ["x".to_owned()];
        let wanted = Wanted { names: &names, ttl, claim: &claim, meta: Vec::new(), detached: false };
        let mut signals = Signals::listen().unwrap();
        let released = async {
            // Longer than until the holders are looked up.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            holder.release().await.unwrap();
        };
        let mut patience = Patience::none();
        let taking = take(&locks, &wanted, &mut patience, &mut signals);
        let both = async { tokio::join!(taking, released) };
        let (taken, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.expect("it is taken");
        assert!(matches!(taken, Ok(Taken::Held(_))));
    }
}
