//! What happens to locks, as the server tells it.

use std::sync::Arc;

use futures_util::stream;
use tokio::sync::{mpsc, oneshot};
use tollgate_core::wait::Outage;
use tollgate_core::{BoxStream, Event, Result};
use tollgate_proto::frame::Call;

use crate::calls::{Open, Told};
use crate::error;
use crate::link::{Link, answered};
use crate::links::Links;

/// As many events may wait to be read; a slower reader misses some.
const BACKLOG: usize = 8192;

/// Events of locks whose names start with `prefix`, from now on. When the connection is lost,
/// events are missed until there is another.
pub(crate) fn follow(links: Arc<Links>, prefix: &str) -> BoxStream<'static, Result<Event>> {
    let following = Following { links, prefix: prefix.to_owned(), over: None, outage: Outage::default() };
    Box::pin(stream::unfold(Some(following), |following| async move {
        let mut following = following?;
        match following.next().await {
            Ok(event) => Some((Ok(event), Some(following))),
            // To go on does not help: a server of another version stays one.
            Err(error) => Some((Err(error), None)),
        }
    }))
}

struct Following {
    links: Arc<Links>,
    prefix: String,
    over: Option<Followed>,
    outage: Outage,
}

/// A connection that tells events; dropped, it is told to stop.
struct Followed {
    link: Link,
    call: u32,
    events: mpsc::Receiver<Event>,
}

impl Following {
    async fn next(&mut self) -> Result<Event> {
        loop {
            if self.over.is_none() {
                match self.begin().await {
                    Ok(followed) => {
                        self.outage.is_over();
                        self.over = Some(followed);
                    }
                    Err(error) => {
                        tokio::time::sleep(self.outage.pause(error)?).await;
                        continue;
                    }
                }
            }
            let Some(followed) = &mut self.over else { continue };
            match followed.events.recv().await {
                Some(event) => return Ok(event),
                None => self.over = None,
            }
        }
    }

    async fn begin(&self) -> Result<Followed> {
        let link = self.links.link().await?;
        let (answer, told) = oneshot::channel();
        let (sender, events) = mpsc::channel(BACKLOG);
        let open = Open::Follow { answer: Some(answer), events: sender };
        let call = link.send(&Call::Follow { prefix: &self.prefix }, Some(open));
        let followed = Followed { link, call, events };
        match answered(told).await? {
            Told::Done => Ok(followed),
            other => Err(error::of(other)),
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.link.forget(self.call);
        self.link.send(&Call::Unfollow { call: self.call }, None);
    }
}
