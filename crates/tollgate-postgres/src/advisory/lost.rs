//! How a holder learns that the connection its lock hung on is gone.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Grant, LossCause};

use super::backend::Shared;
use super::socket::until_it_stirs;

/// How often a connection that is silent is asked whether it is there, and how long it has to answer: 5 s in all.
const PING_EVERY: Duration = Duration::from_secs(2);
pub(super) const TO_PING: Duration = Duration::from_secs(3);
/// How long a connection is left to whoever uses it in this moment.
const BUSY: Duration = Duration::from_millis(20);

/// Completes when the connection of `grant` is lost. Runs on the keeper, which no caller can block.
pub(super) async fn wait(shared: Arc<Shared>, grant: &Grant) -> LossCause {
    let Some(entry) = shared.books.held(grant) else { return LossCause::Gone };
    loop {
        let stream = match entry.session.try_lock() {
            Ok(_) if entry.state().over => None,
            Ok(mut place) => {
                let usable = place.as_mut().and_then(|session| session.is_usable().then_some(session));
                let Some(session) = usable else {
                    shared.disconnect(&entry, &mut place);
                    return LossCause::SessionEnded;
                };
                Some(session.stream().clone())
            }
            Err(_) => {
                tokio::time::sleep(BUSY).await;
                continue;
            }
        };
        // It was released: nothing can be lost any more.
        let Some(stream) = stream else { return std::future::pending().await };
        let stirred = tokio::time::timeout(PING_EVERY, until_it_stirs(stream)).await;
        if entry.state().over {
            return std::future::pending().await;
        }
        if stirred.is_err() && !shared.is_connected(&entry, TO_PING).await && !entry.state().over {
            return LossCause::SessionEnded;
        }
    }
}
