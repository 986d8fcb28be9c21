//! One question to all nodes at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{Cmd, Value};
use tollgate_core::Moment;

use crate::redlock::lanes::{Lanes, Links};
use crate::redlock::link::{Link, PATIENCE, silent};
use crate::redlock::script::Question;
use crate::redlock::trouble::Trouble;

/// How long answers that are already here may take to be read.
const GRACE: Duration = Duration::from_millis(100);

/// What became of the question to one node.
pub(crate) enum Reply {
    /// It said this.
    Said(Value),
    /// It did not do it, or nobody knows.
    Failed(Trouble),
    /// There is no connection to it.
    NotAsked,
}

impl Reply {
    /// Whether the node may do it, or have done it, though nobody knows.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Failed(trouble) if trouble.is_unknown())
    }

    /// What it said, as text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Said(value) => text(value),
            _ => None,
        }
    }
}

/// A string that a script answered.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

type Asking = Pin<Box<dyn Future<Output = Result<Value, Trouble>> + Send>>;

/// A question under way.
pub(crate) struct Round {
    lanes: Arc<Lanes>,
    links: Links,
    sent: Moment,
    /// Who has not answered yet.
    asking: Vec<(usize, Asking)>,
    not_asked: Vec<usize>,
}

impl Round {
    /// Asks every node that is `meant`.
    pub(crate) fn new(
        lanes: &Arc<Lanes>,
        links: &Links,
        sent: Moment,
        question: &Question,
        meant: impl Fn(usize) -> bool,
    ) -> Self {
        let ask = |link: &Arc<Link>| {
            let (link, request) = (link.clone(), question.to(link));
            Box::pin(async move { link.ask(request).await }) as Asking
        };
        Self::of(lanes, links, sent, meant, ask)
    }

    /// Asks every node for several things in one go.
    pub(crate) fn of_several(
        lanes: &Arc<Lanes>,
        links: &Links,
        sent: Moment,
        several: impl Fn(&Link) -> Vec<Cmd>,
    ) -> Self {
        let ask = |link: &Arc<Link>| {
            let (link, requests) = (link.clone(), several(link));
            Box::pin(async move { link.ask_all(requests).await }) as Asking
        };
        Self::of(lanes, links, sent, |_| true, ask)
    }

    fn of(
        lanes: &Arc<Lanes>,
        links: &Links,
        sent: Moment,
        meant: impl Fn(usize) -> bool,
        ask: impl Fn(&Arc<Link>) -> Asking,
    ) -> Self {
        let (mut asking, mut not_asked) = (Vec::with_capacity(links.len()), Vec::new());
        for (node, link) in links.iter().enumerate().filter(|(node, _)| meant(*node)) {
            match link {
                Some(link) => asking.push((node, ask(link))),
                None => not_asked.push(node),
            }
        }
        Self { lanes: lanes.clone(), links: links.clone(), sent, asking, not_asked }
    }

    /// Whether somebody has not answered yet.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Gives each reply to `take` as it comes, until `take` has seen enough. `None` if it never has: everybody has
    /// answered then, or was waited for as long as the patience is.
    ///
    /// The driver may not send what nobody waits for any more: what must reach everybody is to be
    /// [seen to its end](Self::see_to_its_end).
    pub(crate) async fn until<T>(&mut self, mut take: impl FnMut(usize, Reply) -> Option<T>) -> Option<T> {
        for node in std::mem::take(&mut self.not_asked) {
            if let Some(enough) = take(node, Reply::NotAsked) {
                return Some(enough);
            }
        }
        let mut patience = std::pin::pin!(tokio::time::sleep(PATIENCE));
        let seen = std::future::poll_fn(|context| match self.poll(context, &mut take) {
            Poll::Ready(seen) => Poll::Ready(Some(seen)),
            Poll::Pending => patience.as_mut().poll(context).map(|()| None),
        });
        if let Some(seen) = seen.await {
            return seen;
        }
        // After a stop of this process the answers and the end of the patience are there together.
        tokio::time::sleep(GRACE).await;
        let last = std::future::poll_fn(|context| Poll::Ready(self.poll(context, &mut take)));
        if let Poll::Ready(seen) = last.await {
            return seen;
        }
        for (node, _) in std::mem::take(&mut self.asking) {
            if let Some(link) = &self.links[node] {
                self.lanes.give_up_on(node, link, silent());
            }
            if let Some(enough) = take(node, Reply::Failed(silent())) {
                return Some(enough);
            }
        }
        None
    }

    /// Goes on in the background until everybody has answered, or was waited for long enough.
    pub(crate) fn see_to_its_end(mut self) {
        if self.is_under_way() {
            let lanes = self.lanes.clone();
            let (links, sent) = (self.links.clone(), self.sent);
            lanes.clone().run_errand(async move {
                let mut late = Vec::new();
                let note = |node, reply: Reply| {
                    if matches!(reply, Reply::Said(_)) {
                        late.push(node);
                    }
                    None::<()>
                };
                let _: Option<()> = self.until(note).await;
                // Whoever always answers last is never heard when it says that it has forgotten everything.
                for node in late {
                    if let Some(link) = links[node].as_ref().filter(|link| link.is_due_for_a_look(sent)) {
                        lanes.check(node, link.clone());
                    }
                }
            });
        }
    }

    /// Ready with what `take` made of the replies, or with `None` when nobody is left to answer.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        take: &mut impl FnMut(usize, Reply) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut place = 0;
        while place < self.asking.len() {
            let (node, asking) = &mut self.asking[place];
            let node = *node;
            let Poll::Ready(answer) = asking.as_mut().poll(context) else {
                place += 1;
                continue;
            };
            drop(self.asking.swap_remove(place));
            let reply = match answer {
                Ok(value) => {
                    self.links[node].iter().for_each(|link| link.heard());
                    Reply::Said(value)
                }
                Err(trouble) => {
                    self.lanes.nodes[node].note(trouble.clone());
                    Reply::Failed(trouble)
                }
            };
            if let Some(enough) = take(node, reply) {
                return Poll::Ready(Some(enough));
            }
        }
        if self.asking.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        for (node, _) in &self.asking {
            if let Some(link) = &self.links[*node]
                && link.is_suspect(self.sent)
            {
                self.lanes.check(*node, link.clone());
            }
        }
    }
}
