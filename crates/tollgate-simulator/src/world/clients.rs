//! What clients do: they take locks, renew, release, give up, pause and hear of answers late.

use tollgate_server::table::{Answer, Granted, Request};

use super::{By, Event, LOCKS, MILLI, PATIENCE, Sent, World};
use crate::client::{Doing, SECOND, Wanted};
use crate::judge::{Belief, Violation};
use crate::mutant::Mutant;

impl World {
    /// A client does what is next for it.
    pub(super) fn act(&mut self, number: usize) {
        let pause = self.random.between(50, 700) * MILLI;
        self.after(pause, Event::Client(number));
        if self.now < self.clients[number].paused_until {
            return;
        }
        let open = self.clients[number].open.filter(|(_, sent)| self.now < sent + PATIENCE);
        match self.clients[number].doing.clone() {
            Doing::Idle => {
                if self.is_faulty() && self.random.one_in(2) {
                    let claim = Wanted::random(&mut self.random, LOCKS, self.now);
                    let gives_up = self.now + self.random.between(1, 25) * SECOND;
                    self.clients[number].doing = Doing::Acquiring { claim: claim.clone(), gives_up };
                    self.ask(number, &claim, claim.acquire(gives_up - self.now), false);
                }
            }
            Doing::Acquiring { claim, gives_up } => {
                if self.now >= gives_up || self.random.one_in(40) {
                    self.withdraw(number, claim);
                } else if open.is_none() {
                    self.close_open(number);
                    self.ask(number, &claim, claim.acquire(gives_up - self.now), false);
                }
            }
            Doing::Holding { claim, release_at, .. } => {
                let until = self.judge.beliefs.get(&claim.owner).map(|belief| belief.until);
                if until.is_none_or(|until| until <= self.now) {
                    // It stops at its own deadline, and releases nothing that it has lost.
                    self.clients[number].doing = Doing::Idle;
                } else if self.now >= release_at {
                    if self.mutant == Some(Mutant::ReleasesAndGoesOn) && self.random.one_in(2) {
                        self.ask(number, &claim, Request::Release(claim.key()), false);
                        return;
                    }
                    self.judge.left(claim.owner);
                    self.clients[number].doing = Doing::Releasing { claim: claim.clone() };
                    self.ask(number, &claim, Request::Release(claim.key()), false);
                } else if open.is_none() || self.random.one_in(3) {
                    let times = if self.random.one_in(8) { 3 } else { 1 };
                    self.ask(number, &claim, claim.extend(times), true);
                }
            }
            Doing::Withdrawing { claim } if open.is_none() => {
                self.ask(number, &claim, Request::Withdraw(claim.key()), false);
            }
            Doing::Releasing { claim } if open.is_none() => {
                self.ask(number, &claim, Request::Release(claim.key()), false);
            }
            Doing::Withdrawing { .. } | Doing::Releasing { .. } => {}
        }
    }

    pub(super) fn withdraw(&mut self, number: usize, claim: Wanted) {
        self.close_open(number);
        self.clients[number].doing = Doing::Withdrawing { claim: claim.clone() };
        self.ask(number, &claim, Request::Withdraw(claim.key()), false);
    }

    /// Sends a request of a client.
    pub(super) fn ask(&mut self, number: usize, claim: &Wanted, request: Request, is_extend: bool) {
        let by = By::Claim { client: number, lock: claim.lock, owner: claim.owner, is_extend };
        let id = self.send(by, request);
        self.clients[number].open = Some((id, self.now));
    }

    /// The client hangs up; the server may hear of it, sooner or later.
    pub(super) fn close_open(&mut self, number: usize) {
        if let Some((id, _)) = self.clients[number].open.take()
            && self.random.one_in(2)
        {
            let delay = self.delay();
            self.after(delay, Event::Closed { id });
        }
    }

    /// A client, or the operator, is answered.
    pub(super) fn hear(&mut self, id: u64, answer: Answer) -> Result<(), Violation> {
        let Some(Sent { at, by }) = self.sent.get(&id).cloned() else { return Ok(()) };
        self.tell(|| format!("{id} is answered: {answer:?}"));
        match by {
            By::Break { lock, token } => {
                match answer {
                    Answer::Broken => self.judge.broken(lock, token),
                    Answer::Asked => {
                        self.revoked.entry((lock, token)).or_insert(self.now);
                    }
                    _ => {}
                }
                Ok(())
            }
            By::Mark { lock, token, mark } => match answer {
                Answer::Admitted { .. } => self.judge.admitted(lock, token, mark),
                _ => Ok(()),
            },
            By::Claim { client, owner, is_extend, .. } => {
                if self.now < self.clients[client].paused_until {
                    // It reads the answer when it goes on.
                    let until = self.clients[client].paused_until;
                    self.at(until, Event::ToClient { id, answer });
                    return Ok(());
                }
                if self.clients[client].open.is_some_and(|(open, _)| open == id) {
                    self.clients[client].open = None;
                }
                self.hear_of_claim(client, owner, at, is_extend, answer)
            }
        }
    }

    pub(super) fn hear_of_claim(
        &mut self,
        number: usize,
        owner: u128,
        sent: u64,
        is_extend: bool,
        answer: Answer,
    ) -> Result<(), Violation> {
        let doing = self.clients[number].doing.clone();
        match (doing, answer) {
            (Doing::Acquiring { claim, .. }, Answer::Granted(granted)) if claim.owner == owner => {
                self.believe(number, claim, granted, sent)
            }
            (Doing::Holding { claim, .. }, Answer::Granted(granted)) if claim.owner == owner => {
                let known = self.revoked.get(&(claim.lock, granted.token));
                if is_extend && known.is_some_and(|known| sent > *known) {
                    return Err(Violation(format!("lock {}: a revoked grant was extended", claim.lock)));
                }
                self.prolong(number, &claim, &granted, sent)
            }
            (Doing::Acquiring { claim, .. }, answer) if claim.owner == owner => {
                match answer {
                    Answer::Waiting { .. } => {}
                    Answer::Moved if self.mutant == Some(Mutant::DisplacedRequestWithdraws) => {
                        let by = By::Claim { client: number, lock: claim.lock, owner: 0, is_extend: false };
                        self.send(by, Request::Withdraw(claim.key()));
                    }
                    Answer::Moved => {}
                    _ => self.clients[number].doing = Doing::Idle,
                }
                Ok(())
            }
            (Doing::Holding { claim, .. }, Answer::Lost) if claim.owner == owner && is_extend => {
                self.clients[number].doing = Doing::Idle;
                self.judge.lost_early(owner, self.now, self.forgot_at)
            }
            (Doing::Holding { claim, .. }, Answer::Revoked) if claim.owner == owner => {
                // After its own deadline it has lost the lock, and releases nothing.
                let held = self.judge.left(owner).is_some();
                self.clients[number].doing = if held { Doing::Releasing { claim } } else { Doing::Idle };
                Ok(())
            }
            (
                Doing::Withdrawing { claim } | Doing::Releasing { claim },
                Answer::Withdrawn | Answer::Released { .. },
            ) if claim.owner == owner => {
                self.clients[number].doing = Doing::Idle;
                Ok(())
            }
            (Doing::Releasing { claim }, Answer::Lost) if claim.owner == owner && !is_extend => {
                self.clients[number].doing = Doing::Idle;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn believe(
        &mut self,
        number: usize,
        claim: Wanted,
        granted: Granted,
        sent: u64,
    ) -> Result<(), Violation> {
        self.report.grants += 1;
        let until = self.deadline(number, &granted, sent);
        let (now, token) = (self.now, granted.token);
        let belief = Belief {
            lock: claim.lock,
            mode: claim.mode,
            token,
            until,
            lock_delay: claim.lock_delay,
            asked_at: claim.asked_at,
        };
        self.tell(|| format!("client {number} holds lock {} with {token} until {until}", claim.lock));
        self.judge.granted(claim.owner, belief, claim.asked_at, now)?;
        if until <= now {
            self.withdraw(number, claim);
            return Ok(());
        }
        if claim.mode == tollgate_core::Mode::Exclusive && self.random.one_in(2) {
            let mark = self.judge.mark(claim.lock);
            let request =
                Request::Admit { resource: format!("resource {}", claim.lock), token, raises: true };
            self.send(By::Mark { lock: claim.lock, token, mark }, request);
        }
        let release_at = now + self.random.below(3 * claim.ttl);
        self.clients[number].doing = Doing::Holding { claim, release_at };
        Ok(())
    }

    pub(super) fn prolong(
        &mut self,
        number: usize,
        claim: &Wanted,
        granted: &Granted,
        sent: u64,
    ) -> Result<(), Violation> {
        let until = self.deadline(number, granted, sent);
        let Some(belief) = self.judge.beliefs.get(&claim.owner).cloned() else { return Ok(()) };
        if until > belief.until {
            self.judge.granted(claim.owner, Belief { until, ..belief }, claim.asked_at, self.now)?;
        }
        Ok(())
    }

    /// Until when a client believes a grant, in real time.
    pub(super) fn deadline(&self, number: usize, granted: &Granted, sent: u64) -> u64 {
        let from = if self.mutant == Some(Mutant::CountsFromTheAnswer) { self.now } else { sent };
        from + self.clients[number].rate.real(granted.valid.as_nanos() as u64)
    }
}
