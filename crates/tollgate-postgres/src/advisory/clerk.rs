//! Writes down who holds and who waits, for those who look; in the background, and only what lasts.
//!
//! A lock that is held for a moment costs no write. What is written is removed before the connection is used again, so that
//! nobody is taken for who was there before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tollgate_core::{Details, Result};

use super::backend::Shared;
use super::books::{Entry, Hopeless, WORTH_NOTING};
use super::sessions::TO_ANSWER;
use crate::driven::Value;
use crate::error::silent;

/// How often those who wait are looked after.
const ROUND: Duration = Duration::from_secs(1);
/// After how many looks at nothing new it rests.
const REST_AFTER: u32 = 20;
/// How many rounds somebody may be in at the server without having heard of it: its executor may be busy.
const UNHEARD: u32 = 10;
/// How many rounds somebody who waited may be unknown to the server: an answer may be on its way.
const UNKNOWN: u32 = 2;

/// The clerk.
#[derive(Default)]
pub(super) struct Clerk {
    awake: AtomicBool,
    bell: Notify,
    /// Only one writes at a time: what is newer must not be written first.
    pen: tokio::sync::Mutex<()>,
}

impl Clerk {
    /// There is somebody new. Costs nothing while the clerk is awake.
    pub(super) fn is_needed(&self, shared: &Arc<Shared>) {
        if !self.awake.load(Ordering::Relaxed) && !self.awake.swap(true, Ordering::AcqRel) {
            drop(shared.keeper.spawn(work(Arc::downgrade(shared))));
        }
    }

    /// Somebody has left of whom something is written down.
    pub(super) fn ring(&self, shared: &Arc<Shared>) {
        self.is_needed(shared);
        self.bell.notify_one();
    }
}

async fn work(shared: Weak<Shared>) {
    let (mut quiet, mut last_round) = (0, Instant::now());
    loop {
        let Some(shared) = shared.upgrade() else { return };
        tokio::select! {
            () = tokio::time::sleep(WORTH_NOTING / 2) => {}
            () = shared.clerk.bell.notified() => {}
        }
        shared.forget().await;
        shared.note().await;
        shared.look_for_newly_queued().await;
        if last_round.elapsed() >= ROUND {
            shared.look_after_waiters().await;
            last_round = Instant::now();
        }
        let surplus = shared.sessions.trim();
        quiet = if shared.books.is_quiet() { quiet + 1 } else { 0 };
        if quiet < REST_AFTER {
            continue;
        }
        if surplus {
            tokio::time::sleep(ROUND).await;
            continue;
        }
        shared.clerk.awake.store(false, Ordering::Release);
        // Somebody may have come in this very moment and believe that the clerk is awake.
        if shared.books.is_quiet() || shared.clerk.awake.swap(true, Ordering::AcqRel) {
            return;
        }
        quiet = 0;
    }
}

impl Shared {
    /// Removes what is written of those who have left, and only then has their connections used again.
    async fn forget(&self) {
        let leavers = self.books.take_leavers();
        if leavers.is_empty() {
            return;
        }
        let labels: Vec<&str> = leavers.iter().map(|(label, _)| &**label).collect();
        // One that is lost stands for others that nobody here knows of: those of processes that died.
        let lost = leavers.iter().any(|(_, session)| session.is_none());
        let values: [(Value<'_>, Type); 2] = [(&labels, Type::TEXT_ARRAY), (&lost, Type::BOOL)];
        if self.sessions.ask(&self.sessions.texts.forget, &values).await.is_err() {
            // It is tried again.
            return self.books.put_back(leavers);
        }
        leavers
            .into_iter()
            .filter_map(|(_, session)| session)
            .for_each(|session| self.sessions.take_back(session));
    }

    /// Writes down who has been there for a while.
    async fn note(&self) {
        let is_due = |entry: &Arc<Entry>| entry.since.elapsed() >= WORTH_NOTING;
        // What could not be written is tried again.
        let _ = self.write_down(self.books.all().into_iter().filter(is_due)).await;
    }

    /// Writes down what a holder says of itself now. Goes on if it is dropped.
    pub(super) async fn say(self: &Arc<Self>, entry: &Arc<Entry>, details: &Details) -> Result<()> {
        {
            let mut state = entry.state();
            state.details = Some(details.clone());
            state.outdated = true;
        }
        self.clerk.is_needed(self);
        let (shared, entry) = (self.clone(), entry.clone());
        let said = self.keeper.spawn(async move { shared.write_down([entry]).await });
        said.await.unwrap_or_else(|_| Err(silent(TO_ANSWER).into_error("the update of this lock's record")))
    }

    /// Writes down of each of `entries` what is not as it was.
    async fn write_down(&self, entries: impl IntoIterator<Item = Arc<Entry>>) -> Result<()> {
        let _pen = self.clerk.pen.lock().await;
        let mut due = Vec::new();
        for entry in entries {
            let mut state = entry.state();
            if state.outdated && !state.over {
                state.outdated = false;
                state.written = true;
                let details = serde_json::to_string(state.details.as_ref().unwrap_or(&entry.claim.details))
                    .unwrap_or_default();
                let token = state.token.map(|token| token.get() as i64);
                drop(state);
                due.push((entry, token, details));
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let labels: Vec<&str> = due.iter().map(|(entry, ..)| &*entry.place.label).collect();
        let names: Vec<&str> = due.iter().map(|(entry, ..)| entry.claim.name.as_str()).collect();
        let tokens: Vec<Option<i64>> = due.iter().map(|(_, token, _)| *token).collect();
        let details: Vec<&str> = due.iter().map(|(.., details)| details.as_str()).collect();
        let values: [(Value<'_>, Type); 4] = [
            (&labels, Type::TEXT_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&details, Type::TEXT_ARRAY),
        ];
        let written = self.sessions.ask(&self.sessions.texts.note, &values).await;
        if written.is_err() {
            due.iter().for_each(|(entry, ..)| entry.state().outdated = true);
        }
        written.map(drop)
    }

    /// Finds out which new claims PostgreSQL has in its queue: the statement that waits is answered only at the end.
    async fn look_for_newly_queued(&self) {
        let is_new = |entry: &Arc<Entry>| {
            let state = entry.state();
            entry.waits
                && state.token.is_none()
                && !state.queued
                && !state.over
                && entry.since.elapsed() >= WORTH_NOTING
        };
        for (entry, row) in self.standing_of(is_new).await {
            let (there, granted): (bool, bool) = (row.get("there"), row.get("granted"));
            if there && !granted {
                entry.note_queued();
            }
        }
    }

    /// How PostgreSQL sees the claims that `are_meant`; nothing of a server that is away.
    async fn standing_of(&self, are_meant: impl Fn(&Arc<Entry>) -> bool) -> Vec<(Arc<Entry>, Row)> {
        let entries: Vec<_> = self.books.all().into_iter().filter(are_meant).collect();
        if entries.is_empty() {
            return Vec::new();
        }
        let labels: Vec<&str> = entries.iter().map(|entry| &*entry.place.label).collect();
        let names: Vec<&str> = entries.iter().map(|entry| entry.claim.name.as_str()).collect();
        let values: [(Value<'_>, Type); 2] = [(&labels, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)];
        let rows = self.sessions.ask(&self.sessions.texts.standing, &values).await.unwrap_or_default();
        let of_entry = |row: Row| {
            let label: &str = row.get("session");
            let entry = entries.iter().find(|entry| *entry.place.label == *label)?.clone();
            Some((entry, row))
        };
        rows.into_iter().filter_map(of_entry).collect()
    }

    /// Finds out whose wait will not end by itself: a silent connection says nothing of it.
    async fn look_after_waiters(&self) {
        let waiting = |entry: &Arc<Entry>| entry.waits && entry.state().token.is_none();
        for (entry, row) in self.standing_of(waiting).await {
            let (there, granted): (bool, bool) = (row.get("there"), row.get("granted"));
            if there && !granted {
                entry.note_queued();
            }
            let mut state = entry.state();
            let patience = if there { UNHEARD } else { UNKNOWN };
            state.unheard = if granted || !there && state.queued { state.unheard + 1 } else { 0 };
            let silent = state.unheard >= patience;
            state.hopeless = match row.get::<_, Option<String>>("other") {
                Some(other) if !granted => Some(Hopeless::Collision(other)),
                _ if silent => Some(Hopeless::Disconnected),
                _ => continue,
            };
            drop(state);
            entry.verdict.notify_one();
        }
    }
}
