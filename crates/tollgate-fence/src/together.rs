//! Those who show the same token at the same time ask the gate once, unless it answers at once.
//!
//! - **Invariant:** a verdict holds for those who had come before it was asked for. Whoever comes while one is under way waits
//!   for the next: a larger token may have been let in since.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tollgate_core::{Error, Fence, Gate, Result};
use tracing::Instrument;

/// All who show one token for one resource.
#[derive(Clone, Default)]
pub(crate) struct Together(Arc<Group>);

#[derive(Default)]
struct Group {
    /// Whose turn it is to ask. Apart, for a question that waits for it is kept here, and must not keep the group.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// A question that has not been asked yet: whoever comes can still join.
    next: Mutex<Option<Question>>,
}

type Question = Shared<BoxFuture<'static, Arc<Mutex<Verdict>>>>;

/// What the gate said. An error is told to one of them; the others have to hear their own.
enum Verdict {
    In,
    Refused(Error),
    Told,
}

impl Together {
    /// Lets all of them in, or fails, as [`Gate::admit`] does.
    ///
    /// May be dropped at any await: as long as anybody waits for the question, it goes on.
    pub(crate) async fn admit(
        &self,
        gate: &Arc<dyn Gate>,
        resource: &Arc<str>,
        fence: Fence,
        span: tracing::Span,
    ) -> Result<()> {
        // Each asks for itself then, after it came.
        if let Some(admitted) = span.in_scope(|| gate.admit_at_once(resource, fence)) {
            return admitted;
        }
        let verdict = self.join(gate, resource, fence, span.clone()).await;
        if let Some(admitted) = told(&verdict) {
            return admitted;
        }
        gate.admit(resource, fence).instrument(span).await
    }

    fn join(&self, gate: &Arc<dyn Gate>, resource: &Arc<str>, fence: Fence, span: tracing::Span) -> Question {
        let ask = || {
            // If all who wait for it are gone, nobody is left to ask for.
            let (group, turn) = (Arc::downgrade(&self.0), self.0.turn.clone());
            let (gate, resource) = (gate.clone(), resource.clone());
            let asking = async move {
                let _turn = turn.lock_owned().await;
                // Whoever has come to this runtime by now is let join first: when there is much to do a question costs more than
                // this moment, and when there is little the moment is none.
                tokio::task::yield_now().await;
                let Some(group) = group.upgrade() else { return Arc::new(Mutex::new(Verdict::Told)) };
                // From here on it is too late to join.
                locked(&group.next).take();
                drop(group);
                let admitted = gate.admit(&resource, fence).instrument(span).await;
                Arc::new(Mutex::new(admitted.map_or_else(Verdict::Refused, |()| Verdict::In)))
            };
            asking.boxed().shared()
        };
        locked(&self.0.next).get_or_insert_with(ask).clone()
    }
}

/// The verdict; `None` if it is an error that another one was told.
fn told(verdict: &Mutex<Verdict>) -> Option<Result<()>> {
    let mut verdict = locked(verdict);
    if matches!(*verdict, Verdict::In) {
        return Some(Ok(()));
    }
    match std::mem::replace(&mut *verdict, Verdict::Told) {
        Verdict::Refused(error) => Some(Err(error)),
        _ => None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use tollgate_core::{MemoryGate, Token};

    use super::*;

    /// A gate that answers when it is let, and counts how often it was asked.
    struct Slow {
        marks: MemoryGate,
        asked: AtomicUsize,
        answers: Semaphore,
    }

    impl Gate for Slow {
        fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> tollgate_core::BoxFuture<'a, Result<()>> {
            Box::pin(async move {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let admitted = self.marks.admit(resource, fence).await;
                self.answers.acquire().await.expect("it stays open").forget();
                admitted
            })
        }

        fn highest<'a>(&'a self, resource: &'a str) -> tollgate_core::BoxFuture<'a, Result<Option<Token>>> {
            self.marks.highest(resource)
        }
    }

    fn slow() -> (Arc<Slow>, Arc<dyn Gate>, Arc<str>) {
        let gate = Arc::new(Slow {
            marks: MemoryGate::new(),
            asked: AtomicUsize::new(0),
            answers: Semaphore::new(0),
        });
        (gate.clone(), gate, Arc::from("r"))
    }

    fn fence(token: u64) -> Fence {
        Fence::shown(Token::new(token).unwrap(), true)
    }

    fn start(
        together: &Together,
        gate: &Arc<dyn Gate>,
        resource: &Arc<str>,
    ) -> tokio::task::JoinHandle<Result<()>> {
        let (together, gate, resource) = (together.clone(), gate.clone(), resource.clone());
        tokio::spawn(async move { together.admit(&gate, &resource, fence(5), tracing::Span::none()).await })
    }

    #[tokio::test]
    async fn those_who_come_while_the_gate_is_asked_share_the_next_question_and_not_this_one() {
        let (slow, gate, resource) = slow();
        let together = Together::default();
        let first = start(&together, &gate, &resource);
        while slow.asked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let late: Vec<_> = (0..10).map(|_| start(&together, &gate, &resource)).collect();
        tokio::task::yield_now().await;
        // What comes in before they are asked for shuts them out.
        slow.marks.admit("r", fence(9)).await.unwrap();
        slow.answers.add_permits(100);
        first.await.unwrap().unwrap();
        for one in late {
            let error = one.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), tollgate_core::ErrorKind::Lost, "each hears of it: {error}");
        }
    }

    #[tokio::test]
    async fn ten_who_come_together_ask_twice_at_most() {
        let (slow, gate, resource) = slow();
        let together = Together::default();
        let all: Vec<_> = (0..10).map(|_| start(&together, &gate, &resource)).collect();
        tokio::task::yield_now().await;
        slow.answers.add_permits(100);
        for one in all {
            one.await.unwrap().unwrap();
        }
        assert!(slow.asked.load(Ordering::Relaxed) <= 2, "{}", slow.asked.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn one_who_gives_up_leaves_the_others_their_answer() {
        let (slow, gate, resource) = slow();
        let together = Together::default();
        let (first, second, third) = (
            start(&together, &gate, &resource),
            start(&together, &gate, &resource),
            start(&together, &gate, &resource),
        );
        tokio::task::yield_now().await;
        first.abort();
        second.abort();
        slow.answers.add_permits(100);
        third.await.unwrap().unwrap();
        let again = start(&together, &gate, &resource);
        again.await.unwrap().unwrap();
    }
}
