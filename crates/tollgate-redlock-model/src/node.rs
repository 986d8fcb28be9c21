//! One node: its data, and the scripts on it as pure functions. What each says is §"The protocol" of `main.rs`.

use crate::rules::Rules;

/// A fencing token. Zero is nobody's.
pub(crate) type Token = u8;
/// The id of one attempt to take the lock.
pub(crate) type Id = u8;

/// The lock as it stands on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lock {
    pub(crate) id: Id,
    pub(crate) token: Token,
    /// Taken without a script, marked by a ~: nobody asked whether the node may stand at this token.
    pub(crate) plain: bool,
}

impl Lock {
    fn is_trusted(self, rules: &Rules) -> bool {
        !self.plain || !rules.scripts_distrust_plain_locks
    }
}

/// What a node keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Which start of the server this is.
    run: u8,
    /// The start for which `member` was written.
    member: u8,
    /// F: the largest token this lock ever had here.
    pub(crate) floor: Token,
    /// G: no token of any lock may be given at or below it.
    pub(crate) general: Token,
    /// L.
    pub(crate) lock: Option<Lock>,
}

/// What a script answers. BUSY, NO, GONE and RECOVERING are one here: none of them is a vote, and a client that
/// may give up or start over at any moment needs no reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok(Token),
    Refused,
}

impl Node {
    /// A node whose `member` was written when it was set up, and where some client got as far as `floor`.
    pub(crate) fn new(floor: Token) -> Self {
        Self { run: 0, member: 0, floor, general: 0, lock: None }
    }

    pub(crate) fn votes(&self, rules: &Rules) -> bool {
        self.member == self.run || !rules.run_id_is_checked
    }

    pub(crate) fn was_lost(&self) -> bool {
        self.run > 0
    }

    pub(crate) fn acquire(&mut self, rules: &Rules, id: Id, hint: Token) -> Answer {
        if !self.votes(rules) {
            return Answer::Refused;
        }
        match self.lock {
            Some(lock) if lock.id == id && lock.is_trusted(rules) => Answer::Ok(lock.token),
            Some(_) => Answer::Refused,
            None => {
                let general = if rules.acquire_heeds_general { self.general } else { 0 };
                self.floor = self.floor.max(general).max(hint) + 1;
                self.lock = Some(Lock { id, token: self.floor, plain: false });
                Answer::Ok(self.floor)
            }
        }
    }

    pub(crate) fn commit(&mut self, rules: &Rules, id: Id, token: Token) -> Answer {
        let Some(lock) = self.lock.filter(|lock| lock.id == id && self.votes(rules)) else {
            return Answer::Refused;
        };
        let rises = self.floor.max(self.general) < token;
        let stands = lock.token == token && lock.is_trusted(rules);
        if !stands && !rises && rules.commit_must_rise {
            return Answer::Refused;
        }
        if !rules.commit_never_lowers {
            self.floor = token;
        }
        self.stand(id, token)
    }

    pub(crate) fn renew(&mut self, rules: &Rules, id: Id, token: Token) -> Answer {
        if self.lock.is_none_or(|lock| lock.id != id) || !self.votes(rules) {
            return Answer::Refused;
        }
        self.stand(id, token)
    }

    pub(crate) fn heal(&mut self, rules: &Rules, id: Id, token: Token) -> Answer {
        if self.lock.is_some() || !self.votes(rules) {
            return Answer::Refused;
        }
        self.stand(id, token)
    }

    fn stand(&mut self, id: Id, token: Token) -> Answer {
        self.lock = Some(Lock { id, token, plain: false });
        self.floor = self.floor.max(token);
        Answer::Ok(token)
    }

    pub(crate) fn release(&mut self, rules: &Rules, id: Id) -> Answer {
        match self.lock {
            Some(lock) if lock.id == id && self.votes(rules) => {
                self.lock = None;
                Answer::Ok(lock.token)
            }
            _ => Answer::Refused,
        }
    }

    /// Restarts without its data, or with data from long ago: `member` may then be there, for another start.
    pub(crate) fn forget(&mut self) {
        *self = Self { run: self.run + 1, member: self.member, floor: 0, general: 0, lock: None };
    }

    /// What a recovery reads.
    pub(crate) fn highest(&self) -> Token {
        self.floor.max(self.general)
    }

    /// G only ever rises, whoever writes it.
    pub(crate) fn raise(&mut self, general: Token) {
        self.general = self.general.max(general);
    }

    /// The last step of a recovery: it votes again.
    pub(crate) fn join(&mut self, general: Token) {
        self.raise(general);
        self.member = self.run;
    }
}
