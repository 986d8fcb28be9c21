//! Making voters of nodes that restarted: in the background, by whoever meets one.
//!
//! Such a node may have forgotten locks that are still held, and tokens that were given. So it waits until every lock
//! that it may have known has ended, and starts above every token that the others know. The order is what makes it
//! right: first the wait, then the reading, then the others are raised, and only then it votes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tollgate_core::{ErrorKind, Keeper};

use crate::redlock::lanes::Lanes;
use crate::redlock::trouble::Trouble;
use crate::redlock::voter::{self, Standing};

/// How much longer than the longest ttl a node waits: clocks do not all run alike.
const SPARE: Duration = Duration::from_secs(1);
/// How long it is waited between two looks, at least and at most.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(1);
/// How long a client that is being closed takes for it at most.
const AT_THE_END: Duration = Duration::from_secs(2);

/// How long a node that may have forgotten something does not vote.
pub(crate) fn wait(max_ttl: Duration) -> Duration {
    max_ttl + SPARE
}

/// Recovers nodes as long as there are some to recover.
pub(crate) struct Recovery {
    state: Arc<State>,
    lanes: Weak<Lanes>,
}

struct State {
    running: AtomicBool,
    /// Held by whoever does a step.
    stepping: tokio::sync::Mutex<()>,
    /// When each node can vote again, as far as is known.
    due: Mutex<Vec<Option<Instant>>>,
}

impl State {
    fn due(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recovery {
    pub(crate) fn new(lanes: &Arc<Lanes>) -> Self {
        let due = Mutex::new(vec![None; lanes.nodes.len()]);
        let state =
            Arc::new(State { running: AtomicBool::new(false), stepping: tokio::sync::Mutex::default(), due });
        Self { state, lanes: Arc::downgrade(lanes) }
    }

    /// A node said that it does not vote.
    pub(crate) fn meets(&self, node: usize) {
        let Some(lanes) = self.lanes.upgrade() else { return };
        let known = self.state.due()[node].map(|due| due.saturating_duration_since(Instant::now()));
        // Before somebody has looked it is only known how long it is at most: it may have forgotten just now.
        let left = known.unwrap_or_else(|| wait(lanes.max_ttl()));
        let when = match left.as_secs() + u64::from(left.subsec_nanos() > 0) {
            0 => "votes again in a moment".to_owned(),
            seconds => format!("does not vote for another {seconds} s"),
        };
        let message = format!(
            "the node is new or was restarted, and {when}; if these nodes were never used before, run \
             `tollgate redlock-init URL`"
        );
        lanes.nodes[node].note(Trouble::new(ErrorKind::Unavailable, message));
        self.start();
    }

    /// Does what is due before this process may end: clients that live for a moment must not leave it all to others.
    pub(crate) async fn finish(&self) {
        if !self.state.running.load(Ordering::Acquire) {
            return;
        }
        if let Some(lanes) = self.lanes.upgrade() {
            let _ = tokio::time::timeout(AT_THE_END, step(&lanes, &self.state)).await;
        }
    }

    /// Makes voters, in the background, of all nodes that are none.
    pub(crate) fn start(&self) {
        if self.state.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let (state, lanes) = (self.state.clone(), self.lanes.clone());
        match Keeper::global() {
            Ok(keeper) => drop(keeper.spawn(run(state, lanes))),
            Err(_) => self.state.running.store(false, Ordering::Release),
        }
    }
}

/// Runs on the keeper until every node that can be reached votes, or nobody is interested any more.
async fn run(state: Arc<State>, lanes: Weak<Lanes>) {
    let ends = Ends(state.clone());
    while let Some(lanes) = lanes.upgrade().filter(|lanes| !lanes.is_closed()) {
        let Some(pause) = step(&lanes, &state).await else { break };
        drop(lanes);
        tokio::time::sleep(pause.clamp(SOON, LATER)).await;
    }
    drop(ends);
}

/// Whatever happens, the next one who meets a node that does not vote starts again.
struct Ends(Arc<State>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

/// Does what can be done now. Answers when to come back, or `None` if there is nothing to do.
async fn step(lanes: &Arc<Lanes>, state: &State) -> Option<Duration> {
    let _alone = state.stepping.lock().await;
    let standings = voter::survey(lanes).await;
    let mut longest = Duration::ZERO;
    let mut ready = Vec::new();
    for (node, standing) in standings.iter().enumerate() {
        state.due()[node] = None;
        if let Ok(Standing::Waiting { left, .. }) = standing {
            state.due()[node] = Some(Instant::now() + *left);
            longest = longest.max(*left);
            if left.is_zero() {
                ready.push(node);
            }
        }
    }
    let reached = standings.iter().flatten().count();
    let voters = standings.iter().flatten().filter(|standing| standing.votes()).count();
    if voters == reached {
        return None;
    }
    if voters >= lanes.majority() {
        for node in ready {
            // What goes wrong is tried again: nothing was done that matters.
            let _ = voter::readmit(lanes, node).await;
        }
        return Some(longest);
    }
    if reached == lanes.nodes.len() && longest.is_zero() {
        let _ = voter::admit_all(lanes, true).await;
    }
    Some(longest)
}
