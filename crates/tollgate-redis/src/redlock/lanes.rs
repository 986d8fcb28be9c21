//! Connections: for each runtime that uses this client one to every node.
//!
//! A connection is driven by a task on the runtime that opened it. Callers use their own, which spares a wake of
//! another thread; renewals and everything in the background use the keeper's, which no caller can block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Cmd;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tollgate_core::{Error, ErrorKind, Keeper, Result};

use crate::endpoint::NOT_ENCRYPTED;
use crate::redlock::link::{Link, PATIENCE};
use crate::redlock::node::Node;
use crate::redlock::quorum::majority;
use crate::redlock::trouble::Trouble;

/// A call that has a majority waits no longer than this for the others to be connected.
const GRACE: Duration = Duration::from_millis(250);
/// The pauses between two looks at a node that is set aside.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The same if somebody has to change something first: a server that is no Redis, or refuses us, is not to be bothered.
const LASTING_PAUSE: Duration = Duration::from_secs(10);

/// A connection to each node that has one.
pub(crate) type Links = Arc<[Option<Arc<Link>>]>;

/// A connection that several calls wait for.
type Opening = Shared<BoxFuture<'static, Result<Arc<Link>, Trouble>>>;

/// The nodes, and the connections to them.
pub(crate) struct Lanes {
    pub(crate) nodes: Vec<Node>,
    max_ttl: Duration,
    by_runtime: Mutex<HashMap<Id, Arc<Lane>>>,
    closed: AtomicBool,
    /// A connection was opened to a node that does not vote.
    met_non_voter: AtomicBool,
    /// What is still to be told to nodes though nobody waits for it.
    errands: tokio::sync::watch::Sender<usize>,
    this: Weak<Self>,
}

/// Something under way that nobody waits for. It is over when this is dropped, whatever became of it.
struct Errand<F> {
    lanes: Arc<Lanes>,
    work: Option<F>,
}

impl<F: Future<Output = ()>> Errand<F> {
    fn new(lanes: Arc<Lanes>, work: F) -> Self {
        lanes.errands.send_modify(|errands| *errands += 1);
        Self { lanes, work: Some(work) }
    }

    async fn run(mut self) {
        if let Some(work) = self.work.take() {
            work.await;
        }
    }
}

impl<F> Drop for Errand<F> {
    fn drop(&mut self) {
        self.lanes.errands.send_modify(|errands| *errands -= 1);
    }
}

/// One runtime's connections.
struct Lane {
    seats: Mutex<Seats>,
    /// A task that ends with its runtime. Closed connections do not tell: the next one has to know of them.
    runtime: AbortHandle,
}

struct Seats {
    links: Links,
    opening: Vec<Option<Opening>>,
}

impl Lane {
    /// Of the current runtime, to so many nodes.
    fn new(nodes: usize) -> Self {
        let seats = Seats { links: vec![None; nodes].into(), opening: vec![None; nodes] };
        let runtime = tokio::spawn(std::future::pending::<()>()).abort_handle();
        Self { seats: Mutex::new(seats), runtime }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.runtime.abort();
    }
}

impl Lanes {
    pub(crate) fn new(nodes: Vec<Node>, max_ttl: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            nodes,
            max_ttl,
            by_runtime: Mutex::default(),
            closed: AtomicBool::new(false),
            met_non_voter: AtomicBool::new(false),
            errands: tokio::sync::watch::Sender::new(0),
            this: this.clone(),
        })
    }

    /// How long a client that is being closed waits for its errands at most.
    pub(crate) const AT_THE_END: Duration = Duration::from_secs(2);

    /// Sees something to its end though nobody waits for it, but whoever closes this client.
    pub(crate) fn run_errand(self: &Arc<Self>, errand: impl Future<Output = ()> + Send + 'static) {
        let errand = Errand::new(self.clone(), errand);
        tokio::spawn(errand.run());
    }

    /// Waits until there are no errands any more.
    pub(crate) async fn idle(&self) {
        // The sender is ours, so it is there.
        let _ = self.errands.subscribe().wait_for(|errands| *errands == 0).await;
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// This runtime's connections to those who are not set aside: a majority at least, or an error that says what is
    /// wrong with the others.
    pub(crate) async fn links(&self) -> Result<Links> {
        let lane = self.lane();
        let links = lane.seats().links.clone();
        let is_well = |(link, node): (&Option<Arc<Link>>, &Node)| {
            !node.is_aside() && link.as_ref().is_some_and(|link| link.is_open())
        };
        if links.iter().zip(&self.nodes).all(is_well) {
            return Ok(links);
        }
        let links = self.gather(&lane).await;
        if links.iter().flatten().count() < self.majority() {
            return Err(self.too_few(&links));
        }
        Ok(links)
    }

    /// This runtime's connection to one node, opened if need be.
    pub(crate) async fn link_to(&self, node: usize) -> Result<Arc<Link>, Trouble> {
        let lane = self.lane();
        let open = lane.seats().links[node].clone().filter(|link| link.is_open());
        match open {
            Some(link) => Ok(link),
            None => self.opening(&lane, node).await,
        }
    }

    fn lane(&self) -> Arc<Lane> {
        let mut lanes = self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let here = Handle::current().id();
        if let Some(lane) = lanes.get(&here) {
            return lane.clone();
        }
        // Runtimes that are gone took their connections with them.
        lanes.retain(|_, lane| !lane.runtime.is_finished());
        lanes.entry(here).or_insert_with(|| Arc::new(Lane::new(self.nodes.len()))).clone()
    }

    /// How many runtimes have connections here.
    #[cfg(test)]
    fn runtimes(&self) -> usize {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Opens what is missing and worth it. If too few nodes are, those that were set aside are tried, too.
    async fn gather(&self, lane: &Arc<Lane>) -> Links {
        let well = self.nodes.iter().filter(|node| !node.is_aside()).count();
        let desperate = well < self.majority();
        let usable = || -> Links {
            let links = lane.seats().links.clone();
            let is_usable = |node: &Node, link: &Arc<Link>| link.is_open() && (desperate || !node.is_aside());
            let usable = links.iter().zip(&self.nodes);
            usable.map(|(link, node)| link.clone().filter(|link| is_usable(node, link))).collect()
        };
        let links = usable();
        let tried = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(place, node)| links[*place].is_none() && (desperate || !node.is_aside()));
        let mut openings: FuturesUnordered<Opening> =
            tried.map(|(place, _)| self.opening(lane, place)).collect();
        let started = Instant::now();
        loop {
            let links = usable();
            let enough = links.iter().flatten().count() >= self.majority();
            // Each ends by its own patience, and says why: a little later there is nobody left to wait for.
            let limit = started + if enough { GRACE } else { PATIENCE + GRACE };
            match tokio::time::timeout_at(limit, openings.next()).await {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return usable(),
            }
        }
    }

    /// A connection that is being opened, by a task of its own: who waits for it may give up.
    fn opening(&self, lane: &Arc<Lane>, node: usize) -> Opening {
        let mut seats = lane.seats();
        if let Some(opening) = &seats.opening[node] {
            return opening.clone();
        }
        let before = seats.links[node].clone();
        let (this, lane) = (self.this.clone(), Arc::downgrade(lane));
        let open = async move {
            let gone = || Trouble::new(ErrorKind::Unavailable, "this client was closed");
            let lanes = this.upgrade().ok_or_else(gone)?;
            let opened = tokio::time::timeout(PATIENCE, lanes.open(node, before.as_deref())).await;
            let late = || {
                let message = format!("the node did not answer within {PATIENCE:?}");
                // A Redis that does not speak TLS waits for the end of what it takes for a command.
                let encrypted = lanes.nodes[node].endpoint.is_encrypted();
                let hint = if encrypted { format!("; {NOT_ENCRYPTED}") } else { String::new() };
                Trouble::new(ErrorKind::Unavailable, message + &hint)
            };
            let opened = opened.unwrap_or_else(|_| Err(late())).map(Arc::new);
            let lane = lane.upgrade().ok_or_else(gone)?;
            let mut seats = lane.seats();
            seats.opening[node] = None;
            match &opened {
                Ok(link) => {
                    let mut links = seats.links.to_vec();
                    links[node] = Some(link.clone());
                    seats.links = links.into();
                    drop(seats);
                    lanes.nodes[node].bring_back();
                }
                Err(trouble) => {
                    drop(seats);
                    lanes.set_aside(node, trouble.clone());
                }
            }
            opened
        };
        let opening = open.boxed().shared();
        seats.opening[node] = Some(opening.clone());
        drop(seats);
        tokio::spawn(opening.clone());
        opening
    }

    /// Connects to a node in the place of an older connection.
    async fn open(&self, node: usize, before: Option<&Link>) -> Result<Link, Trouble> {
        let at = &self.nodes[node];
        let (link, member) = Link::open(&at.endpoint).await?;
        if let Some(before) = before {
            cut(before, &link).await?;
        }
        *at.run_id() = link.run_id.clone();
        for (other, twin) in self.nodes.iter().enumerate() {
            if other != node && *twin.run_id() == link.run_id {
                let message = format!(
                    "{} and {} are the same Redis server; every node must be a separate Redis server",
                    at.label, twin.label
                );
                return Err(Trouble::contradiction(message));
            }
        }
        if member.as_ref().is_none_or(|member| member.run_id != link.run_id) {
            self.met_non_voter.store(true, Ordering::Release);
        }
        match member {
            Some(member) if member.max_ttl != self.max_ttl => {
                let (theirs, ours) = (member.max_ttl, self.max_ttl);
                let message = format!(
                    "the node was set up with max_ttl={theirs:?}, and this client has {ours:?}; all \
                     clients must use the same value: write ?max_ttl={}ms",
                    theirs.as_millis()
                );
                Err(Trouble::contradiction(message))
            }
            _ => Ok(link),
        }
    }

    /// A node did not answer over `link` in time.
    pub(crate) fn give_up_on(&self, node: usize, link: &Link, trouble: Trouble) {
        link.close();
        self.set_aside(node, trouble);
    }

    /// Finds out, in the background, whether a node still answers over `link`.
    pub(crate) fn check(&self, node: usize, link: Arc<Link>) {
        let this = self.this.clone();
        // A round may be dropped where there is no runtime any more.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let answered = link.answers().await;
            let Some(lanes) = this.upgrade() else { return };
            match answered {
                Ok(true) => {}
                // It has forgotten everything without anybody hearing: others always answer first.
                Ok(false) => lanes.met_non_voter.store(true, Ordering::Release),
                Err(trouble) if link.is_open() => lanes.give_up_on(node, &link, trouble),
                // The connection was cut, which says nothing of the node: whoever needs it opens another.
                Err(_) => {}
            }
        });
    }

    /// Nobody waits for this node until it is found to answer again.
    fn set_aside(&self, node: usize, trouble: Trouble) {
        if !self.nodes[node].set_aside(trouble) {
            return;
        }
        let this = self.this.clone();
        // Without a keeper there is nobody to look; a call that finds too few nodes tries by itself.
        if let Ok(keeper) = Keeper::global() {
            keeper.spawn(look_after(this, node));
        }
    }

    /// Refuses a URL that nodes contradict, though a majority may be well. A node that is of no use by itself is one that
    /// a majority does without.
    pub(crate) fn check_config(&self) -> Result<()> {
        for node in self.nodes.iter().filter(|node| node.is_aside()) {
            let trouble = node.trouble();
            if trouble.of_url {
                return Err(Error::new(trouble.kind, format!("{}: {}", node.label, trouble.message)));
            }
        }
        Ok(())
    }

    /// Which nodes are of no use, and why.
    pub(crate) fn too_few(&self, links: &Links) -> Error {
        let absent = (0..self.nodes.len()).filter(|node| links[*node].is_none()).collect::<Vec<_>>();
        self.without(&absent, false)
    }

    /// What is wrong with some nodes.
    pub(crate) fn why(&self, absent: &[usize]) -> String {
        let troubles = absent.iter().map(|node| &self.nodes[*node]);
        let why: Vec<String> =
            troubles.map(|node| format!("{}: {}", node.label, node.trouble().message)).collect();
        why.join("; ")
    }

    /// An error of a call that too few nodes had a part in.
    pub(crate) fn without(&self, absent: &[usize], unknown: bool) -> Error {
        let troubles: Vec<Trouble> = absent.iter().map(|node| self.nodes[*node].trouble()).collect();
        let (all, enough) = (self.nodes.len(), self.majority());
        // What an operator has to change does not pass by itself, if the others are too few without it.
        let lasting = |trouble: &&Trouble| trouble.is_lasting();
        let kind = match troubles.iter().find(lasting) {
            _ if unknown => ErrorKind::Indeterminate,
            Some(trouble) if all - troubles.iter().filter(lasting).count() < enough => trouble.kind,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{enough} of {all} nodes must take part; {}", self.why(absent)))
    }

    /// Whether somebody has connected to a node that does not vote, since this was last asked.
    pub(crate) fn has_met_non_voter(&self) -> bool {
        // Almost never, and a write would move the line between cores.
        self.met_non_voter.load(Ordering::Relaxed) && self.met_non_voter.swap(false, Ordering::AcqRel)
    }

    /// Closes everything.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// Makes sure that the node executes nothing more of what was sent over `old`, before anything is sent over `new`.
pub(crate) async fn cut(old: &Link, new: &Link) -> Result<(), Trouble> {
    old.close();
    // A node that was restarted has forgotten its connections, and the number may be somebody else's.
    if old.run_id == new.run_id && old.id != new.id {
        let mut kill = Cmd::new();
        kill.arg("CLIENT").arg("KILL").arg("ID").arg(old.id);
        new.query::<u64>(kill).await?;
    }
    Ok(())
}

/// Brings a node back that was set aside, as soon as it answers. Runs on the keeper.
async fn look_after(lanes: Weak<Lanes>, node: usize) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
        let Some(lanes) = lanes.upgrade().filter(|lanes| !lanes.is_closed()) else { return };
        if !lanes.nodes[node].is_aside() {
            return;
        }
        let answers = match lanes.link_to(node).await {
            Ok(link) => link.answers().await.inspect_err(|_| link.close()),
            Err(trouble) => Err(trouble),
        };
        match answers {
            Ok(_) => return lanes.nodes[node].bring_back(),
            Err(trouble) => {
                if trouble.is_lasting() {
                    pause = LASTING_PAUSE;
                }
                lanes.nodes[node].note(trouble);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_ended_are_forgotten_and_those_that_live_are_not() {
        let lanes = Lanes::new(Vec::new(), Duration::from_secs(1));
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
        let lives = runtime();
        let first = lives.block_on(async { lanes.lane() });
        for _ in 0..20 {
            runtime().block_on(async { lanes.lane() });
        }
        // The one that lives, and the last, of whose end nobody has heard yet.
        assert_eq!(lanes.runtimes(), 2);
        assert!(Arc::ptr_eq(&first, &lives.block_on(async { lanes.lane() })));
    }
}
