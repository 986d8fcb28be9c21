//! The turnstile before a service: who may pass, and when.
//!
//! A gate says whether a token is stale *now*. A request that was let through a moment ago may still be at work, so the mark
//! alone keeps no order. Here it is kept: a larger token passes only when every request with a smaller one is over. The mark
//! is raised first, so that no more of those come meanwhile.
//!
//! - **Invariant:** a request has its lane from before the gate is asked until it can do nothing more, and a lane remembers the
//!   highest token that it let in. So of two whom the gate let in, whichever has the smaller token is waited for if it is noted
//!   first, and refused if it is noted second.
//! - **Invariant:** nobody waits for those whom the gate may yet refuse: there is no end to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_core::{Error, Fence, Gate, Token};

use crate::problem::Problem;
use crate::together::Together;

/// How long a request waits for older ones, unless said otherwise.
pub const DRAIN: Duration = Duration::from_secs(10);

/// The requests that are under way, and the gate.
pub(crate) struct Turnstile {
    gate: Arc<dyn Gate>,
    drain: Duration,
    lanes: Mutex<HashMap<Arc<str>, Lane>>,
    empty: Notify,
}

/// Those of one resource.
#[derive(Default)]
struct Lane {
    /// Those of each token, exclusive or shared.
    inside: BTreeMap<(Token, bool), Inside>,
    /// The highest exclusive token that was let in while the lane is there.
    highest: Option<Token>,
    /// The highest token, of a reader or a writer, that had to wait for a smaller one.
    awaits: Option<Token>,
    /// How many have come.
    came: u64,
    /// The highest token of a reader that was let in, and how many had come when the last one was. It raises nothing, but whoever
    /// was at the gate by then did not have the lock any more.
    reader: Option<(Token, u64)>,
    left: Arc<Notify>,
    raised: Arc<Notify>,
}

/// Those who show the same token.
#[derive(Default)]
struct Inside {
    /// Whom the gate has not answered yet: they have done nothing, and may be refused.
    asking: usize,
    /// Whom it let in.
    admitted: usize,
    together: Together,
}

/// Where a request that was let through hears of those who wait for it.
#[derive(Clone)]
pub(crate) struct Watch {
    turnstile: Arc<Turnstile>,
    resource: Arc<str>,
    fence: Fence,
}

/// A request that was let through. It is over when this is dropped.
pub(crate) struct Passage {
    turnstile: Arc<Turnstile>,
    resource: Arc<str>,
    fence: Fence,
    /// The gate let it in, and it was noted.
    admitted: bool,
    /// How many had come before it.
    number: u64,
}

impl Turnstile {
    pub(crate) fn new(gate: Arc<dyn Gate>, drain: Duration) -> Arc<Self> {
        Arc::new(Self { gate, drain, lanes: Mutex::default(), empty: Notify::new() })
    }

    /// Lets a request through, as soon as all before it are over.
    ///
    /// Dropped while it waits it leaves nothing behind but, perhaps, a raised mark.
    pub(crate) async fn enter(self: &Arc<Self>, resource: &str, fence: Fence) -> Result<Passage, Problem> {
        let stale = |highest| Problem::of_gate(&refused(resource, fence, highest));
        let (mut passage, together) = self.register(resource, fence).map_err(stale)?;
        let admitted = together.admit(&self.gate, &passage.resource, fence, named(resource)).await;
        admitted.map_err(|error| named(resource).in_scope(|| Problem::of_gate(&error)))?;
        if let Some(left) = self.admitted(&mut passage).map_err(stale)? {
            self.drained(&passage, left).await?;
        }
        Ok(passage)
    }

    /// Waits until nobody is inside.
    pub(crate) async fn emptied(&self) {
        loop {
            let mut notified = std::pin::pin!(self.empty.notified());
            notified.as_mut().enable();
            if self.lanes().is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Gives a request its lane; fails with the token that makes it stale, if one was let in there.
    fn register(self: &Arc<Self>, resource: &str, fence: Fence) -> Result<(Passage, Together), Token> {
        let mut lanes = self.lanes();
        let resource = match lanes.get_key_value(resource) {
            Some((known, _)) => known.clone(),
            None => Arc::from(resource),
        };
        let lane = lanes.entry(resource.clone()).or_default();
        if let Some(highest) = lane.above(fence) {
            return Err(highest);
        }
        let number = lane.came;
        lane.came += 1;
        let inside = lane.inside.entry(key(fence)).or_default();
        inside.asking += 1;
        let together = inside.together.clone();
        Ok((Passage { turnstile: self.clone(), resource, fence, admitted: false, number }, together))
    }

    /// Notes that the gate let it in; where to hear of those before it, if there are some. Fails if a larger one was noted first:
    /// that one did not wait.
    fn admitted(&self, passage: &mut Passage) -> Result<Option<Arc<Notify>>, Token> {
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(&passage.resource) else { return Ok(None) };
        if let Some(highest) = lane.above(passage.fence).or_else(|| lane.read_meanwhile(passage)) {
            return Err(highest);
        }
        if !passage.fence.is_exclusive() {
            let before = lane.reader.map(|(token, _)| token);
            lane.reader =
                Some((passage.fence.token().max(before.unwrap_or(passage.fence.token())), lane.came));
        }
        let inside = lane.inside.entry(key(passage.fence)).or_default();
        (inside.asking, inside.admitted) = (inside.asking - 1, inside.admitted + 1);
        passage.admitted = true;
        let (token, waits) = (Some(passage.fence.token()), lane.must_wait(passage.fence));
        let raises = passage.fence.is_exclusive() && lane.highest < token;
        if raises {
            lane.highest = token;
        }
        if waits {
            lane.awaits = lane.awaits.max(token);
        }
        if raises || waits {
            lane.raised.notify_waiters();
        }
        Ok(waits.then(|| lane.left.clone()))
    }

    async fn drained(&self, passage: &Passage, left: Arc<Notify>) -> Result<(), Problem> {
        let deadline = Instant::now() + self.drain;
        loop {
            let mut notified = std::pin::pin!(left.notified());
            // From here on nobody leaves unheard.
            notified.as_mut().enable();
            match self.look(passage) {
                Look::Free => return Ok(()),
                Look::Stale(highest) => return Err(Problem::of_gate(&passage.watch().refused(highest))),
                Look::Wait => {}
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return Err(Problem::busy());
            }
        }
    }

    fn look(&self, passage: &Passage) -> Look {
        let lanes = self.lanes();
        let Some(lane) = lanes.get(&passage.resource) else { return Look::Free };
        match lane.above(passage.fence) {
            // It came in while this one waited, and waits for it in turn.
            Some(highest) => Look::Stale(highest),
            None if lane.must_wait(passage.fence) => Look::Wait,
            None => Look::Free,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request that waits finds.
enum Look {
    Free,
    Wait,
    Stale(Token),
}

impl Lane {
    /// Whether somebody with a smaller token was let in and is not over. Readers do not wait for readers.
    fn must_wait(&self, fence: Fence) -> bool {
        let mut before = self.inside.range(..(fence.token(), false));
        before.any(|((_, exclusive), inside)| inside.admitted > 0 && (*exclusive || fence.is_exclusive()))
    }

    /// The token of a reader that was let in while a writer was at the gate, if it is larger: the reader did not wait for it.
    fn read_meanwhile(&self, writer: &Passage) -> Option<Token> {
        let (token, came) = self.reader.filter(|_| writer.fence.is_exclusive())?;
        (token > writer.fence.token() && writer.number < came).then_some(token)
    }

    /// The token that makes this one stale, if such a one was let in.
    fn above(&self, fence: Fence) -> Option<Token> {
        self.highest.filter(|highest| *highest > fence.token())
    }
}

fn key(fence: Fence) -> (Token, bool) {
    (fence.token(), fence.is_exclusive())
}

impl Passage {
    /// The same once more: the request is over when both are dropped.
    pub(crate) fn twin(&self) -> Self {
        if let Some(lane) = self.turnstile.lanes().get_mut(&self.resource) {
            lane.inside.entry(key(self.fence)).or_default().admitted += 1;
        }
        let (turnstile, resource) = (self.turnstile.clone(), self.resource.clone());
        Self { turnstile, resource, ..*self }
    }

    pub(crate) fn watch(&self) -> Watch {
        let (turnstile, resource) = (self.turnstile.clone(), self.resource.clone());
        Watch { turnstile, resource, fence: self.fence }
    }
}

impl Watch {
    /// The larger exclusive token that was let in, if there is one.
    pub(crate) fn is_overtaken(&self) -> Option<Token> {
        self.look(|lane| lane.above(self.fence))
    }

    /// Completes when somebody with a larger token waits for this one, with that token. Whatever this one's lock was, it is over:
    /// the other's was not given before. Readers do not wait for readers.
    pub(crate) async fn awaited(&self) -> Token {
        let which = |lane: &Lane| {
            if self.fence.is_exclusive() { lane.awaits.max(lane.highest) } else { lane.highest }
        };
        loop {
            // As long as the request is inside its lane is there.
            let Some(raised) = self.look(|lane| Some(lane.raised.clone())) else {
                return std::future::pending().await;
            };
            let mut notified = std::pin::pin!(raised.notified());
            notified.as_mut().enable();
            if let Some(token) = self.look(which).filter(|token| *token > self.fence.token()) {
                return token;
            }
            notified.await;
        }
    }

    fn look<T>(&self, what: impl FnOnce(&Lane) -> Option<T>) -> Option<T> {
        self.turnstile.lanes().get(&self.resource).and_then(what)
    }

    /// What this one is told when it is not let on because `highest` came. That counts as a refusal.
    pub(crate) fn refused(&self, highest: Token) -> Error {
        refused(&self.resource, self.fence, highest)
    }
}

/// The words for whoever comes after `highest`.
fn refused(resource: &str, fence: Fence, highest: Token) -> Error {
    named(resource).in_scope(|| fence.refused(highest))
}

/// Says in traces which resource a refusal is about.
fn named(resource: &str) -> tracing::Span {
    tracing::warn_span!(target: "tollgate", "fence", resource)
}

impl Drop for Passage {
    fn drop(&mut self) {
        let mut lanes = self.turnstile.lanes();
        let Some(lane) = lanes.get_mut(&self.resource) else { return };
        if let Some(inside) = lane.inside.get_mut(&key(self.fence)) {
            let count = if self.admitted { &mut inside.admitted } else { &mut inside.asking };
            *count -= 1;
            let (is_last, nobody) = (*count == 0, inside.asking + inside.admitted == 0);
            if nobody {
                lane.inside.remove(&key(self.fence));
            }
            if self.admitted && is_last {
                lane.left.notify_waiters();
            }
        }
        if lane.inside.is_empty() {
            lanes.remove(&self.resource);
            if lanes.is_empty() {
                self.turnstile.empty.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tollgate_core::{BoxFuture, MemoryGate, Stale};

    use super::*;

    fn turnstile(drain: Duration) -> Arc<Turnstile> {
        Turnstile::new(Arc::new(MemoryGate::new()), drain)
    }

    fn fence(token: u64, exclusive: bool) -> Fence {
        Fence::shown(Token::new(token).unwrap(), exclusive)
    }

    async fn is_pending<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }

    #[tokio::test]
    async fn a_larger_token_waits_until_the_smaller_ones_are_over() {
        let turnstile = turnstile(DRAIN);
        let old = [
            turnstile.enter("r", fence(5, true)).await.ok(),
            turnstile.enter("r", fence(5, true)).await.ok(),
        ];
        let mut new = Box::pin(turnstile.enter("r", fence(6, true)));
        assert!(is_pending(&mut new).await);
        assert!(turnstile.enter("other", fence(6, true)).await.is_ok(), "another resource is another lane");
        let stale = turnstile.enter("r", fence(5, true)).await.err().unwrap();
        assert_eq!(stale.status(), StatusCode::PRECONDITION_FAILED, "the mark is raised already");
        let [one, two] = old;
        drop(one);
        assert!(is_pending(&mut new).await, "the other one is still inside");
        drop(two);
        let new = new.await.ok().unwrap();
        assert!(turnstile.enter("r", fence(6, true)).await.is_ok(), "equal ones go together");
        drop(new);
        assert!(turnstile.lanes().is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn readers_go_together_and_a_writer_waits_for_them() {
        let turnstile = turnstile(DRAIN);
        let first = turnstile.enter("r", fence(5, false)).await.ok().unwrap();
        let second = turnstile.enter("r", fence(7, false)).await.ok().unwrap();
        let mut writer = Box::pin(turnstile.enter("r", fence(8, true)));
        assert!(is_pending(&mut writer).await);
        let mut late = Box::pin(turnstile.enter("r", fence(9, false)));
        assert!(is_pending(&mut late).await, "a writer is before it");
        drop((first, second));
        drop(writer.await.ok().unwrap());
        assert!(late.await.is_ok());
    }

    #[tokio::test]
    async fn who_waits_and_is_overtaken_is_stale() {
        let turnstile = turnstile(DRAIN);
        let old = turnstile.enter("r", fence(5, true)).await.ok().unwrap();
        let mut middle = Box::pin(turnstile.enter("r", fence(6, true)));
        assert!(is_pending(&mut middle).await);
        let mut new = Box::pin(turnstile.enter("r", fence(7, true)));
        assert!(is_pending(&mut new).await);
        drop(old);
        assert_eq!(middle.await.err().unwrap().status(), StatusCode::PRECONDITION_FAILED);
        assert!(new.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_too_long_is_told_to_come_again() {
        let turnstile = turnstile(Duration::from_secs(3));
        let old = turnstile.enter("r", fence(5, true)).await.ok().unwrap();
        let busy = turnstile.enter("r", fence(6, true)).await.err().unwrap();
        assert_eq!((busy.status(), busy.word()), (StatusCode::SERVICE_UNAVAILABLE, "busy"));
        drop(old);
        assert!(turnstile.enter("r", fence(6, true)).await.is_ok());
    }

    #[tokio::test]
    async fn who_is_inside_hears_that_somebody_newer_waits() {
        let turnstile = turnstile(DRAIN);
        let old = turnstile.enter("r", fence(5, true)).await.ok().unwrap();
        let watch = old.watch();
        let mut awaited = Box::pin(watch.awaited());
        assert!(is_pending(&mut awaited).await && watch.is_overtaken().is_none());
        assert!(turnstile.enter("r", fence(5, true)).await.is_ok());
        assert!(is_pending(&mut awaited).await, "an equal one does not wait");
        let mut new = Box::pin(turnstile.enter("r", fence(6, true)));
        assert!(is_pending(&mut new).await);
        let six = Token::new(6).unwrap();
        assert_eq!([awaited.await, watch.awaited().await, watch.is_overtaken().unwrap()], [six; 3]);
        let told = watch.refused(six);
        let stale = Stale::of(&told).unwrap();
        assert_eq!((stale.token.get(), stale.highest), (5, Some(six)), "{told}");
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_heard_of_and_overtakes_nobody() {
        let turnstile = turnstile(DRAIN);
        let old = turnstile.enter("r", fence(5, true)).await.ok().unwrap();
        let watch = old.watch();
        let mut reader = Box::pin(turnstile.enter("r", fence(6, false)));
        assert!(is_pending(&mut reader).await);
        assert_eq!(watch.awaited().await.get(), 6);
        assert!(watch.is_overtaken().is_none(), "5 is not below the mark");
    }

    #[tokio::test]
    async fn a_reader_that_waits_for_a_writer_waits_for_no_other_reader() {
        let turnstile = turnstile(DRAIN);
        let first = turnstile.enter("r", fence(6, false)).await.ok().unwrap();
        let writer = turnstile.enter("r", fence(5, true)).await.ok().unwrap();
        let mut second = Box::pin(turnstile.enter("r", fence(7, false)));
        assert!(is_pending(&mut second).await);
        assert_eq!(writer.watch().awaited().await.get(), 7);
        let watch = first.watch();
        assert!(is_pending(&mut Box::pin(watch.awaited())).await);
        drop(writer);
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn who_goes_away_while_waiting_is_in_nobodys_way() {
        let turnstile = turnstile(DRAIN);
        let old = turnstile.enter("r", fence(5, true)).await.ok().unwrap();
        let mut gone = Box::pin(turnstile.enter("r", fence(6, true)));
        assert!(is_pending(&mut gone).await);
        drop(gone);
        drop(old);
        assert!(turnstile.enter("r", fence(7, true)).await.is_ok());
        assert!(turnstile.lanes().is_empty());
    }

    /// A gate that takes a while to answer.
    struct Slow(MemoryGate);

    impl Gate for Slow {
        fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<(), Error>> {
            Box::pin(async move {
                let admitted = self.0.admit(resource, fence).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                admitted
            })
        }

        fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>, Error>> {
            self.0.highest(resource)
        }
    }

    #[tokio::test]
    async fn who_is_refused_again_and_again_keeps_nobody_waiting() {
        for (mark, refused, newer) in [(None, 5, fence(6, true)), (Some(5), 1, fence(6, false))] {
            let gate = Slow(MemoryGate::new());
            if let Some(mark) = mark {
                gate.admit("r", fence(mark, true)).await.unwrap();
            }
            let turnstile = Turnstile::new(Arc::new(gate), Duration::from_secs(1));
            let mut storm = tokio::task::JoinSet::new();
            for _ in 0..32 {
                let turnstile = turnstile.clone();
                storm.spawn(async move {
                    loop {
                        drop(turnstile.enter("r", fence(refused, true)).await);
                        tokio::task::yield_now().await;
                    }
                });
            }
            // Some are at the gate, and more come.
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(turnstile.enter("r", newer).await.is_ok(), "{newer:?}");
        }
    }

    #[tokio::test]
    async fn who_comes_from_the_gate_behind_a_larger_token_is_stale() {
        for exclusive in [true, false] {
            let turnstile = Turnstile::new(Arc::new(Slow(MemoryGate::new())), DRAIN);
            let mut old = Box::pin(turnstile.enter("r", fence(5, true)));
            // The gate has let it in by then, which nobody has heard yet.
            for _ in 0..3 {
                assert!(is_pending(&mut old).await);
                tokio::task::yield_now().await;
            }
            let new = turnstile.enter("r", fence(6, exclusive)).await.ok().unwrap();
            assert_eq!(old.await.err().unwrap().status(), StatusCode::PRECONDITION_FAILED);
            drop(new);
            assert!(turnstile.lanes().is_empty());
        }
    }
}
