//! Who holds or waits, as frames carry it.

use tollgate_types::{Age, OnDeadlock, PartyId};

use super::Malformed;
use super::reader::Reader;
use super::writer::Writer;

/// What people see of a holder or a waiter. Nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Who<'a> {
    /// The host's name.
    pub host: &'a str,
    /// The process.
    pub pid: u32,
    /// When it asked for the lock, by its wall clock, in milliseconds since 1970.
    pub since_ms: u64,
    /// What the program says of itself: keys and values.
    pub meta: Vec<(&'a str, &'a str)>,
    /// How often the holder has changed this.
    pub revision: u32,
    /// What claims with a deadlock policy need to know of it.
    pub stake: Option<Stake>,
}

/// What a claim with a party shows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stake {
    /// The party.
    pub party: PartyId,
    /// Since when the party has claims.
    pub age: Age,
    /// Its deadlock policy.
    pub on_deadlock: OnDeadlock,
    /// Which of the party's claims it is.
    pub claim: u32,
}

impl<'a> Who<'a> {
    pub(super) fn write(&self, to: &mut Writer<'_>) {
        to.text(self.host).u32(self.pid).u64(self.since_ms).u32(self.revision);
        to.u16(u16::try_from(self.meta.len()).unwrap_or(u16::MAX));
        for (key, value) in self.meta.iter().take(usize::from(u16::MAX)) {
            to.text(key).text(value);
        }
        to.option(self.stake, |to, stake| {
            to.u128(stake.party.to_bits()).u64(stake.age.0).on_deadlock(stake.on_deadlock).u32(stake.claim);
        });
    }

    pub(super) fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (host, pid, since_ms, revision) = (from.text()?, from.u32()?, from.u64()?, from.u32()?);
        let meta = from.list(|from| Ok((from.text()?, from.text()?)))?;
        let stake = from.option(|from| {
            Ok(Stake {
                party: from.party_id()?,
                age: Age(from.u64()?),
                on_deadlock: from.on_deadlock()?,
                claim: from.u32()?,
            })
        })?;
        Ok(Self { host, pid, since_ms, meta, revision, stake })
    }
}
