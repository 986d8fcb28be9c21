//! What happens to one request: which one is meant, what is done to it, and how it went.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::switches::Switches;

/// How a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// As by a program that ends in order (FIN).
    Gently,
    /// As by a machine that forgot the connection (RST). What is on its way is lost.
    Abruptly,
}

type Meant = dyn FnMut(&[u8]) -> bool + Send;

/// Which request is meant, counted over all connections from the moment the rule is made.
pub struct Which {
    meant: Box<Meant>,
    passed_over: usize,
}

impl Which {
    /// The n-th, counted from 1.
    pub fn nth(n: usize) -> Self {
        Self::matching(|_| true).nth_of_them(n)
    }

    /// The next one whose frame is `meant`.
    pub fn matching(meant: impl FnMut(&[u8]) -> bool + Send + 'static) -> Self {
        Self { meant: Box::new(meant), passed_over: 0 }
    }

    /// The n-th of them, counted from 1.
    pub fn nth_of_them(mut self, n: usize) -> Self {
        self.passed_over = n.checked_sub(1).expect("requests are counted from 1");
        self
    }

    pub(super) fn is_meant(&mut self, frame: &[u8]) -> bool {
        if !(self.meant)(frame) {
            return false;
        }
        let now = self.passed_over == 0;
        self.passed_over = self.passed_over.saturating_sub(1);
        now
    }
}

/// What is done to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// It never arrives; the connection stays open.
    Lose,
    /// It never arrives, and its connection is cut.
    LoseAndCut(Close),
    /// It arrives when the test lets it go, also if its sender has hung up by then. What follows on its
    /// connection waits behind it; other connections go on.
    Hold,
    /// The same, but it arrives by itself after so long.
    Delay(Duration),
    /// It is executed, its reply is lost; the connection stays open, and later replies pass.
    LoseReply,
    /// It is executed, and its connection is cut instead of the reply.
    CutInsteadOfReply(Close),
    /// It is sent twice in a row on its connection; the second reply is lost.
    Repeat,
    /// It is passed on, and a copy is sent over a connection of its own when the test lets it go. The reply
    /// to the copy is lost. Only for engines that need no greeting.
    RepeatElsewhere,
}

/// A rule for one request.
pub(super) struct Rule {
    pub(super) which: Which,
    pub(super) deed: Deed,
    pub(super) trap: Arc<Trap>,
}

/// What the rule, the request it caught and the test share.
pub(super) struct Trap {
    stage: watch::Sender<Stage>,
    let_go: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Caught,
    Over { answered: bool },
}

impl Trap {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { stage: watch::Sender::new(Stage::Waiting), let_go: AtomicBool::new(false) })
    }

    pub(super) fn has_caught(&self) {
        self.stage.send_replace(Stage::Caught);
    }

    pub(super) fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    pub(super) fn is_let_go(&self) -> bool {
        self.let_go.load(Ordering::Acquire)
    }

    fn over(&self, answered: bool) {
        self.stage.send_if_modified(|stage| {
            let news = !matches!(stage, Stage::Over { .. });
            if news {
                *stage = Stage::Over { answered };
            }
            news
        });
    }
}

/// Tells how it went with a caught request: unanswered, unless somebody says otherwise.
pub(super) struct Outcome(pub(super) Arc<Trap>);

impl Outcome {
    pub(super) fn answered(self) {
        self.0.over(true);
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        self.0.over(false);
    }
}

/// The request a rule waits for, or has caught; one for each node if there are several. Dropping this leaves the rule
/// in place.
pub struct Caught {
    traps: Vec<(Arc<Trap>, Arc<Switches>)>,
}

impl Caught {
    pub(super) fn new(trap: Arc<Trap>, switches: Arc<Switches>) -> Self {
        Self { traps: vec![(trap, switches)] }
    }

    /// All of them together.
    pub(super) fn all(several: impl Iterator<Item = Self>) -> Self {
        Self { traps: several.flat_map(|caught| caught.traps).collect() }
    }

    /// Completes when the request is caught.
    pub async fn caught(&self) {
        self.until(|stage| *stage != Stage::Waiting).await;
    }

    /// Lets a held request, or a copy that was kept back, go to the engine.
    pub fn let_go(&self) {
        for (trap, switches) in &self.traps {
            trap.let_go();
            switches.changed();
        }
    }

    /// Completes when the proxy is done with the request: the engine has answered what was delayed, repeated
    /// or whose reply was to be lost (`true`), or never will (`false`).
    pub async fn over(&self) -> bool {
        let stages = self.until(|stage| matches!(stage, Stage::Over { .. })).await;
        stages.iter().all(|stage| *stage == Stage::Over { answered: true })
    }

    async fn until(&self, mut reached: impl FnMut(&Stage) -> bool) -> Vec<Stage> {
        let mut stages = Vec::new();
        for (trap, _) in &self.traps {
            let mut stage = trap.stage.subscribe();
            stages.push(*stage.wait_for(&mut reached).await.expect("the trap lives as long as this"));
        }
        stages
    }
}
