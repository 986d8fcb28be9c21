//! What a lock file looks like: a header with the lock's name, and a list of the claims in their order.
//!
//! ```text
//! 0     header: magic, version, next ticket, where the list is    one write of less than a page,
//! 64    the lock's real name                                      so a killed process tears nothing
//! 1024  the list: `capacity` entries of 32 bytes, then as many details of `details_size` bytes
//! ```
//! The list moves to another place of the file when it is full; the header then points there. Nothing
//! here is synced: it means something only while a claim's byte is locked, and locks end with the boot.

use tollgate_core::{Mode, Token};

use crate::sys::Range;

/// Where the header ends and lists may begin.
pub(crate) const LISTS: u64 = 1024;
/// The length of header and name together, at most.
pub(crate) const HEADER_BYTES: usize = 64 + tollgate_core::LockName::MAX_BYTES;
/// The length of an entry.
pub(crate) const ENTRY_BYTES: usize = 32;
/// How many entries a new file has room for.
pub(crate) const FIRST_CAPACITY: u32 = 32;
/// How long details may be before a list needs wider places.
pub(crate) const FIRST_DETAILS: u32 = 256;

const MAGIC: [u8; 8] = *b"TOLLGATE";
const VERSION: u32 = 1;
/// Ticket bytes start here, far beyond anything a file holds.
const TICKETS: u64 = 1 << 40;

/// The byte that is locked while header or list are read or written.
pub(crate) const GATE: Range = Range::byte(0);
/// The bytes of all claims.
pub(crate) const ANYBODY: Range = Range { start: TICKETS, len: 0 };

/// A claim's place in the order; never used twice while a file is in use.
pub(crate) type Ticket = u64;

/// The byte that is locked as long as the claim lives, waiting or holding.
pub(crate) fn alive(ticket: Ticket) -> Range {
    Range::byte(TICKETS + 2 * ticket)
}

/// The byte that is locked as long as the claim waits; only permits have it.
pub(crate) fn waiting(ticket: Ticket) -> Range {
    Range::byte(TICKETS + 2 * ticket + 1)
}

/// The bytes of every claim before `ticket`; `None` if it is the first.
pub(crate) fn everybody_before(ticket: Ticket) -> Option<Range> {
    (ticket > 0).then_some(Range { start: TICKETS, len: 2 * ticket })
}

/// Whether a file that starts with `bytes` was made by this program, damaged or not.
pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The first page of a lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: Box<[u8]>,
    /// The ticket of the next claim.
    pub(crate) next: Ticket,
    /// Entries before this one have all left.
    pub(crate) head: u32,
    /// How many entries there are.
    pub(crate) len: u32,
    /// Where the list begins.
    pub(crate) list: u64,
    pub(crate) capacity: u32,
    pub(crate) details_size: u32,
    /// Changes whenever entries change their index.
    pub(crate) generation: u64,
}

impl Header {
    /// Where entry `index` is.
    pub(crate) fn entry_at(&self, index: u32) -> u64 {
        self.list + u64::from(index) * ENTRY_BYTES as u64
    }

    /// Where the details of entry `index` are.
    pub(crate) fn details_at(&self, index: u32) -> u64 {
        self.entry_at(self.capacity) + u64::from(index) * u64::from(self.details_size)
    }

    /// How long the list is, with its details.
    pub(crate) fn list_bytes(&self) -> u64 {
        u64::from(self.capacity) * (ENTRY_BYTES as u64 + u64::from(self.details_size))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.next.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.head.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.len.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.list.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.details_size.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.name);
        let sum = checksum(&[&bytes[..56], &self.name]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header that `bytes` start with, or what is wrong with them.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let fixed = bytes.first_chunk::<64>().ok_or("the file is too short")?;
        if fixed[0..8] != MAGIC {
            return Err("the file does not start like a lock file");
        }
        if u32_at(fixed, 8) != VERSION {
            return Err("this program does not support the layout of the file");
        }
        let length = u32_at(fixed, 12) as usize;
        let name = bytes[64..].get(..length).ok_or("the name is truncated")?;
        if u64_at(fixed, 56) != checksum(&[&fixed[..56], name]) {
            return Err("the header's checksum is wrong");
        }
        let header = Self {
            name: name.into(),
            next: u64_at(fixed, 16),
            head: u32_at(fixed, 24),
            len: u32_at(fixed, 28),
            list: u64_at(fixed, 32),
            capacity: u32_at(fixed, 40),
            details_size: u32_at(fixed, 44),
            generation: u64_at(fixed, 48),
        };
        let sound = header.head <= header.len && header.len <= header.capacity && header.list >= LISTS;
        if sound { Ok(header) } else { Err("the header contradicts itself") }
    }
}

/// One claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) ticket: Ticket,
    pub(crate) mode: Mode,
    /// `None` while it waits.
    pub(crate) token: Option<Token>,
    /// It left in good order. Who is killed leaves without saying so.
    pub(crate) left: bool,
    /// An operator asks it to leave.
    pub(crate) revoked: bool,
    pub(crate) details_len: u32,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let (mode, limit) = match self.mode {
            Mode::Exclusive => (0, 0),
            Mode::Shared => (1, 0),
            Mode::Permit { limit } => (2, limit.get()),
        };
        bytes[0..8].copy_from_slice(&self.ticket.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.token.map_or(0, Token::get).to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::to_le_bytes(limit));
        bytes[20] = mode;
        bytes[21] = u8::from(self.left) | u8::from(self.revoked) << 1;
        bytes[22..26].copy_from_slice(&self.details_len.to_le_bytes());
        let sum = checksum(&[&bytes[..28]]);
        bytes[28..32].copy_from_slice(&(sum as u32).to_le_bytes());
        bytes
    }

    /// The entry that `bytes` are, or what is wrong with them.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, &'static str> {
        const BROKEN: &str = "an entry's checksum is wrong";
        if u32_at(bytes, 28) != checksum(&[&bytes[..28]]) as u32 {
            return Err(BROKEN);
        }
        let mode = match bytes[20] {
            0 => Mode::Exclusive,
            1 => Mode::Shared,
            _ => Mode::permit(u32_at(bytes, 16)).ok_or(BROKEN)?,
        };
        Ok(Self {
            ticket: u64_at(bytes, 0),
            mode,
            token: Token::new(u64_at(bytes, 8)).ok(),
            left: bytes[21] & 1 != 0,
            revoked: bytes[21] & 2 != 0,
            details_len: u32_at(bytes, 22),
        })
    }
}

/// FNV-1a: it notices torn and foreign bytes, which is all that is asked of it.
pub(crate) fn checksum(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a slice of four bytes is four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of eight bytes is eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            name: b"orders/42".as_slice().into(),
            next: 7,
            head: 1,
            len: 5,
            list: LISTS,
            capacity: 32,
            details_size: 256,
            generation: 3,
        }
    }

    #[test]
    fn what_is_written_is_read_and_one_changed_bit_is_noticed() {
        let bytes = header().encode();
        assert_eq!(Header::decode(&bytes), Ok(header()));
        for bit in 0..bytes.len() * 8 {
            let mut torn = bytes.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&torn).is_err(), "bit {bit}");
        }
        let entry = Entry {
            ticket: 9,
            mode: Mode::permit(3).unwrap(),
            token: Token::new(12).ok(),
            left: true,
            revoked: true,
            details_len: 77,
        };
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        assert!(Entry::decode(&[0; ENTRY_BYTES]).is_err(), "zeroes are no entry");
    }

    #[test]
    fn bytes_of_different_claims_never_meet() {
        assert_ne!(waiting(3), alive(4));
        assert_eq!(waiting(3).start + 1, alive(4).start);
        let before = everybody_before(4).unwrap();
        assert_eq!(before.start + before.len, alive(4).start);
        assert_eq!(everybody_before(0), None);
    }
}
