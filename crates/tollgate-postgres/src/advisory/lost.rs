//! How a holder learns that its lock was revoked, or that the connection it hangs on is gone.
//!
//! An operator marks the row of the holder in `sessions` and notifies its connection, which listens under its own name. What
//! the notification says is not read: whenever something arrives the mark is looked up, and after each ping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;
use tollgate_core::{Grant, LossCause};
use tollgate_sql::within;

use super::backend::Shared;
use super::books::Entry;
use super::sessions::answered;
use super::socket::until_it_stirs;
use crate::driven::Value;

/// How often a connection that is silent is asked whether it is there, and how long it has to answer: 5 s in all.
const PING_EVERY: Duration = Duration::from_secs(2);
pub(super) const TO_PING: Duration = Duration::from_secs(3);
/// How long a connection is left to whoever uses it in this moment.
const BUSY: Duration = Duration::from_millis(20);
/// How long the look for a mark may take. It decides nothing but what the holder is told.
const TO_LOOK: Duration = Duration::from_secs(1);

/// Completes when `grant` is revoked, or when its connection is lost. Runs on the keeper, which no caller can block.
pub(super) async fn wait(shared: Arc<Shared>, grant: &Grant) -> LossCause {
    let Some(entry) = shared.books.held(grant) else { return LossCause::Gone };
    loop {
        let stream = match entry.session.try_lock() {
            Ok(_) if entry.state().over => None,
            Ok(mut place) => {
                let usable = place.as_mut().and_then(|session| session.is_usable().then_some(session));
                let Some(session) = usable else {
                    shared.disconnect(&entry, &mut place);
                    drop(place);
                    return shared.why_disconnected(&entry).await;
                };
                let stream = session.stream().clone();
                // One that may not listen is looked after at each ping.
                if answered(TO_PING, session.listen()).await.is_err_and(|trouble| !trouble.is_answer()) {
                    shared.disconnect(&entry, &mut place);
                    drop(place);
                    return shared.why_disconnected(&entry).await;
                }
                Some(stream)
            }
            Err(_) => {
                tokio::time::sleep(BUSY).await;
                continue;
            }
        };
        // It was released: nothing can be lost any more.
        let Some(stream) = stream else { return std::future::pending().await };
        if shared.is_revoked(&entry).await && !entry.state().over {
            return LossCause::Revoked;
        }
        let stirred = tokio::time::timeout(PING_EVERY, until_it_stirs(stream)).await;
        if entry.state().over {
            return std::future::pending().await;
        }
        if stirred.is_err()
            && let Some(cause) = shared.pinged(&entry).await
            && !entry.state().over
        {
            return cause;
        }
    }
}

impl Shared {
    /// Asks over the connection of a lock whether it is there. Answers why the lock is lost if it is not.
    pub(super) async fn pinged(self: &Arc<Self>, entry: &Arc<Entry>) -> Option<LossCause> {
        let began = Instant::now();
        if self.is_connected(entry, TO_PING).await {
            return None;
        }
        // A server that does not answer here would not say there either who ended it, and the holder has waited long enough.
        if began.elapsed() >= TO_PING {
            return Some(LossCause::SessionEnded);
        }
        Some(self.why_disconnected(entry).await)
    }

    /// Whether an operator ended the connection of `entry`, which is gone.
    async fn why_disconnected(&self, entry: &Entry) -> LossCause {
        if self.is_revoked(entry).await { LossCause::Revoked } else { LossCause::SessionEnded }
    }

    /// Whether an operator has marked the grant of `entry`, as far as PostgreSQL says so soon.
    pub(super) async fn is_revoked(&self, entry: &Entry) -> bool {
        let token = {
            let state = entry.state();
            // What is not written down cannot be marked.
            match state.token.filter(|_| state.written) {
                Some(token) if !state.revoked => token.get() as i64,
                _ => return state.revoked,
            }
        };
        let values: [(Value<'_>, Type); 2] = [(&&*entry.place.label, Type::TEXT), (&token, Type::INT8)];
        let looked = within(TO_LOOK, self.sessions.ask(self.sessions.texts.marked.as_str(), &values)).await;
        let is_marked = looked.is_some_and(|rows| rows.is_ok_and(|rows| !rows.is_empty()));
        entry.state().revoked |= is_marked;
        is_marked
    }
}
