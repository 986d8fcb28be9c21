//! Elections: a lock whose holder leads, says something, and can be seen by everybody.

use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tollgate_types::{Mode, Token};

use crate::backend::BoxStream;
use crate::claim::Details;
use crate::client::Locks;
use crate::error::Result;
use crate::leadership::{Leadership, Work};
use crate::lock::LockRequest;
use crate::state::Event;

/// How often observers look at what a leader proclaims, where the engine tells them of a new one.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often they look who leads where it does not.
const LOOK_FOR_LEADER_EVERY: Duration = Duration::from_millis(250);

/// An election: of all who campaign for a name, one leads. It is the lock of that name, so that whoever takes the lock leads,
/// and its token is the leader's *epoch*: it rises from leader to leader.
///
/// A leader that was stopped for longer than its ttl still believes that it leads when it wakes up, until its next look at
/// [`check`](crate::Lease::check). Have what it writes to [refuse stale epochs](crate::Lease::fence).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-election").await?;
/// let election = locks.election("scheduler");
/// let leadership = election.campaign("10.0.0.7:8080").await?;
///
/// let leader = election.leader().await?.expect("there is one");
/// assert_eq!((leader.epoch, leader.value.as_str()), (leadership.epoch(), "10.0.0.7:8080"));
/// leadership.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    locks: Locks,
    name: String,
    request: LockRequest,
}

/// Who leads.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-leader").await?;
/// let _leadership = locks.election("scheduler").campaign("10.0.0.7:8080").await?;
/// let leader = locks.election("scheduler").leader().await?.expect("there is one");
/// println!("{} leads in epoch {}, process {}", leader.value, leader.epoch, leader.details.pid);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The token of its lock: larger than that of every leader before.
    pub epoch: Token,
    /// What it proclaims; empty if it says nothing.
    pub value: String,
    /// Who it is.
    pub details: Details,
}

impl Election {
    /// Under which key of a holder's [details](Details::meta) everybody finds what it proclaims.
    pub const VALUE: &str = "value";

    pub(crate) fn new(locks: Locks, name: &str) -> Self {
        let request = locks.lock(name);
        Self { locks, name: name.to_owned(), request }
    }

    /// How long a leader leads that nobody hears of any more; 30 s unless said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// Campaigns at most this long. Without it [`campaign`](Self::campaign) waits for ever.
    pub fn wait(mut self, most: Duration) -> Self {
        self.request = self.request.wait(most);
        self
    }

    /// Waits until this one leads, and has it proclaim `value`: where it is to be found, for example.
    ///
    /// May be dropped at any await: it does not stand for election any more then. Fails with `Busy` if
    /// [`wait`](Self::wait) was not enough.
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Leadership> {
        let said = said(value.into());
        said.check().map_err(|error| error.during("campaign"))?;
        let request =
            said.meta.iter().fold(self.request.clone(), |request, (key, value)| request.meta(key, value));
        Ok(Leadership::new(request.acquire().await?, said))
    }

    /// Campaigns, leads while `work` goes on, and resigns. `work` is cancelled when the leadership is lost.
    ///
    /// Fails with `Lost` also if `work` came to its end but the leadership had not lasted until then. It resigns when every
    /// [`Work`] is dropped: what `work` gives back must not contain one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-lead").await?;
    /// let done = locks.election("scheduler").lead("host-7", async |work| {
    ///     work.check().expect("it was just elected");
    ///     17
    /// }).await?;
    /// assert_eq!(done, 17);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<T>(&self, value: impl Into<String>, work: impl AsyncFnOnce(Work) -> T) -> Result<T> {
        let leadership = self.campaign(value).await?;
        let lost = leadership.lost();
        let done = tokio::select! {
            biased;
            cause = lost => return Err(leadership.lost_error(cause).during("lead")),
            done = work(leadership.work()) => done,
        };
        leadership.finish().await.map_err(|error| error.during("lead"))?;
        Ok(done)
    }

    /// Who leads now, if anybody does.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        Ok(self.locks.inspect(&self.name).await?.and_then(|state| {
            // Who shares the lock with others leads nobody.
            let leads =
                state.holders.into_iter().next_back().filter(|holder| holder.mode == Mode::Exclusive)?;
            let value = leads.details.meta.get(Self::VALUE).cloned().unwrap_or_default();
            // Whoever took the lock without a token is no leader that anybody could tell from the next.
            Some(Leader { epoch: leads.token?, value, details: leads.details })
        }))
    }

    /// Everybody who leads from now on, the one who does now first, and everything they proclaim: epochs never go back, and
    /// some may be skipped. While nobody leads it is silent.
    ///
    /// After an error it goes on: an engine that cannot be reached now may be back soon.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// use futures_util::StreamExt;
    ///
    /// let locks = tollgate::connect("memory:doc-observe").await?;
    /// let election = locks.election("scheduler");
    /// let leadership = election.campaign("host-7").await?;
    /// let mut leaders = std::pin::pin!(election.observe());
    /// let leader = leaders.next().await.expect("it goes on for ever")?;
    /// assert_eq!(leader.epoch, leadership.epoch());
    /// # Ok(())
    /// # }
    /// ```
    pub fn observe(&self) -> impl Stream<Item = Result<Leader>> + Send + '_ {
        // To follow what others find out by listing everything would cost far more than to look at this lock.
        let changes = self.locks.client.backend.tells_events().then(|| self.locks.events(&self.name));
        stream::unfold((changes, Seen::default()), move |(mut changes, mut seen)| async move {
            loop {
                if seen.looked {
                    self.change(changes.as_mut()).await;
                }
                seen.looked = true;
                match self.leader().await {
                    Ok(Some(leader)) if seen.is_news(&leader) => return Some((Ok(leader), (changes, seen))),
                    Ok(_) => seen.failed = false,
                    // Said once, until it can be asked again.
                    Err(error) if !std::mem::replace(&mut seen.failed, true) => {
                        return Some((Err(error), (changes, seen)));
                    }
                    Err(_) => {}
                }
            }
        })
    }

    /// Waits until somebody else may lead, or proclaims something else.
    async fn change(&self, changes: Option<&mut BoxStream<'_, Result<Event>>>) {
        let clock = &self.locks.client.clock;
        let Some(changes) = changes else {
            return clock.sleep_until(clock.now() + LOOK_FOR_LEADER_EVERY).await;
        };
        let mut look = pin!(clock.sleep_until(clock.now() + LOOK_EVERY));
        loop {
            tokio::select! {
                biased;
                () = &mut look => return,
                event = changes.next() => match event {
                    Some(Ok(event)) if event.name.as_str() == self.name => return,
                    Some(Ok(_)) => {}
                    // It is looked all the same.
                    Some(Err(_)) | None => break,
                },
            }
        }
        look.await;
    }
}

/// What an observer has seen.
#[derive(Default)]
struct Seen {
    looked: bool,
    failed: bool,
    last: Option<Leader>,
}

impl Seen {
    /// Whether this one, or what it proclaims, comes after all that was seen. A look at a node that lags behind does not.
    fn is_news(&mut self, leader: &Leader) -> bool {
        let is_news = match &self.last {
            Some(last) => (leader.epoch, leader.details.revision) > (last.epoch, last.details.revision),
            None => true,
        };
        self.failed = false;
        if is_news {
            self.last = Some(leader.clone());
        }
        is_news
    }
}

/// The details of a leader that proclaims `value`.
pub(crate) fn said(value: String) -> Details {
    let mut said = Details::of_this_process();
    if !value.is_empty() {
        said.meta.insert(Election::VALUE.to_owned(), value);
    }
    said
}

/// Replaces what a leader proclaims.
pub(crate) fn say(said: &mut Details, value: String) -> Result<()> {
    let mut next = said.clone();
    next.meta.insert(Election::VALUE.to_owned(), value);
    next.revision += 1;
    next.check()?;
    *said = next;
    Ok(())
}
