//! Deadlocks: what a claim does about them, and how one is told.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{LockName, PartyId};

/// What becomes of a claim whose waiting might never end, because somebody who waits for its party is ahead of it.
///
/// Everybody who takes the same locks should use the same policy. Claims of the same party never help each other out.
///
/// ```
/// # fn main() -> tollgate::Result<()> {
/// use tollgate::{ErrorKind, OnDeadlock, PartyHandle};
///
/// let locks = tollgate::blocking::connect("memory:doc-on-deadlock")?;
/// let party = PartyHandle::new();
/// let held = locks.lock("a").party(&party).acquire()?;
/// let again = locks.lock("a").party(&party).on_deadlock(OnDeadlock::Detect).acquire();
/// assert_eq!(again.unwrap_err().kind(), ErrorKind::Deadlock, "it would wait for itself");
/// # drop(held);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnDeadlock {
    /// It waits as long as it may.
    #[default]
    Timeout,
    /// The engine looks for parties that wait for each other in a circle, and tells the youngest of them.
    Detect,
    /// It waits only for younger parties. An older one ahead, and it gives up at once.
    WaitDie,
    /// It waits only for older parties. Younger ones ahead that have the same policy lose the lock or their place.
    WoundWait,
}

impl fmt::Display for OnDeadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timeout",
            Self::Detect => "detect",
            Self::WaitDie => "wait-die",
            Self::WoundWait => "wound-wait",
        })
    }
}

/// Why a claim must not wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// Each waits for a lock that the next one holds or is to get first, and the last for one of the first's.
    Cycle(Vec<Waits>),
    /// Wait-die: this older party is ahead.
    Elder(PartyId),
    /// Wound-wait: this older party came, and the claim made way.
    Wounded(PartyId),
    /// Its own party is ahead, and will not leave while it waits.
    Itself,
}

/// Somebody who waits, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// Who; `None` for a claim without a party.
    pub party: Option<PartyId>,
    /// For which lock.
    pub name: LockName,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(cycle) => {
                f.write_str("a deadlock: ")?;
                for (at, Waits { party, name }) in cycle.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    match party {
                        Some(party) => write!(f, "{comma}{party} waits for {name:?}")?,
                        None => write!(f, "{comma}a claim without a party waits for {name:?}")?,
                    }
                }
            }
            Self::Elder(party) => write!(
                f,
                "{party} is older and ahead in the queue, and under wait-die only the older party waits"
            )?,
            Self::Wounded(party) => write!(
                f,
                "{party} is older and wants this lock, and under wound-wait the older party goes first"
            )?,
            Self::Itself => f.write_str(
                "an earlier claim of the same party is ahead in the queue, so the party would wait for \
                 itself",
            )?,
        }
        f.write_str("; release what the party holds and start over with the same party")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadlock_names_everybody_in_the_circle() {
        let waits =
            |bits, name| Waits { party: Some(PartyId::from_bits(bits)), name: LockName::new(name).unwrap() };
        let told = Conflict::Cycle(vec![waits(0xaaaa_bbbb << 96, "b"), waits(1, "a")]).to_string();
        assert_eq!(
            told,
            "a deadlock: party aaaabbbb waits for \"b\", party 00000000 waits for \"a\"; release what the party holds and \
             start over with the same party"
        );
    }
}
