//! Deadlock policies on engines that have a queue and know nothing of them: everything is decided by what claims show of
//! themselves, by those who wait.
//!
//! A claim shows its party's age from the moment it is in the queue, and as long as it keeps its place nobody gets ahead of it:
//! so wait-die looks at once, and then only now and then, for a place that was lost in a stop is taken anew at the end. By
//! wound-wait an older one that comes later matters, too: whoever waits keeps looking.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_types::{Age, Conflict, Mode, OnDeadlock, OwnerId, PartyId, Token};

use crate::backend::{Backend, RevokeMode};
use crate::capabilities::Liveness;
use crate::claim::{Claim, Details};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::Grant;
use crate::party::PartyHandle;
use crate::state::LockState;

/// How long after an acquire was sent its claim is first looked for.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The longest pause before a claim that is not in the queue yet is looked for again.
const NOT_THERE_YET: Duration = Duration::from_millis(250);

/// How long a claim by wound-wait waits before it looks again who came, and one by wait-die before it looks whether it still
/// has its place: longer in a crowd, which is read at every look.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOK_BACK: Duration = Duration::from_secs(1);
const LOOK_AT_LEAST: Duration = Duration::from_secs(10);

/// How many looks in a row must show a claim's own party ahead of it: it may have dropped a guard a moment ago.
const REALLY_ITSELF: u32 = 4;

/// What a claim with a party shows of itself, for those with a deadlock policy.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-stake").await?;
/// let guard = locks.lock("a").acquire().await?;
/// let state = locks.inspect("a").await?.expect("it is held");
/// assert_eq!(state.holders[0].details.stake, None, "it has no party");
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stake {
    /// Whose claim it is.
    pub party: PartyId,
    /// Since when that party has been claiming.
    pub age: Age,
    /// What it does about deadlocks.
    pub on_deadlock: OnDeadlock,
    /// Which of the party's claims it is.
    pub claim: u32,
}

impl Stake {
    /// The stake of a claim that was shown elsewhere, for backends.
    #[doc(hidden)]
    pub fn shown(party: PartyId, age: Age, on_deadlock: OnDeadlock, claim: u32) -> Self {
        Self { party, age, on_deadlock, claim }
    }

    /// The party, its age, its policy, and which of its claims it is, for backends.
    #[doc(hidden)]
    pub fn parts(&self) -> (PartyId, Age, OnDeadlock, u32) {
        (self.party, self.age, self.on_deadlock, self.claim)
    }

    /// What a new claim of `party` has at stake. The party gets its age from the engine, if it has none.
    pub(crate) async fn of(
        backend: &dyn Backend,
        party: &PartyHandle,
        on_deadlock: OnDeadlock,
    ) -> Result<Self> {
        if party.stamp().age.is_none() {
            party.note(backend.age().await?);
        }
        let age = party.stamp().age.expect("it was noted");
        // A few bits are enough to tell one party's claims apart.
        let claim = OwnerId::random().to_bits() as u32;
        Ok(Self { party: party.stamp().id, age, on_deadlock, claim })
    }

    fn seniority(&self) -> (Age, PartyId) {
        (self.age, self.party)
    }
}

/// Waits for the lock as long as the claim's policy allows.
pub(crate) async fn acquire(backend: &dyn Backend, clock: &dyn Clock, claim: &Claim) -> Result<Grant> {
    let stake = claim.details.stake.as_ref().filter(|stake| stake.on_deadlock != OnDeadlock::Timeout);
    let Some(stake) = stake else { return backend.acquire(claim).await };
    tokio::select! {
        biased;
        grant = backend.acquire(claim) => grant,
        error = stand_by(backend, clock, claim, stake) => Err(error),
    }
}

/// Ends when the claim must not wait any longer.
async fn stand_by(backend: &dyn Backend, clock: &dyn Clock, claim: &Claim, stake: &Stake) -> Error {
    // Where locks hang on connections, those who are there are only seen late.
    let keeps_its_place = backend.capabilities().liveness != Liveness::Process;
    let again =
        if stake.on_deadlock == OnDeadlock::WaitDie && keeps_its_place { LOOK_BACK } else { LOOK_AGAIN };
    let (mut pause, mut itself) = (FIRST_LOOK, 0);
    loop {
        clock.sleep_until(clock.now() + pause).await;
        pause = (pause * 2).min(NOT_THERE_YET);
        let state = match backend.inspect(&claim.name).await {
            Ok(Some(state)) => state,
            Ok(None) => continue,
            // The acquire itself waits through it.
            Err(error) if error.is_retryable() => continue,
            Err(error) => return error,
        };
        let Some(queue) = Queue::around(&state, stake) else { continue };
        match queue.conflict(claim.mode, stake) {
            Some(Conflict::Itself) if itself < REALLY_ITSELF => {
                itself += 1;
                continue;
            }
            Some(conflict) => return conflict.into(),
            None => itself = 0,
        }
        for token in queue.wounded(claim.mode, stake) {
            // A younger holder that was only asked would go on waiting for what the older party has.
            match backend.revoke(&claim.name, token, RevokeMode::Force).await {
                // A client that may not break locks cannot make the younger leave.
                Err(error) if !error.is_retryable() => return error,
                // Whether it was done, the next look shows.
                _ => {}
            }
        }
        let tens = u32::try_from((queue.ahead.len() + queue.behind.len()) / 10).unwrap_or(u32::MAX);
        pause = again.saturating_mul(tens.saturating_mul(tens).saturating_add(1)).min(LOOK_AT_LEAST);
    }
}

/// The queue as one who waits in it sees it.
struct Queue<'a> {
    ahead: Vec<Rival<'a>>,
    behind: Vec<Rival<'a>>,
}

struct Rival<'a> {
    mode: Mode,
    /// The token of one who is in.
    token: Option<Token>,
    stake: Option<&'a Stake>,
}

impl<'a> Queue<'a> {
    /// `None` if the claim does not wait, or not yet.
    fn around(state: &'a LockState, own: &Stake) -> Option<Self> {
        let rival = |mode, token, details: &'a Details| Rival { mode, token, stake: details.stake.as_ref() };
        let place = state.waiters.iter().position(|waiter| waiter.details.stake.as_ref() == Some(own))?;
        let (ahead, behind) = (&state.waiters[..place], &state.waiters[place + 1..]);
        let waiters = |waiters: &'a [crate::state::Waiter]| {
            waiters.iter().map(move |waiter| rival(waiter.mode, None, &waiter.details))
        };
        let holders = state.holders.iter().map(|holder| rival(holder.mode, holder.token, &holder.details));
        Some(Self { ahead: holders.chain(waiters(ahead)).collect(), behind: waiters(behind).collect() })
    }

    /// Why a claim of this mode must not wait here.
    fn conflict(&self, mode: Mode, own: &Stake) -> Option<Conflict> {
        let ahead = self.ahead.iter().filter(|rival| mode.may_wait_for(rival.mode));
        let wounds = own.on_deadlock == OnDeadlock::WoundWait;
        let mut permits = 0;
        for Rival { mode: theirs, stake, token } in ahead {
            let Some(stake) = stake else { continue };
            if stake.party == own.party {
                permits += u32::from(*theirs == mode && token.is_some());
                // Of a semaphore's permits another one may come free, as long as not all of them are its own.
                if !wounds || *theirs != mode || mode.capacity() == 1 || permits >= mode.capacity() {
                    return Some(Conflict::Itself);
                }
            }
            if !wounds && stake.seniority() < own.seniority() {
                return Some(Conflict::Elder(stake.party));
            }
        }
        let behind = self.behind.iter().filter(|rival| rival.mode.may_wait_for(mode));
        let elder = behind.filter_map(|rival| rival.stake).find(|stake| {
            own.on_deadlock == OnDeadlock::WoundWait
                && stake.on_deadlock == OnDeadlock::WoundWait
                && stake.seniority() < own.seniority()
        });
        elder.map(|stake| Conflict::Wounded(stake.party))
    }

    /// The younger ones who are in the way and in, and have agreed to be told to leave: of a semaphore's holders only as many
    /// as it takes, the youngest.
    fn wounded(&self, mode: Mode, own: &Stake) -> Vec<Token> {
        let (mut wounded, mut beside, mut staying) = (Vec::new(), Vec::new(), 0);
        for rival in self.ahead.iter().filter(|rival| mode.may_wait_for(rival.mode)) {
            let agreed = rival.stake.filter(|stake| stake.on_deadlock == OnDeadlock::WoundWait);
            let younger = agreed.map(Stake::seniority).filter(|other| *other > own.seniority());
            match (younger, rival.token) {
                (Some(other), Some(token)) if rival.mode == mode => beside.push((other, token)),
                (Some(_), Some(token)) => wounded.push(token),
                // One who waits makes way by itself.
                (Some(_), None) => {}
                (None, _) => staying += u32::from(rival.mode == mode),
            }
        }
        beside.sort_unstable();
        let room = (mode.capacity() - 1).saturating_sub(staying) as usize;
        wounded.extend(beside.into_iter().skip(room).map(|(_, token)| token));
        wounded
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        // Who is in its own way stays so.
        Self::new(ErrorKind::Deadlock, conflict.to_string()).retryable(conflict != Conflict::Itself)
    }
}
