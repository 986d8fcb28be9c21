//! Writes down who holds and who waits, for those who look, and finds out who was forgotten by the server; in the background.
//!
//! A lock that is held for a moment costs no write. What is written is removed before the connection is used again, so that
//! nobody is taken for who was there before.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tollgate_core::{Details, Result};

use super::backend::Shared;
use super::books::{Entry, WORTH_NOTING};
use super::desk::TO_ANSWER;
use super::key::key;
use super::view::hex;
use crate::error::silent;

/// How often the server is asked whether it knows our locks.
const ROUND: Duration = Duration::from_secs(1);
/// How long it may not answer before the locks count as lost.
const SILENCE: Duration = Duration::from_secs(5);
/// How long the clerk waits between looks at the books: if there may be something to write, and if not.
const BRISK: Duration = Duration::from_millis(25);
const CALM: Duration = Duration::from_millis(50);
/// After how many looks at nothing it rests.
const REST_AFTER: u32 = 20;

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
    let (mut quiet, mut last_round, mut answered) = (0, Instant::now(), Instant::now());
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let pause = if shared.books.is_written() { CALM } else { BRISK };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.clerk.bell.notified() => {}
        }
        shared.forget().await;
        shared.note().await;
        if last_round.elapsed() >= ROUND {
            last_round = Instant::now();
            match shared.look_after_all().await {
                true => answered = Instant::now(),
                false if answered.elapsed() >= SILENCE => shared.give_all_up(),
                false => {}
            }
        }
        let surplus = shared.desk.trim();
        quiet = if shared.books.is_empty() && !surplus { quiet + 1 } else { 0 };
        if quiet < REST_AFTER {
            continue;
        }
        shared.clerk.awake.store(false, Ordering::Release);
        // Somebody may have come in this very moment and believe that the clerk is awake.
        if shared.books.is_empty() || shared.clerk.awake.swap(true, Ordering::AcqRel) {
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
        let ids: Vec<String> = leavers.iter().map(|leaver| leaver.id.to_string()).collect();
        let forget =
            format!("delete from {} where connection in ({})", self.desk.texts.sessions, ids.join(", "));
        if self.desk.ask(forget).await.is_err() {
            // It is tried again.
            return self.books.put_back(leavers);
        }
        // What stays is removed when its time is over.
        let _ = self.desk.unmark(leavers.iter().filter_map(|leaver| leaver.mark.as_ref())).await;
        // Their connections belong to runtimes that may be gone: they are closed.
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
            state.details = details.clone();
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
        let mut rows = String::new();
        for entry in entries {
            let mut state = entry.state();
            if state.outdated && !state.over {
                state.outdated = false;
                state.written = true;
                let details = serde_json::to_string(&state.details).unwrap_or_default();
                let token = state.token.map_or("null".to_owned(), |token| token.to_string());
                drop(state);
                let (name, comma) = (&entry.claim.name, if rows.is_empty() { "" } else { ", " });
                let key = hex(key(name).as_bytes());
                let (name, details) = (hex(name.as_str().as_bytes()), hex(details.as_bytes()));
                // A string takes whatever is written to it.
                let _ =
                    write!(rows, "{comma}({}, x'{key}', x'{name}', {token}, x'{details}')", entry.place.id);
                due.push(entry);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let note = format!("replace into {} values {rows}", self.desk.texts.sessions);
        let written = self.desk.ask(note).await;
        if written.is_err() {
            due.iter().for_each(|entry| entry.state().outdated = true);
        }
        written.map(drop)
    }

    /// Asks the server whether it knows everybody's lock, or that they wait for it. Answers whether it said anything.
    async fn look_after_all(self: &Arc<Self>) -> bool {
        let entries: Vec<Arc<Entry>> =
            self.books.all().into_iter().filter(|entry| entry.since.elapsed() >= WORTH_NOTING).collect();
        if entries.is_empty() {
            return true;
        }
        let known = |entry: &Arc<Entry>| {
            let key = hex(key(&entry.claim.name).as_bytes());
            format!(
                "select {0}, is_used_lock(x'{key}') <=> {0}, exists (select 1 from information_schema.processlist where id = {0} and host = x'{1}')",
                entry.place.id,
                hex(entry.place.host.as_bytes())
            )
        };
        // What was true when it was asked: who got in meanwhile is looked at the next time.
        let before: Vec<bool> = entries.iter().map(|entry| entry.state().token.is_some()).collect();
        let questions: Vec<String> = entries.iter().map(known).collect();
        let Ok(rows) = self.desk.ask(questions.join(" union all ")).await else { return false };
        let mut gone = Vec::new();
        for (entry, was_in) in entries.iter().zip(before) {
            let row = rows.iter().find(|row| row.get::<u32, _>(0) == Some(entry.place.id));
            let says = |place: usize| row.and_then(|row| row.get::<i64, _>(place)) == Some(1);
            let (holds, there) = (says(1), says(2));
            let mut state = entry.state();
            state.queued |= entry.waits && state.token.is_none() && there && !holds;
            let is_gone = if was_in { !(holds && there) } else { entry.waits && state.queued && !there };
            drop(state);
            if is_gone {
                gone.push(entry);
            }
        }
        // Asked after that: an operator who ends a connection has marked its grant before.
        self.look_for_marks(&entries).await;
        gone.into_iter().for_each(|entry| self.give_up(entry));
        true
    }

    /// The server cannot be asked: nobody knows whether it has our locks.
    fn give_all_up(self: &Arc<Self>) {
        self.books
            .all()
            .iter()
            .filter(|entry| entry.state().token.is_some())
            .for_each(|entry| self.give_up(entry));
    }
}
