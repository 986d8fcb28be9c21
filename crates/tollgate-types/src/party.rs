//! Parties: what joins several claims of one task or transaction.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names a party: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartyId(crate::OwnerId);

impl PartyId {
    /// A fresh one.
    pub fn random() -> Self {
        Self(crate::OwnerId::random())
    }

    /// The id as a number, for engines and tests.
    pub fn from_bits(bits: u128) -> Self {
        Self(crate::OwnerId::from_bits(bits))
    }

    /// The number behind the id.
    pub fn to_bits(self) -> u128 {
        self.0.to_bits()
    }
}

impl fmt::Debug for PartyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartyId({:032x})", self.to_bits())
    }
}

/// The first digits: enough to tell parties apart, for people.
impl fmt::Display for PartyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "party {:08x}", self.to_bits() >> 96)
    }
}

/// The engine's time, in microseconds, at a party's first claim. Smaller is older.
///
/// ```
/// use tollgate::Age;
///
/// assert!(Age(1) < Age(2), "the smaller is the older");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Age(pub u64);

/// The task or transaction that joins several claims, as a claim carries it.
///
/// The age is absent on a party's first claim; the engine stamps it, and the party keeps it across
/// retries, or the young would starve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Party {
    /// Which party.
    pub id: PartyId,
    /// Since when it has been claiming.
    pub age: Option<Age>,
}
