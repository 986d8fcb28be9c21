//! Taking the lock: one round trip if the nodes' counters agree, two if they do not.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::{
    Attempt, Claim, Contention, Deadline, Error, ErrorKind, Grant, Mode, Moment, OwnerId, Result, Token, wait,
};

use crate::backend::millis;
use crate::error::unexpected;
use crate::redlock::backend::RedlockBackend;
use crate::redlock::lanes::Links;
use crate::redlock::quorum::{Ballot, Count, Outcome, Said, Verdict, Vote};
use crate::redlock::round::{Reply, Round};
use crate::redlock::script::{self, Question, RESERVED};
use crate::reply::write_details;

/// How often an attempt starts over because a counter moved between its two round trips, or because nodes without a vote
/// could have decided it.
const STARTS: u32 = 3;
/// The pause, times the starts so far, after claims of which none got a majority.
const MET_HALFWAY: Duration = Duration::from_millis(10);
/// When to come back after that.
const SOON: Duration = Duration::from_millis(5);

/// How one start of an attempt ended.
pub(super) enum Ended {
    With(Attempt),
    /// A node's counter was here already.
    Overtaken(u64),
    /// The nodes that voted do not agree, and the others could decide. Nothing is left behind.
    Undecided(Error),
}

/// The source of the error of an attempt that nodes without a vote could have decided.
#[derive(Debug)]
struct Undecided;

impl std::fmt::Display for Undecided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the lock may be free or busy")
    }
}

impl std::error::Error for Undecided {}

/// Whether a claim that waits asks again after this error, also after its first attempt: enough nodes voted, only not
/// for one claim.
pub(super) fn is_undecided(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Undecided>())
}

/// What the claim asks of every node, apart from who the node is.
pub(super) struct Request {
    pub(super) keys: [String; 2],
    pub(super) owner: String,
    pub(super) ttl: u64,
    pub(super) sent: Moment,
    /// " SENT DETAILS", as they follow the token.
    pub(super) rest: Vec<u8>,
}

impl Request {
    pub(super) fn new(backend: &RedlockBackend, claim: &Claim, sent: Moment) -> Result<Self> {
        let mut rest = Vec::with_capacity(160);
        // To write into memory does not fail.
        let _ = write!(rest, " {} ", sent.as_nanos());
        write_details(&mut rest, &claim.details)?;
        let (keys, owner) = (backend.keys(&claim.name), claim.owner.to_hex());
        Ok(Self { keys, owner, ttl: millis(claim.ttl), sent, rest })
    }

    fn acquire(&self, hint: u64) -> Question {
        self.of(&script::ACQUIRE, hint)
    }

    fn commit(&self, token: Token) -> Question {
        self.of(&script::COMMIT, token.get())
    }

    fn of(&self, script: &script::Lua, number: u64) -> Question {
        let [lock, fence] = &self.keys;
        script.of_voter(&[lock, fence]).arg(&self.owner).arg(number).arg(self.ttl).arg(self.rest.as_slice())
    }
}

/// A claim that nodes may know of. If its future is dropped or fails, the connections are remembered over which it
/// was sent: a withdrawal must not overtake it.
pub(super) struct UnderWay<'a> {
    backend: &'a RedlockBackend,
    owner: OwnerId,
    links: &'a Links,
    settled: bool,
}

impl<'a> UnderWay<'a> {
    pub(super) fn new(backend: &'a RedlockBackend, owner: OwnerId, links: &'a Links) -> Self {
        Self { backend, owner, links, settled: false }
    }

    /// What became of it is known.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.backend.remember(self.owner, self.links.clone());
        }
    }
}

impl RedlockBackend {
    pub(super) async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        if claim.mode != Mode::Exclusive {
            return Err(Error::unsupported(
                "redlock:// has exclusive locks only: with a majority per permit, or with readers that \
                 only some nodes know, a client that stops halfway leaves nodes that disagree, and one \
                 holder too many is admitted. Use one Redis, or another engine",
            ));
        }
        self.capabilities.check_ttl(claim.ttl)?;
        let [lock, _] = self.keys(&claim.name);
        if lock.starts_with(RESERVED) {
            return Err(Error::invalid(format!(
                "the key of this lock would start with {RESERVED:?}, which is reserved for the record of \
                 voting nodes; choose another name, or prefix"
            )));
        }
        if !self.contended.has(&lock, self.clock.now())
            && let Some(attempt) = self.take(claim).await?
        {
            return Ok(attempt);
        }
        let mut undecided = None;
        for start in 1..=STARTS {
            // Above what was seen, too: after a recovery nodes are ahead of all clocks.
            let hint = now_in_micros().max(self.highest.load(Ordering::Relaxed) + 1);
            match self.start(claim, hint).await? {
                Ended::With(attempt) => return Ok(attempt),
                Ended::Overtaken(highest) => _ = self.highest.fetch_max(highest, Ordering::Relaxed),
                Ended::Undecided(error) => {
                    undecided = Some(error);
                    // Claims that met halfway have taken back their votes by then, and do not meet again.
                    let pause = wait::jittered(MET_HALFWAY * start);
                    self.clock.sleep_until(self.clock.now() + pause).await;
                }
            }
        }
        undecided.map_or_else(|| Ok(busy(Some(SOON))), Err)
    }

    /// One start. Only what is answered to it counts, and its grant lives from its first send.
    async fn start(&self, claim: &Claim, hint: u64) -> Result<Ended> {
        let links = self.lanes.links().await?;
        if self.lanes.has_met_non_voter() {
            // A majority may decide before such a node says so itself.
            self.recovery.start();
        }
        let sent = self.clock.now();
        let request = Request::new(self, claim, sent)?;
        let mut under_way = UnderWay::new(self, claim.owner, &links);
        let mut ballot = Ballot::new(links.len());
        let acquire = request.acquire(hint);
        let mut round = Round::new(&self.lanes, &links, sent, &acquire, |_| true);
        let verdict = round
            .until(|node, reply| {
                ballot.cast(node, self.vote(node, &links, &reply, sent));
                ballot.verdict()
            })
            .await;
        drop(round);
        let verdict = verdict.ok_or_else(|| unexpected(&"no verdict although every node answered"))?;
        let ended = match verdict {
            Verdict::Granted { token, since } => self.granted(claim, &links, token, since, sent).await?,
            Verdict::Commit { token } => self.commit(claim, &links, &request, &ballot, token).await?,
            Verdict::Busy { retry_after } => {
                self.give_back(claim, &links, &ballot).await;
                Ended::With(busy(retry_after))
            }
            Verdict::Undecided { unknown } => {
                self.give_back(claim, &links, &ballot).await;
                Ended::Undecided(self.undecided(&ballot, unknown))
            }
            Verdict::TooFew { unknown } => {
                self.give_back(claim, &links, &ballot).await;
                return Err(self.too_few(&ballot, unknown));
            }
        };
        under_way.settle();
        Ok(ended)
    }

    /// Too few nodes voted: says who is missing.
    pub(super) fn too_few(&self, ballot: &Ballot, unknown: bool) -> Error {
        let absent = |node: &usize| matches!(ballot.vote(*node), Some(Vote::None { .. }));
        let absent: Vec<usize> = (0..self.lanes.nodes.len()).filter(absent).collect();
        self.lanes.without(&absent, unknown)
    }

    /// Nodes without a vote could have made a majority: says which.
    fn undecided(&self, ballot: &Ballot, unknown: bool) -> Error {
        let absent = self.too_few(ballot, unknown);
        let message = format!(
            "the nodes that answered do not agree on a claim, and the others could decide: {}",
            absent.message()
        );
        Error::new(absent.kind(), message).caused_by(Undecided)
    }

    fn vote(&self, node: usize, links: &Links, reply: &Reply, sent: Moment) -> Vote {
        let unknown = reply.is_unknown();
        let Some(text) = reply.text() else { return Vote::None { unknown } };
        // A token above all that there can be is of no use, and must be given back.
        let ours =
            |token: &str, since: Moment| match token.parse().ok().and_then(|token| Token::new(token).ok()) {
                Some(token) => Vote::Ok { token, since: since.min(sent) },
                None => Vote::None { unknown: true },
            };
        match text.split_at_checked(1) {
            Some((first, _)) if first.starts_with(|first: char| first.is_ascii_digit()) => ours(text, sent),
            Some(("O", again)) => {
                let (token, since) = again.split_once(' ').unwrap_or((again, ""));
                ours(token, since.parse().map_or(Moment::ZERO, Moment::from_nanos))
            }
            Some(("B", pttl)) => {
                let pttl = pttl.parse::<i64>().ok().and_then(|pttl| u64::try_from(pttl).ok());
                Vote::Busy { free_in: pttl.map(Duration::from_millis) }
            }
            // Of an earlier request of this claim, by plain commands: no vote, and not this one's to give back.
            Some(("U", _)) => Vote::None { unknown: false },
            _ => {
                self.meets_recovering(node, links);
                Vote::None { unknown: false }
            }
        }
    }

    /// A majority stands at `token`. It is held if something is left of it.
    pub(super) async fn granted(
        &self,
        claim: &Claim,
        links: &Links,
        token: Token,
        since: Moment,
        sent: Moment,
    ) -> Result<Ended> {
        self.highest.fetch_max(token.get(), Ordering::Relaxed);
        let deadline = Deadline::counted_from(since, claim.ttl);
        if let Deadline::At(end) = deadline
            && self.clock.now() < end
        {
            return Ok(Ended::With(Attempt::Granted(Grant::new(claim, token, deadline))));
        }
        self.give_back_all(claim, links).await;
        if since < sent {
            // Left over from an earlier request of this claim that arrived late.
            return Ok(Ended::With(busy(Some(SOON))));
        }
        Err(Error::new(
            ErrorKind::Timeout,
            format!("a majority took longer to answer than the ttl of {:?}; use a longer ttl", claim.ttl),
        ))
    }

    /// Brings all nodes to the highest token that one of them gave.
    async fn commit(
        &self,
        claim: &Claim,
        links: &Links,
        request: &Request,
        ballot: &Ballot,
        token: Token,
    ) -> Result<Ended> {
        let mut since = request.sent;
        let mut count = Count::new(links.len());
        let mut stand = vec![false; links.len()];
        for (node, stands) in stand.iter_mut().enumerate() {
            match ballot.vote(node) {
                Some(Vote::Ok { token: theirs, since: from }) if theirs == token => {
                    since = since.min(from);
                    *stands = true;
                    count.add(Said::Yes);
                }
                Some(Vote::Busy { .. } | Vote::None { .. }) => {
                    *stands = true;
                    count.add(Said::No);
                }
                _ => {}
            }
        }
        let overtaken = AtomicU64::new(0);
        let commit = request.commit(token);
        let mut round = Round::new(&self.lanes, links, request.sent, &commit, |node| !stand[node]);
        let outcome = round
            .until(|_, reply| {
                count.add(match reply.text() {
                    Some("1") => Said::Yes,
                    Some(no) => {
                        let highest = no.strip_prefix('N').and_then(|highest| highest.parse().ok());
                        overtaken.fetch_max(highest.unwrap_or(0), Ordering::Relaxed);
                        Said::No
                    }
                    None => Said::Nothing { unknown: reply.is_unknown() },
                });
                count.outcome()
            })
            .await;
        drop(round);
        match outcome {
            Some(Outcome::Done) => self.granted(claim, links, token, since, request.sent).await,
            Some(Outcome::Unclear { unknown: true }) => {
                let message =
                    "too few nodes answered whether they agree on one token; they may agree nevertheless";
                Err(Error::new(ErrorKind::Indeterminate, message))
            }
            _ => {
                self.give_back_all(claim, links).await;
                Ok(Ended::Overtaken(overtaken.into_inner().max(token.get())))
            }
        }
    }
}

fn busy(retry_after: Option<Duration>) -> Attempt {
    Attempt::Busy(Contention { ahead: None, retry_after })
}

/// The wall clock. Nothing rests on it: nodes that hear the same hint draw the same token.
fn now_in_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
