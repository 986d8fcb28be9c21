//! Taking a lock that nobody has without a script, which is the way of most locks: plain commands cost a node half.
//!
//! The client proposes one token to all nodes. Each takes the lock if it is free there, keeps the largest token, and says
//! whether this was larger than all before: it says so of a token once, so two grants cannot have the same. What comes of
//! it is all or nothing; where a majority does not agree, it is given back, and the scripts of `acquire.rs` find out more.

use std::io::Write;
use std::sync::atomic::Ordering;

use redis::{Cmd, Value};
use tollgate_core::{Attempt, Claim, Moment, Result, Token};

use crate::redlock::acquire::{Ended, Request, UnderWay};
use crate::redlock::backend::RedlockBackend;
use crate::redlock::lanes::Links;
use crate::redlock::link::Link;
use crate::redlock::quorum::{Ballot, Verdict, Vote};
use crate::redlock::round::{Reply, Round, text};

/// How far what was seen may be above the nodes' clocks to be proposed to other locks, too: as far as recoveries lead.
const AHEAD: u64 = 240_000_000;

/// No lock moves tokens up so far at once.
const A_RECOVERY: u64 = 60_000_000;

impl RedlockBackend {
    /// `None` if it is not to be had like that.
    pub(super) async fn take(&self, claim: &Claim) -> Result<Option<Attempt>> {
        let before = self.highest.load(Ordering::Relaxed);
        let taken = self.take_once(claim).await?;
        // A recovery has moved all tokens up: now it is known how far.
        if taken.is_none() && self.highest.load(Ordering::Relaxed) > before.saturating_add(A_RECOVERY) {
            return self.take_once(claim).await;
        }
        Ok(taken)
    }

    async fn take_once(&self, claim: &Claim) -> Result<Option<Attempt>> {
        let links = self.lanes.links().await?;
        if self.lanes.has_met_non_voter() {
            self.recovery.start();
        }
        let sent = self.clock.now();
        let Some(token) = self.proposal(&links) else { return Ok(None) };
        let request = Request::new(self, claim, sent)?;
        let mut under_way = UnderWay::new(self, claim.owner, &links);
        let mut ballot = Ballot::new(links.len());
        // Where it may have been taken by this request: everywhere but where somebody says that it was not.
        let mut taken = vec![true; links.len()];
        let mut remembered = self.remembered.has(&request.keys[0], sent);
        let taking = Taking::new(&request, token, remembered);
        let mut round = Round::of_several(&self.lanes, &links, sent, |link| taking.to(link));
        let verdict = round
            .until(|node, reply| {
                taken[node] = may_have_taken(&reply);
                remembered &= !may_have_forgotten(&reply);
                ballot.cast(node, self.plain_vote(node, &links, &reply, token, sent));
                // A grant needs no more; what fails is given back where it was taken, so everybody is heard.
                ballot.verdict().filter(|verdict| matches!(verdict, Verdict::Granted { .. }))
            })
            .await
            .or_else(|| ballot.verdict());
        drop(round);
        if taking.remember.is_some() {
            self.remembered.note(&request.keys[0], sent);
        } else if !remembered {
            self.remembered.forget(&request.keys[0]);
        }
        match verdict {
            Some(Verdict::Granted { token, since }) => {
                let ended = self.granted(claim, &links, token, since, sent).await?;
                under_way.settle();
                return Ok(match ended {
                    Ended::With(attempt) => Some(attempt),
                    Ended::Overtaken(_) | Ended::Undecided(_) => None,
                });
            }
            _ => self.give_back_from(claim, &links, |node| taken[node]).await,
        }
        if let Some(Verdict::TooFew { unknown }) = verdict {
            return Err(self.too_few(&ballot, unknown));
        }
        self.contended.note(&request.keys[0], sent);
        under_way.settle();
        Ok(None)
    }

    /// A token that is most likely larger than all: the time of the node in the middle, so that no single clock leads.
    fn proposal(&self, links: &Links) -> Option<Token> {
        let mut times: Vec<u64> = links.iter().flatten().map(|link| link.time()).collect();
        times.sort_unstable();
        let time = times.get(times.len() / 2)?;
        let start = links.iter().flatten().map(|link| link.g + 1).fold(*time, u64::max);
        let seen = self.highest.load(Ordering::Relaxed) + 1;
        let proposal = if seen <= time + AHEAD { seen.max(start) } else { start };
        self.highest.fetch_max(proposal, Ordering::Relaxed);
        Token::new(proposal).ok()
    }

    fn plain_vote(&self, node: usize, links: &Links, reply: &Reply, token: Token, sent: Moment) -> Vote {
        let Reply::Said(Value::Array(answers)) = reply else {
            return Vote::None { unknown: reply.is_unknown() };
        };
        let [taken, raised, member, ..] = answers.as_slice() else { return Vote::None { unknown: true } };
        let Some(g) = text(member).and_then(|g| g.parse::<u64>().ok()) else {
            if *member == Value::Nil {
                self.meets_recovering(node, links);
            }
            return Vote::None { unknown: false };
        };
        if g >= token.get() {
            // Tokens start above it here; the next proposal does, too.
            self.highest.fetch_max(g, Ordering::Relaxed);
            return Vote::Busy { free_in: None };
        }
        match (taken, raised) {
            (Value::Okay, Value::Int(1)) => Vote::Ok { token, since: sent },
            _ => Vote::Busy { free_in: None },
        }
    }
}

/// Whether a node may have the lock because of this request.
fn may_have_taken(reply: &Reply) -> bool {
    match reply {
        Reply::Said(Value::Array(answers)) => answers.first() != Some(&Value::Nil),
        Reply::Said(_) => true,
        Reply::Failed(trouble) => trouble.is_unknown(),
        Reply::NotAsked => false,
    }
}

/// Whether a node took the lock and did not raise its counter: perhaps it has none any more.
fn may_have_forgotten(reply: &Reply) -> bool {
    matches!(reply, Reply::Said(Value::Array(answers)) if matches!(&answers[..], [Value::Okay, Value::Int(0), ..]))
}

/// The commands, apart from who the node is. A counter is made, and told how long to live, by whoever has not done so
/// for a while. Others only raise it: one that a node has lost meanwhile would never end.
struct Taking {
    take: Cmd,
    raise: Cmd,
    remember: Option<Cmd>,
}

impl Taking {
    fn new(request: &Request, token: Token, remembered: bool) -> Self {
        let [lock, fence] = &request.keys;
        // The mark keeps scripts from taking it for a vote: whether the token was large enough, only this client knows.
        let mut record = Vec::with_capacity(64 + request.rest.len());
        // To write into memory does not fail.
        let _ = write!(record, "{} ~{token}", request.owner);
        record.extend_from_slice(&request.rest);
        let mut take = Cmd::with_capacity(6, lock.len() + record.len() + 24);
        take.arg("SET").arg(lock).arg(record).arg("NX").arg("PX").arg(request.ttl);
        let mut raise = Cmd::with_capacity(6, fence.len() + 32);
        raise.arg("ZADD").arg(fence);
        if remembered {
            raise.arg("XX");
        }
        raise.arg("GT").arg("CH").arg(token.get()).arg("f");
        let remember = (!remembered).then(|| {
            let mut remember = Cmd::new();
            remember.arg("EXPIRE").arg(fence).arg(crate::acquire::REMEMBERED);
            remember
        });
        Self { take, raise, remember }
    }

    fn to(&self, link: &Link) -> Vec<Cmd> {
        let mut member = Cmd::with_capacity(2, link.member.len() + 3);
        member.arg("GET").arg(&link.member);
        let mut commands = Vec::with_capacity(4);
        commands.extend([self.take.clone(), self.raise.clone(), member]);
        commands.extend(self.remember.clone());
        commands
    }
}
