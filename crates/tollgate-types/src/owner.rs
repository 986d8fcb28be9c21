//! Owner ids: the secret that says whose grant it is.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// 128 random bits, fresh for every acquisition.
///
/// Whoever knows it can release the lock, so it is a secret: engines compare it, nobody lists it, and
/// `Debug` does not print it.
///
/// ```
/// use tollgate::OwnerId;
///
/// assert_ne!(OwnerId::random(), OwnerId::random());
/// assert_eq!(OwnerId::from_bits(255).to_hex().len(), 32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnerId(u128);

/// A string that is not an owner id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an owner id is 32 lower-case hexadecimal digits")]
pub struct InvalidOwnerId;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; 512], used: 512, process: 0 }) };
}

/// Random bytes ahead of their use: to ask the system for each id would cost as much as the rest of a claim.
struct Pool {
    bytes: [u8; 512],
    used: usize,
    /// Whose bytes they are: a forked child must not use its parent's.
    process: u32,
}

impl Pool {
    fn draw(&mut self) -> [u8; 16] {
        let process = std::process::id();
        if self.used == self.bytes.len() || self.process != process {
            getrandom::fill(&mut self.bytes)
                .expect("the operating system's random generator does not fail after boot");
            (self.used, self.process) = (0, process);
        }
        let drawn = &mut self.bytes[self.used..self.used + 16];
        self.used += 16;
        let id = <[u8; 16]>::try_from(&*drawn).expect("it is sixteen bytes");
        // It is a secret: nothing of it stays here.
        drawn.fill(0);
        id
    }
}

impl OwnerId {
    /// A fresh one from the operating system's randomness.
    pub fn random() -> Self {
        Self::random_and_process().0
    }

    /// The same, with the id of this process: it is looked up for every id, and that is not free.
    pub fn random_and_process() -> (Self, u32) {
        POOL.with_borrow_mut(|pool| (Self(u128::from_ne_bytes(pool.draw())), pool.process))
    }

    /// The id as a number, for engines and tests.
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The number behind the id.
    pub fn to_bits(self) -> u128 {
        self.0
    }

    /// The 32 hexadecimal digits an engine stores. Do not print them.
    pub fn to_hex(self) -> String {
        self.hex_digits().map(char::from).iter().collect()
    }

    /// The same, for those who write them somewhere at once.
    pub fn hex_digits(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0.to_be_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        digits
    }
}

impl FromStr for OwnerId {
    type Err = InvalidOwnerId;
    fn from_str(text: &str) -> Result<Self, InvalidOwnerId> {
        let digits = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() != 32 || !digits {
            return Err(InvalidOwnerId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| InvalidOwnerId)
    }
}

impl TryFrom<String> for OwnerId {
    type Error = InvalidOwnerId;
    fn try_from(text: String) -> Result<Self, InvalidOwnerId> {
        text.parse()
    }
}

impl From<OwnerId> for String {
    fn from(owner: OwnerId) -> Self {
        owner.to_hex()
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_id_survives_its_text_and_is_never_printed() {
        let owner = OwnerId::random();
        assert_eq!(owner.to_hex().parse(), Ok(owner));
        assert_ne!(owner, OwnerId::random());
        assert!(!format!("{owner:?}").contains(&owner.to_hex()));
        assert_eq!("+0000000000000000000000000000001".parse::<OwnerId>(), Err(InvalidOwnerId));
    }
}
