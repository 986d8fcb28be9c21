//! What must hold after every step, judged by what clients were answered and by their own deadlines in real time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tollgate_core::{Mode, Token};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a client believes to hold.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) lock: u64,
    pub(crate) mode: Mode,
    pub(crate) token: Token,
    /// The client's deadline, in real nanoseconds.
    pub(crate) until: u64,
    pub(crate) lock_delay: u64,
    /// When the claim was first asked for.
    pub(crate) asked_at: u64,
}

/// Knows everything that was answered.
#[derive(Default)]
pub(crate) struct Judge {
    /// By claim.
    pub(crate) beliefs: BTreeMap<u128, Belief>,
    /// Tokens that were answered, with the claim of each.
    tokens: BTreeMap<(u64, Token), u128>,
    /// The highest token of each lock that an acquire was answered which began after the one before was answered.
    highest: BTreeMap<u64, (Token, u64)>,
    broken: BTreeSet<(u64, Token)>,
    /// Grants that an operator ended by force, whatever their holders are doing.
    forced: BTreeSet<(u64, Token)>,
    marks: BTreeMap<u64, Token>,
    /// For a lock whose holder was lost with a lock-delay: from when to when nothing is granted that is asked for then.
    delayed: BTreeMap<u64, (u64, u64)>,
}

impl Judge {
    /// A client was answered that it holds a lock.
    pub(crate) fn granted(
        &mut self,
        owner: u128,
        belief: Belief,
        asked_at: u64,
        now: u64,
    ) -> Result<(), Violation> {
        let Belief { lock, mode, token, until, .. } = belief;
        let is_new = !self.tokens.contains_key(&(lock, token));
        match self.tokens.insert((lock, token), owner) {
            Some(other) if other != owner => {
                return Err(Violation(format!("lock {lock}: token {token} was given to two claims")));
            }
            Some(_) => {}
            None => {
                if let Some((highest, told_at)) = self.highest.get(&lock)
                    && token < *highest
                    && asked_at > *told_at
                {
                    return Err(Violation(format!("lock {lock}: token {token} was given after {highest}")));
                }
                if self.highest.get(&lock).is_none_or(|(highest, _)| token > *highest) {
                    self.highest.insert(lock, (token, now));
                }
            }
        }
        if until <= now || self.forced.contains(&(lock, token)) {
            self.beliefs.remove(&owner);
            return Ok(());
        }
        if let Some((lost, until)) = self.delayed.get(&lock)
            && is_new
            && asked_at > *lost
            && now < *until
        {
            return Err(Violation(format!(
                "lock {lock}: granted during the lock-delay of a holder that was lost"
            )));
        }
        for (other, held) in &self.beliefs {
            if *other != owner && held.lock == lock && held.until > now && !mode.joins([held.mode]) {
                return Err(Violation(format!(
                    "lock {lock}: two holders, with token {} until {} and token {token} until {until}, at {now}",
                    held.token, held.until
                )));
            }
        }
        self.beliefs.insert(owner, belief);
        Ok(())
    }

    /// A client believes no longer: it released, or stopped.
    pub(crate) fn left(&mut self, owner: u128) -> Option<Belief> {
        self.beliefs.remove(&owner)
    }

    /// A client was answered that its lock is lost, though its own deadline is not over.
    /// Grants that were asked for before `forgot_at` may have been forgotten.
    pub(crate) fn lost_early(&mut self, owner: u128, now: u64, forgot_at: u64) -> Result<(), Violation> {
        let Some(belief) = self.beliefs.remove(&owner) else { return Ok(()) };
        let is_broken = self.broken.contains(&(belief.lock, belief.token));
        if belief.until > now && !is_broken && belief.asked_at > forgot_at {
            return Err(Violation(format!(
                "lock {}, token {}: the grant was forgotten at {now}, its deadline is {}",
                belief.lock, belief.token, belief.until
            )));
        }
        Ok(())
    }

    /// Holders whose deadline passed without a release: nothing may be granted for their lock-delay.
    pub(crate) fn expired(&mut self, now: u64) {
        let over: Vec<u128> =
            self.beliefs.iter().filter(|(_, belief)| belief.until <= now).map(|(owner, _)| *owner).collect();
        for owner in over {
            if let Some(belief) = self.beliefs.remove(&owner)
                && belief.lock_delay > 0
                // A reader that is lost is still in for the server, and lets other readers in.
                && belief.mode == Mode::Exclusive
            {
                // The server's clock may run faster.
                let until = belief.until + belief.lock_delay / 100 * 97;
                self.delayed.insert(belief.lock, (belief.until, until));
            }
        }
    }

    /// The server was told to break a lock by force: the operator takes the risk that its holder goes on.
    pub(crate) fn forced(&mut self, lock: u64, token: Token) {
        self.forced.insert((lock, token));
        self.beliefs.retain(|_, belief| (belief.lock, belief.token) != (lock, token));
    }

    /// The server says that a claim is granted.
    pub(crate) fn answers(&self, lock: u64, token: Token) -> Result<(), Violation> {
        if self.broken.contains(&(lock, token)) {
            return Err(Violation(format!("lock {lock}, token {token}: it was broken, and is held again")));
        }
        Ok(())
    }

    /// An operator was answered that a lock is broken.
    pub(crate) fn broken(&mut self, lock: u64, token: Token) {
        self.broken.insert((lock, token));
        self.beliefs.retain(|_, belief| (belief.lock, belief.token) != (lock, token));
    }

    /// A client was answered that its token is admitted.
    pub(crate) fn admitted(
        &mut self,
        resource: u64,
        token: Token,
        asked: Option<Token>,
    ) -> Result<(), Violation> {
        let mark = self.marks.entry(resource).or_insert(token);
        if asked.is_some_and(|before| token < before) {
            return Err(Violation(format!("resource {resource}: {token} is admitted below the mark {mark}")));
        }
        *mark = (*mark).max(token);
        Ok(())
    }

    /// The mark that was answered so far.
    pub(crate) fn mark(&self, resource: u64) -> Option<Token> {
        self.marks.get(&resource).copied()
    }
}
