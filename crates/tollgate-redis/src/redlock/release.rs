//! Giving back: what was granted, what was only half granted, and what nobody knows of.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use tollgate_core::{Claim, Grant, LockName, Moment, OwnerId, Release, Result};

use crate::redlock::backend::RedlockBackend;
use crate::redlock::lanes::{Lanes, Links, cut};
use crate::redlock::link::Link;
use crate::redlock::quorum::{Ballot, Count, Outcome, Said, Vote};
use crate::redlock::round::{Reply, Round};
use crate::redlock::script::{self, Question};
use crate::redlock::trouble::Trouble;

/// Claims whose outcome is unknown, and over which connections they were sent.
pub(super) type Unanswered = HashMap<OwnerId, (Moment, Vec<Links>)>;

/// How long they are remembered at most, beyond the longest ttl.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How long a withdrawal waits behind the acquire it withdraws before that connection is cut. Nobody waits for it.
const BEHIND: Duration = Duration::from_secs(5);

impl RedlockBackend {
    pub(super) fn release_request(&self, name: &LockName, owner: &str) -> Question {
        let [lock, _] = self.keys(name);
        script::RELEASE.of_any(&[&lock]).arg(owner)
    }

    /// Takes back all that `claim` has taken so far. It may arrive late: what the claim takes after this stays.
    fn retraction(&self, claim: &Claim) -> Question {
        let [lock, _] = self.keys(&claim.name);
        let so_far = self.clock.now().as_nanos();
        script::RETRACT.of_any(&[&lock]).arg(claim.owner.to_hex()).arg(so_far)
    }

    /// Gives a grant back on all nodes.
    pub(super) async fn release_grant(&self, grant: &Grant) -> Result<Release> {
        self.healing.forget(grant.owner);
        let links = self.lanes.links().await?;
        let request = self.release_request(&grant.name, &grant.owner.to_hex());
        let mut count = Count::new(links.len());
        let mut round = Round::new(&self.lanes, &links, self.clock.now(), &request, |_| true);
        let outcome = round
            .until(|node, reply| {
                count.add(self.said(node, &links, &reply));
                count.outcome()
            })
            .await;
        // What a node keeps though it was given back is in the way until its ttl is over.
        round.see_to_its_end();
        match outcome {
            Some(Outcome::Done) => Ok(Release::Released),
            Some(Outcome::Gone) => Ok(Release::AlreadyLost),
            // Whoever can be asked has it no more, and whether the others had it nobody can tell.
            _ if count.is_answered() => Ok(Release::AlreadyLost),
            outcome => {
                let unknown = matches!(outcome, Some(Outcome::Unclear { unknown: true }));
                Err(self.lanes.without(&self.silent_ones(&links), unknown))
            }
        }
    }

    /// What a node said to something that acts by owner id.
    pub(super) fn said(&self, node: usize, links: &Links, reply: &Reply) -> Said {
        match (reply, reply.text()) {
            (Reply::Said(Value::Int(1)), _) | (_, Some("1")) => Said::Yes,
            (Reply::Said(Value::Int(_)), _) | (_, Some("0")) => Said::No,
            (_, Some(_)) => {
                self.meets_recovering(node, links);
                Said::NoVote
            }
            _ => Said::Nothing { unknown: reply.is_unknown() },
        }
    }

    /// Those who are to blame when too few nodes took part.
    pub(super) fn silent_ones(&self, links: &Links) -> Vec<usize> {
        let silent = |node: &usize| {
            let link = links[*node].as_ref();
            self.lanes.nodes[*node].is_aside() || !link.is_some_and(|link| link.is_open())
        };
        let silent: Vec<usize> = (0..links.len()).filter(silent).collect();
        if !silent.is_empty() {
            return silent;
        }
        // They answer, so those are to blame of whom something is known.
        let troubled = |node: &usize| self.lanes.nodes[*node].is_troubled();
        let troubled: Vec<usize> = (0..links.len()).filter(troubled).collect();
        if troubled.is_empty() { (0..links.len()).collect() } else { troubled }
    }

    /// After an attempt that could not get a majority: gives back where it was ours, and where it may yet be.
    pub(super) async fn give_back(&self, claim: &Claim, links: &Links, ballot: &Ballot) {
        let request = self.retraction(claim);
        let sent = self.clock.now();
        for (node, link) in links.iter().enumerate() {
            // Nobody waits for those who have not answered. What they are told arrives behind what they were asked.
            if let (None | Some(Vote::None { unknown: true }), Some(link)) = (ballot.vote(node), link) {
                let (link, request) = (link.clone(), request.to(link));
                // An orphan would end with its ttl.
                self.lanes.run_errand(async move { drop(link.query::<Value>(request).await) });
            }
        }
        let ours = |node: usize| matches!(ballot.vote(node), Some(Vote::Ok { .. }));
        let mut round = Round::new(&self.lanes, links, sent, &request, ours);
        // A node that does not answer now may keep an orphan, which ends with its ttl.
        let _: Option<()> = round.until(|_, _| None).await;
    }

    /// After an attempt that came to nothing: gives back everywhere.
    pub(super) async fn give_back_all(&self, claim: &Claim, links: &Links) {
        self.give_back_from(claim, links, |_| true).await;
    }

    /// The same on those nodes alone that are `meant`.
    pub(super) async fn give_back_from(&self, claim: &Claim, links: &Links, meant: impl Fn(usize) -> bool) {
        let request = self.retraction(claim);
        let mut round = Round::new(&self.lanes, links, self.clock.now(), &request, meant);
        let _: Option<()> = round.until(|_, _| None).await;
    }

    /// Remembers a claim whose outcome is unknown.
    pub(super) fn remember(&self, owner: OwnerId, links: Links) {
        let now = self.clock.now();
        let longest = self.lanes.max_ttl() * 2 + REMEMBERED;
        let mut unanswered = self.unanswered();
        // Whoever was to withdraw them has given up: they have ended by themselves.
        unanswered.retain(|_, (since, _)| now.since(*since) < longest);
        unanswered.entry(owner).or_insert_with(|| (now, Vec::new())).1.push(links);
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that nothing of a claim is left on a majority.
    pub(super) async fn withdraw_claim(&self, claim: &Claim) -> Result<()> {
        let sent_over =
            self.unanswered().get(&claim.owner).map(|(_, links)| links.clone()).unwrap_or_default();
        let request = self.retraction(claim);
        let mut withdrawals: FuturesUnordered<_> = (0..self.lanes.nodes.len())
            .map(|node| {
                let older = sent_over.iter().filter_map(|links| links[node].clone()).collect();
                // By tasks of their own: when a majority has answered, the others are still to be told.
                let told = tokio::spawn(withdraw_from(self.lanes.clone(), node, older, request.clone()));
                async move { (node, told.await) }
            })
            .collect();
        let (mut confirmed, mut failed, mut unknown) = (0, Vec::new(), false);
        while let Some((node, told)) = withdrawals.next().await {
            match told {
                Ok(Ok(())) => confirmed += 1,
                Ok(Err(trouble)) => {
                    unknown |= trouble.is_unknown();
                    self.lanes.nodes[node].note(trouble);
                    failed.push(node);
                }
                // Its runtime is ending.
                Err(_) => failed.push(node),
            }
            if confirmed >= self.lanes.majority() {
                self.unanswered().remove(&claim.owner);
                return Ok(());
            }
        }
        Err(self.lanes.without(&failed, unknown))
    }
}

/// Withdraws a claim from one node: behind its acquire, on the same connection, or, if that is dead, after it is surely
/// closed on both sides.
async fn withdraw_from(
    lanes: Arc<Lanes>,
    node: usize,
    older: Vec<Arc<Link>>,
    request: Question,
) -> Result<(), Trouble> {
    let mut confirmed = false;
    for link in older {
        if link.is_open() && link.query_within::<Value>(BEHIND, request.to(&link)).await.is_ok() {
            confirmed = true;
            continue;
        }
        let here = lanes.link_to(node).await?;
        cut(&link, &here).await?;
        here.query::<Value>(request.to(&here)).await?;
        confirmed = true;
    }
    if !confirmed {
        let here = lanes.link_to(node).await?;
        here.query::<Value>(request.to(&here)).await?;
    }
    Ok(())
}
