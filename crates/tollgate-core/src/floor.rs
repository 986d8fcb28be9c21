//! What is added to an engine's own numbers, so that tokens go on where another engine left off.

use serde::{Deserialize, Serialize};
use tollgate_types::Token;

use crate::error::{Error, ErrorKind, Result};

/// Refuses a floor that no token can be above.
pub fn check(floor: Token) -> Result<()> {
    match floor.next() {
        Some(_) => Ok(()),
        None => Err(Error::invalid(format!("no token can be larger than {floor}; use a lower floor"))),
    }
}

/// The steps by which tokens were raised, oldest first, for engines whose tokens are numbers they give anyway.
///
/// A claim's token is its number and what was added when it came. So later claims have larger tokens, and those who
/// look find the same number as the claim itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor(Vec<Step>);

/// From the number after `since` on, `added` is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    /// Zero for the last, whose number was not known when it was written: it is that of the write.
    since: i64,
    added: i64,
}

impl Floor {
    /// The floor as it was written by the engine's step with the number `at`.
    pub fn read(json: &[u8], at: i64) -> Result<Self> {
        let mut steps: Vec<Step> = serde_json::from_slice(json).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the token floor stored at the engine cannot be read")
                .caused_by(error)
        })?;
        if let Some(last) = steps.last_mut() {
            last.since = at;
        }
        Ok(Self(steps))
    }

    /// What is to be written.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(&self.0).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the token floor cannot be serialised").caused_by(error)
        })
    }

    /// The token of a claim with this number.
    pub fn token(&self, number: i64) -> Result<Token> {
        let added = self.0.iter().rev().find(|step| step.since < number).map_or(0, |step| step.added);
        Ok(Token::new(number.saturating_add(added).unsigned_abs())?)
    }

    /// With every claim after `now` above `floor`; none if that is so already.
    pub fn raised(&self, floor: Token, now: i64) -> Option<Self> {
        let floor = i64::try_from(floor.get()).unwrap_or(i64::MAX);
        let added = floor - now;
        if added <= self.0.last().map_or(0, |step| step.added) {
            return None;
        }
        Some(Self([&self.0[..], &[Step { since: 0, added }]].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(floor: &Floor, at: i64) -> Floor {
        Floor::read(&floor.to_json().unwrap(), at).unwrap()
    }

    #[test]
    fn tokens_rise_over_every_step_and_old_ones_stay() {
        let token = |floor: &Floor, number| floor.token(number).unwrap().get();
        let none = Floor::default();
        assert_eq!(token(&none, 10), 10);
        let first = stored(&none.raised(Token::new(1000).unwrap(), 10).unwrap(), 11);
        assert_eq!((token(&first, 10), token(&first, 12)), (10, 1002));
        assert_eq!(first.raised(Token::new(1000).unwrap(), 12), None);
        let second = stored(&first.raised(Token::new(5000).unwrap(), 20).unwrap(), 21);
        assert_eq!((token(&second, 10), token(&second, 12), token(&second, 22)), (10, 1002, 5002));
    }
}
