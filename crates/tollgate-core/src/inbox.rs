//! Where hand-overs arrive: messages on a client's channel, sorted by the claims that wait for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot, watch};
use tollgate_types::{Moment, OwnerId, Token};

use crate::backend::BoxStream;

/// A lock that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOver {
    /// The token it came with.
    pub token: Token,
    /// When the refresh was sent that the engine saw last.
    pub sent: Moment,
}

/// As many revocations may wait to be passed on; of more the next renewals tell.
const REVOKED_AT_ONCE: usize = 64;

/// As many messages are kept for claims that do not wait here yet.
const EARLY: usize = 1024;

/// The claims of one client that wait.
#[derive(Debug)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    /// Changes when a connection is lost: what was said meanwhile was said to nobody.
    lost: watch::Sender<u64>,
    /// Whether messages arrive here at all, as far as was found out.
    hears: AtomicBool,
    /// Whose grants were revoked.
    revoked: broadcast::Sender<OwnerId>,
}

/// Who waits, and what came before its claim did: a message can overtake the answer that sent the claim here.
#[derive(Debug, Default)]
struct Waiting {
    claims: HashMap<OwnerId, oneshot::Sender<HandOver>>,
    early: HashMap<OwnerId, HandOver>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            lost: watch::Sender::new(0),
            hears: AtomicBool::new(false),
            revoked: broadcast::Sender::new(REVOKED_AT_ONCE),
        }
    }
}

/// One of them. It ends when this is dropped.
#[derive(Debug)]
pub struct Expected {
    inbox: Arc<Inbox>,
    owner: OwnerId,
    /// The lock, when it is handed over.
    pub arrives: oneshot::Receiver<HandOver>,
}

impl Inbox {
    /// `owner` waits from now on.
    pub fn expect(self: &Arc<Self>, owner: OwnerId) -> Expected {
        let (sender, arrives) = oneshot::channel();
        let mut waiting = self.waiting();
        match waiting.early.remove(&owner) {
            // It is received below, so the receiver is there.
            Some(hand_over) => drop(sender.send(hand_over)),
            None => drop(waiting.claims.insert(owner, sender)),
        }
        drop(waiting);
        Expected { inbox: self.clone(), owner, arrives }
    }

    /// Whether somebody waits here.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting().claims.is_empty()
    }

    /// A connection was lost.
    pub fn lose(&self) {
        self.lost.send_modify(|times| *times += 1);
    }

    /// Tells when a connection was lost, from now on.
    pub fn losses(&self) -> watch::Receiver<u64> {
        self.lost.subscribe()
    }

    /// Whether messages arrive. Where they do not, those who wait have to ask more often.
    pub fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// A message that should have come did not.
    pub fn missed(&self) {
        self.hears.store(false, Ordering::Relaxed);
    }

    /// Messages arrive.
    pub fn heard(&self) {
        self.hears.store(true, Ordering::Relaxed);
    }

    /// The owners of grants that were revoked, from now on. For [`Backend::revocations`](crate::Backend::revocations).
    pub fn revocations(&self) -> BoxStream<'static, OwnerId> {
        owners_of(self.revoked.subscribe())
    }

    /// Takes a message: `OWNER TOKEN SENT` for a hand-over, `OWNER revoked` for a lock that an operator broke. Whatever is not understood is no hand-over: the claim asks again anyway.
    pub fn receive(&self, message: &[u8]) {
        self.heard();
        if let Some(owner) = std::str::from_utf8(message).ok().and_then(parse_revoked) {
            // Fails if nobody listens.
            let _ = self.revoked.send(owner);
            return;
        }
        let Some((owner, hand_over)) = std::str::from_utf8(message).ok().and_then(parse) else { return };
        let mut waiting = self.waiting();
        if let Some(claim) = waiting.claims.remove(&owner) {
            // A claim that was given up meanwhile is withdrawn.
            let _ = claim.send(hand_over);
            return;
        }
        // Those who gave up never fetch theirs. To forget some is no harm: who waits asks again.
        if waiting.early.len() >= EARLY {
            waiting.early.clear();
        }
        waiting.early.insert(owner, hand_over);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut waiting = self.inbox.waiting();
        waiting.claims.remove(&self.owner);
        waiting.early.remove(&self.owner);
    }
}

/// What is sent from now on, as a stream that skips what it was too slow for.
pub fn owners_of(revoked: broadcast::Receiver<OwnerId>) -> BoxStream<'static, OwnerId> {
    Box::pin(stream::unfold(revoked, |mut revoked| async move {
        loop {
            match revoked.recv().await {
                Ok(owner) => return Some((owner, revoked)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }))
}

/// `OWNER revoked`.
fn parse_revoked(message: &str) -> Option<OwnerId> {
    parse_owner(message.strip_suffix(" revoked")?)
}

fn parse_owner(text: &str) -> Option<OwnerId> {
    Some(OwnerId::from_bits(u128::from_str_radix(text, 16).ok()?))
}

/// `OWNER TOKEN SENT`.
fn parse(message: &str) -> Option<(OwnerId, HandOver)> {
    let mut words = message.split(' ');
    let owner = parse_owner(words.next()?)?;
    let token = Token::new(words.next()?.parse().ok()?).ok()?;
    let sent = Moment::from_nanos(words.next()?.parse().ok()?);
    Some((owner, HandOver { token, sent }))
}
