//! What the nodes' answers add up to. Pure: no clock, no connection, nothing that waits.

use std::time::Duration;

use tollgate_core::{Moment, Token};

/// How many of `nodes` decide.
pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What a node said to an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    /// It is ours there, with this token. Its life there counts from no earlier than `since`.
    Ok { token: Token, since: Moment },
    /// Somebody else has it there; `None` if that never ends by itself.
    Busy { free_in: Option<Duration> },
    /// It has no vote: it was not asked, restarted, refused, or did not answer. `unknown` if it may act all the same.
    None { unknown: bool },
}

/// What an acquire came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority stands at one token.
    Granted { token: Token, since: Moment },
    /// A majority is ours, at different tokens: all are to be brought to the highest.
    Commit { token: Token },
    /// So many nodes have it for other claims that no majority is left, whatever the others would say.
    Busy { retry_after: Option<Duration> },
    /// The nodes that vote do not agree, and those that do not vote could have made a majority. `unknown` if one of them
    /// may act all the same.
    Undecided { unknown: bool },
    /// Too few nodes vote. `unknown` if one of those that do not may act all the same.
    TooFew { unknown: bool },
}

/// The answers to one acquire, one place for each node.
#[derive(Debug)]
pub(crate) struct Ballot {
    votes: Vec<Option<Vote>>,
}

impl Ballot {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { votes: vec![None; nodes] }
    }

    pub(crate) fn cast(&mut self, node: usize, vote: Vote) {
        self.votes[node] = Some(vote);
    }

    pub(crate) fn vote(&self, node: usize) -> Option<Vote> {
        self.votes[node]
    }

    /// The verdict, as soon as no answer to come can change it for the better.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let enough = majority(self.votes.len());
        let (mut ok, mut busy, mut pending, mut absent, mut unknown) = (0, 0, 0, 0, false);
        let mut highest = Token::MIN;
        for vote in &self.votes {
            match vote {
                None => pending += 1,
                Some(Vote::Ok { token, .. }) => {
                    ok += 1;
                    highest = highest.max(*token);
                }
                Some(Vote::Busy { .. }) => busy += 1,
                Some(Vote::None { unknown: may_act }) => {
                    absent += 1;
                    unknown |= may_act;
                }
            }
        }
        if ok >= enough {
            return Some(self.agreement(enough).unwrap_or(Verdict::Commit { token: highest }));
        }
        if ok + pending >= enough {
            return None;
        }
        let most_without = self.votes.len() - enough;
        if busy > most_without {
            return Some(Verdict::Busy { retry_after: self.free_in(enough - ok) });
        }
        if absent > most_without {
            return Some(Verdict::TooFew { unknown });
        }
        // Those that have not answered yet may still say that it is busy.
        (busy + pending <= most_without).then_some(Verdict::Undecided { unknown })
    }

    /// The token at which a majority stands.
    fn agreement(&self, enough: usize) -> Option<Verdict> {
        self.votes.iter().flatten().find_map(|vote| {
            let Vote::Ok { token, .. } = *vote else { return None };
            let same = self.votes.iter().flatten().filter_map(|other| match other {
                Vote::Ok { token: theirs, since } if *theirs == token => Some(*since),
                _ => None,
            });
            let (count, since) =
                same.fold((0, Moment::MAX), |(count, first), since| (count + 1, first.min(since)));
            (count >= enough).then_some(Verdict::Granted { token, since })
        })
    }

    /// When so many of those who are busy have come free by themselves, if they ever do.
    fn free_in(&self, wanted: usize) -> Option<Duration> {
        let mut busy: Vec<Duration> = self
            .votes
            .iter()
            .flatten()
            .filter_map(|vote| match vote {
                Vote::Busy { free_in } => *free_in,
                _ => None,
            })
            .collect();
        busy.sort_unstable();
        busy.get(wanted - 1).copied()
    }
}

/// What a node said to something that acts by owner id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It was ours there, and it was done.
    Yes,
    /// It was not ours there.
    No,
    /// The node did it if there was something to do, but it has no vote.
    NoVote,
    /// It was not asked, refused, or did not answer. `unknown` if it may act all the same.
    Nothing { unknown: bool },
}

/// What a renewal, release or commit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A majority did it.
    Done,
    /// So many did not have it that no majority can have had it.
    Gone,
    /// Everybody has spoken, and it is neither: some had it, some did not, and the others cannot be asked.
    Unclear { unknown: bool },
}

/// The answers to something that acts by owner id.
#[derive(Debug)]
pub(crate) struct Count {
    nodes: usize,
    yes: usize,
    no: usize,
    silent: usize,
    no_vote: usize,
    unknown: bool,
}

impl Count {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, yes: 0, no: 0, silent: 0, no_vote: 0, unknown: false }
    }

    pub(crate) fn add(&mut self, said: Said) {
        match said {
            Said::Yes => self.yes += 1,
            Said::No => self.no += 1,
            Said::NoVote => self.no_vote += 1,
            Said::Nothing { unknown } => {
                self.silent += 1;
                self.unknown |= unknown;
            }
        }
    }

    /// The outcome, as soon as no answer to come can change it.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let enough = majority(self.nodes);
        if self.yes >= enough {
            return Some(Outcome::Done);
        }
        if self.no > self.nodes - enough {
            return Some(Outcome::Gone);
        }
        let heard = self.yes + self.no + self.silent + self.no_vote;
        (heard == self.nodes).then_some(Outcome::Unclear { unknown: self.unknown })
    }

    /// Whether a majority of nodes has answered, so that what acts by owner id is over there.
    pub(crate) fn is_answered(&self) -> bool {
        self.yes + self.no + self.no_vote >= majority(self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn ok(number: u64) -> Vote {
        Vote::Ok { token: token(number), since: Moment::from_nanos(number) }
    }

    const BUSY: Vote = Vote::Busy { free_in: Some(Duration::from_millis(7)) };
    const LOST: Vote = Vote::None { unknown: true };
    const DOWN: Vote = Vote::None { unknown: false };

    fn ballot(votes: &[Option<Vote>]) -> Ballot {
        Ballot { votes: votes.to_vec() }
    }

    /// Every ballot of `nodes` places, each pending or one of these.
    fn all(nodes: usize) -> Vec<Vec<Option<Vote>>> {
        let choices = [None, Some(ok(1)), Some(ok(2)), Some(BUSY), Some(LOST), Some(DOWN)];
        (0..nodes).fold(vec![Vec::new()], |ballots, _| {
            let longer = |votes: &Vec<Option<Vote>>| {
                let votes = votes.clone();
                choices.map(move |choice| [votes.clone(), vec![choice]].concat())
            };
            ballots.iter().flat_map(longer).collect()
        })
    }

    fn count(votes: &[Option<Vote>], like: impl Fn(&Vote) -> bool) -> usize {
        votes.iter().flatten().filter(|vote| like(vote)).count()
    }

    #[test]
    fn only_a_majority_at_one_token_is_a_grant() {
        for nodes in [3, 5] {
            for votes in all(nodes) {
                let at = |number| count(&votes, |vote| *vote == ok(number));
                let granted = [1, 2].into_iter().find(|number| at(*number) >= majority(nodes));
                match (ballot(&votes).verdict(), granted) {
                    (Some(Verdict::Granted { token: given, .. }), Some(number)) => {
                        assert_eq!(given, token(number), "{votes:?}");
                    }
                    (Some(Verdict::Granted { .. }), None) | (_, Some(_)) => panic!("{votes:?}"),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_verdict_comes_when_no_grant_is_possible_and_not_before() {
        for nodes in [3, 5] {
            for votes in all(nodes) {
                let oks = count(&votes, |vote| matches!(vote, Vote::Ok { .. }));
                let absent = count(&votes, |vote| matches!(vote, Vote::None { .. }));
                let pending = votes.iter().filter(|vote| vote.is_none()).count();
                let busy = count(&votes, |vote| *vote == BUSY);
                let may_act = count(&votes, |vote| *vote == LOST) > 0;
                match ballot(&votes).verdict() {
                    None => {
                        assert!(oks < majority(nodes), "{votes:?}");
                        let may_be_busy = nodes - busy >= majority(nodes)
                            && nodes - absent >= majority(nodes)
                            && nodes - busy - pending < majority(nodes);
                        assert!(oks + pending >= majority(nodes) || may_be_busy, "{votes:?}");
                    }
                    Some(Verdict::Granted { .. }) => assert!(oks >= majority(nodes), "{votes:?}"),
                    Some(Verdict::Commit { token: highest }) => {
                        assert!(oks >= majority(nodes) && highest == token(2), "{votes:?}");
                    }
                    Some(Verdict::Busy { .. }) => {
                        assert!(nodes - busy < majority(nodes), "a silent node could decide: {votes:?}");
                    }
                    Some(Verdict::Undecided { unknown }) => {
                        assert!(oks + pending < majority(nodes), "{votes:?}");
                        assert!(oks + pending + absent >= majority(nodes), "{votes:?}");
                        assert!(nodes - absent >= majority(nodes), "{votes:?}");
                        assert_eq!(unknown, may_act, "{votes:?}");
                    }
                    Some(Verdict::TooFew { unknown }) => {
                        assert!(nodes - absent < majority(nodes), "{votes:?}");
                        assert_eq!(unknown, may_act, "{votes:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_grant_lives_from_the_earliest_of_its_votes() {
        let vote = |since| Some(Vote::Ok { token: token(5), since: Moment::from_nanos(since) });
        let verdict = ballot(&[vote(30), vote(10), None]).verdict();
        assert_eq!(verdict, Some(Verdict::Granted { token: token(5), since: Moment::from_nanos(10) }));
    }

    #[test]
    fn a_retry_is_worth_it_when_a_majority_can_have_come_free() {
        let busy = |millis| Some(Vote::Busy { free_in: Some(Duration::from_millis(millis)) });
        let retry = |votes: &[Option<Vote>]| match ballot(votes).verdict() {
            Some(Verdict::Busy { retry_after }) => retry_after.map(|after| after.as_millis()),
            other => panic!("{other:?}"),
        };
        assert_eq!(retry(&[busy(30), busy(10), busy(20)]), Some(20));
        assert_eq!(retry(&[busy(30), busy(10), Some(ok(1))]), Some(10));
        let never = Some(Vote::Busy { free_in: None });
        assert_eq!(retry(&[never, never, busy(10)]), None);
        assert_eq!(retry(&[busy(30), busy(10), Some(DOWN)]), Some(30));
    }

    /// Every way in which so many nodes can have answered, in the order of their answers.
    fn every_count(nodes: usize, check: &mut dyn FnMut(&[Said], Option<Outcome>)) {
        let said = [
            Said::Yes,
            Said::No,
            Said::NoVote,
            Said::Nothing { unknown: true },
            Said::Nothing { unknown: false },
        ];
        let mut answers = vec![Vec::new()];
        for _ in 0..=nodes {
            for heard in &answers {
                let mut count = Count::new(nodes);
                heard.iter().for_each(|said| count.add(*said));
                check(heard, count.outcome());
            }
            let longer = |heard: &Vec<Said>| {
                let heard = heard.clone();
                said.map(move |said| [heard.clone(), vec![said]].concat())
            };
            answers = answers.iter().flat_map(longer).collect();
        }
    }

    #[test]
    fn an_outcome_needs_a_majority_for_it_or_for_its_impossibility() {
        for nodes in [3, 5] {
            every_count(nodes, &mut |heard, outcome| {
                let of = |like: Said| heard.iter().filter(|said| **said == like).count();
                let enough = majority(nodes);
                match outcome {
                    Some(Outcome::Done) => assert!(of(Said::Yes) >= enough, "{heard:?}"),
                    Some(Outcome::Gone) => assert!(nodes - of(Said::No) < enough, "{heard:?}"),
                    Some(Outcome::Unclear { unknown }) => {
                        assert!(of(Said::Yes) < enough && heard.len() == nodes, "{heard:?}");
                        assert_eq!(unknown, of(Said::Nothing { unknown: true }) > 0, "{heard:?}");
                    }
                    None => assert!(of(Said::Yes) < enough && heard.len() < nodes, "{heard:?}"),
                }
            });
        }
    }
}
