//! The wait for a claim's turn: a watch on one key, and a look at the queue when it tells of something.

use std::time::Duration;

use tollgate_core::turn::{Turn, Verdict};
use tollgate_core::wait::Outage;
use tollgate_core::{Backend, Claim, Error, ErrorKind, Grant, LockName, Mode, Result};

use crate::acquire::{Placed, View, page};
use crate::backend::EtcdBackend;
use crate::error::over;
use crate::hub::{Signal, Since, Watch, What};
use crate::keys::Span;
use crate::links::Links;
use crate::ops::queued;
use crate::session::Session;
use crate::wire::{RangeRequest, RangeResponse};

/// How often a waiter looks again though it was told of nothing.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// Before a watch that broke is made again.
const PAUSE: Duration = Duration::from_millis(20);

/// How recent a look at the queue has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// As of now, as a majority has it.
    Now,
    /// Of this revision or a later one, as any member has it.
    Revision(i64),
}

/// Whether what is waited for has happened before the watch was in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Still {
    /// It has not, and nothing was written at all since the watch was made: etcd has it in place.
    ThereAndNothingChanged,
    /// It has not.
    There,
    /// It may have.
    LookAgain,
}

impl EtcdBackend {
    /// Waits until the lock is ours. Whose place went with its session, or was deleted, queues up again; and so does who finds
    /// nobody to ask meanwhile. What nobody knows is not asked again.
    ///
    /// A session that ended by our own clock may live on at etcd, where a new leader gives it its whole ttl once more: the
    /// key in it would stand before the new one.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant> {
        if let Some(grant) = self.again(claim).await? {
            return Ok(grant);
        }
        let (mut waited, mut outage) = (false, Outage::default());
        loop {
            let error = match self.wait_in_turn(claim, &mut waited, &mut outage).await {
                Err(error) if waited => error,
                answer => return answer,
            };
            let placeless = match error.kind() {
                ErrorKind::Lost if error.is_retryable() => true,
                // It may have a place, or yet get one, and nobody knows where.
                ErrorKind::Indeterminate => true,
                ErrorKind::Unavailable => self.sessions.is_over_for(claim.owner),
                _ => return Err(error),
            };
            tokio::time::sleep(outage.pause(error).unwrap_or(PAUSE)).await;
            if placeless {
                while let Err(error) = self.withdraw(claim).await {
                    tokio::time::sleep(outage.pause(error)?).await;
                }
            }
        }
    }

    async fn wait_in_turn(&self, claim: &Claim, waited: &mut bool, outage: &mut Outage) -> Result<Grant> {
        // Only who waits for everybody before it needs to know no more than who they are.
        let fellows = (claim.mode == Mode::Exclusive).then(|| self.lines.join(&claim.name));
        let mut placed = self.place(claim, fellows).await?;
        outage.is_over();
        let session = placed.session.clone();
        let mut watched = None;
        while let Verdict::After(turn) = self.verdict(claim, &mut placed).await? {
            *waited = true;
            claim.wait_status.set_queued();
            let as_of = tokio::select! {
                as_of = self.until_moved(&claim.name, &placed, turn, &mut watched) => as_of,
                () = session.ended() => return Err(over()),
                // Some versions lose events when they compact.
                () = tokio::time::sleep(AT_LEAST_EVERY) => {
                    // It may not be in place yet, and then what happened before is not told.
                    watched = None;
                    AsOf::Now
                }
            };
            // Also whether our own key, and with it the lease, is still there.
            placed.view = patiently(&session, || self.look(claim, &placed, as_of)).await?;
        }
        if let Some((Turn::Left(_), watch)) = watched {
            self.hub.park(watch);
        }
        if *waited && matches!(claim.mode, Mode::Permit { .. }) {
            self.tell_those_behind(claim, &placed).await?;
        }
        let grant = self.granted(claim, &placed);
        Ok(if *waited { grant.after_waiting() } else { grant })
    }

    /// Waits until the queue may have moved, and tells how recent the next look at it has to be. The watch that it makes is kept
    /// for the next time if that is for the same.
    async fn until_moved(
        &self,
        name: &LockName,
        placed: &Placed,
        turn: Turn<Vec<u8>>,
        watched: &mut Option<(Turn<Vec<u8>>, Watch)>,
    ) -> AsOf {
        let known = placed.view.known;
        if watched.as_ref().is_none_or(|(same, _)| *same != turn) {
            let what = self.what(name, &turn);
            *watched = match &turn {
                Turn::Left(_) => self.hub.parked_for(&what, known).map(|watch| (turn.clone(), watch)),
                Turn::Moved(_) | Turn::AnyLeft => None,
            };
            if watched.is_some() {
                return told(known, watched).await;
            }
            let (_, watch) = watched.insert((turn.clone(), self.hub.watch(what)));
            match watch.signal().await {
                // What happened between our look and then, the watch does not tell.
                Signal::Created(since) if since.revision > known => {
                    let Ok(still) = self.is_still_there(&turn, placed.revision, since).await else {
                        return AsOf::Now;
                    };
                    if still != Still::ThereAndNothingChanged {
                        watch.double();
                    }
                    if still == Still::LookAgain {
                        return AsOf::Revision(since.revision);
                    }
                }
                Signal::Created(_) => watch.double(),
                // It broke, or something happened at once.
                Signal::Events(_) | Signal::Broken => return broken(watched).await,
            }
        }
        told(known, watched).await
    }

    /// Looks at the queue again, from our own key on. Fails if that is gone.
    ///
    /// What any member has is enough if it is of the revision that we were told of, or later: none is ever added before us, so
    /// who was seen to have left has left. A member that is behind the others may not know yet that our own key is gone; while
    /// the session's deadline is ahead, etcd has not ended it, and of a key that somebody deletes the watch of its holder
    /// tells.
    async fn look(&self, claim: &Claim, placed: &Placed, as_of: AsOf) -> Result<View> {
        if let Some(view) = self.look_at_the_nearest(claim, placed, as_of).await? {
            return Ok(view);
        }
        let span = self.layout.claims_on(&claim.name);
        let request = queued(&span, placed.revision, page(claim.mode));
        let answer = match as_of {
            AsOf::Revision(least) if placed.session.is_in_time() => self.read_as_of(request, least).await?,
            _ => self.links.range(request).await?,
        };
        let own = answer
            .kvs
            .first()
            .is_some_and(|found| found.key == placed.key && found.create_revision == placed.revision);
        if !own {
            return Err(over());
        }
        Ok(View::of(&span, placed.revision, &answer, revision(&answer)))
    }

    /// Reads what some member has at revision `least` or a later one.
    pub(crate) async fn read_as_of(&self, request: RangeRequest, least: i64) -> Result<RangeResponse> {
        read_as_of(&self.links, request, least).await
    }

    /// What to watch while waiting for `turn`.
    fn what(&self, name: &LockName, turn: &Turn<Vec<u8>>) -> What {
        let (span, deletions) = match turn {
            Turn::Left(key) => (Span::one(key.clone()), true),
            Turn::Moved(key) => (Span::one(key.clone()), false),
            Turn::AnyLeft => (self.layout.claims_on(name), true),
        };
        What { span, deletions, from: 0 }
    }

    /// Whether the one claim that is waited for is still there; only a look at the queue tells what else may have moved.
    ///
    /// Any member need not ask the others: what comes after `since`, the watch tells.
    async fn is_still_there(&self, turn: &Turn<Vec<u8>>, own: i64, since: Since) -> Result<Still> {
        let Turn::Left(key) = turn else { return Ok(Still::LookAgain) };
        let request = RangeRequest {
            key: key.clone().into(),
            keys_only: true,
            // Its client may have put another claim there, which is behind us.
            max_create_revision: own,
            ..RangeRequest::default()
        };
        let answer = self.read_as_of(request, since.revision).await?;
        let member = answer.header.map_or(0, |header| header.member_id);
        let unchanged = member == since.member && revision(&answer) == since.revision;
        Ok(match (answer.kvs.is_empty(), unchanged) {
            (true, _) => Still::LookAgain,
            (false, true) => Still::ThereAndNothingChanged,
            (false, false) => Still::There,
        })
    }
}

/// Waits for what the watch tells of something after `known`.
async fn told(known: i64, watched: &mut Option<(Turn<Vec<u8>>, Watch)>) -> AsOf {
    let Some((_, watch)) = watched else { return AsOf::Now };
    match watch.event_after(known).await {
        Some(revision) => AsOf::Revision(revision),
        None => broken(watched).await,
    }
}

/// A watch broke: after a pause everything is to be looked at, and another one made.
async fn broken(watched: &mut Option<(Turn<Vec<u8>>, Watch)>) -> AsOf {
    *watched = None;
    tokio::time::sleep(PAUSE).await;
    AsOf::Now
}

/// Reads what some member has at revision `least` or a later one.
pub(crate) async fn read_as_of(links: &Links, request: RangeRequest, least: i64) -> Result<RangeResponse> {
    let answer = links.range(RangeRequest { serializable: true, ..request.clone() }).await?;
    if revision(&answer) >= least {
        return Ok(answer);
    }
    Ok(links.range(request).await?)
}

pub(crate) fn revision(answer: &RangeResponse) -> i64 {
    answer.header.map_or(0, |header| header.revision)
}

/// Looks until etcd answers, as long as the session lives: a claim that waits has its place meanwhile.
async fn patiently<T, F: Future<Output = Result<T>>>(session: &Session, look: impl Fn() -> F) -> Result<T> {
    let passes = |error: &Error| error.is_retryable() && error.kind() != ErrorKind::Lost;
    let looking = async {
        loop {
            match look().await {
                Err(error) if passes(&error) => tokio::time::sleep(PAUSE).await,
                seen => return seen,
            }
        }
    };
    tokio::select! {
        biased;
        seen = looking => seen,
        () = session.ended() => Err(over()),
    }
}
