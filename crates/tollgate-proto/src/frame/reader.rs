//! Reads the values of a frame, and refuses what is not one.

use std::time::Duration;

use tollgate_types::{Age, Conflict, LockName, Mode, OnDeadlock, OwnerId, Party, PartyId, Token, Waits};

use super::{HEADER_BYTES, Malformed};

/// The values of a frame that have not been read yet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The kind and the id of a whole frame, with its four bytes of length, and a reader of its
    /// body.
    pub(super) fn of(frame: &'a [u8]) -> Result<(u8, u32, Self), Malformed> {
        if super::first(frame)? != Some(frame.len()) {
            return Err(Malformed::Short);
        }
        let (header, rest) = frame.split_at(HEADER_BYTES);
        let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        Ok((header[4], id, Self { rest }))
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, Malformed> {
        self.array().map(u128::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value("flag")),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.u16()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).map_err(|_| Malformed::Value("string"))
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// As many values as a u16 says. Nothing is set aside for them: a frame may promise more than
    /// it has.
    pub(super) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u16()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    pub(super) fn name(&mut self) -> Result<LockName, Malformed> {
        LockName::new(self.text()?).map_err(|_| Malformed::Value("lock name"))
    }

    pub(super) fn owner(&mut self) -> Result<OwnerId, Malformed> {
        self.u128().map(OwnerId::from_bits)
    }

    pub(super) fn token(&mut self) -> Result<Token, Malformed> {
        Token::new(self.u64()?).map_err(|_| Malformed::Value("fencing token"))
    }

    pub(super) fn millis(&mut self) -> Result<Duration, Malformed> {
        self.u64().map(Duration::from_millis)
    }

    pub(super) fn micros(&mut self) -> Result<Duration, Malformed> {
        self.u64().map(Duration::from_micros)
    }

    pub(super) fn mode(&mut self) -> Result<Mode, Malformed> {
        match self.u8()? {
            0 => Ok(Mode::Exclusive),
            1 => Ok(Mode::Shared),
            2 => Mode::permit(self.u32()?).ok_or(Malformed::Value("limit of permits")),
            _ => Err(Malformed::Value("mode")),
        }
    }

    pub(super) fn on_deadlock(&mut self) -> Result<OnDeadlock, Malformed> {
        match self.u8()? {
            0 => Ok(OnDeadlock::Timeout),
            1 => Ok(OnDeadlock::Detect),
            2 => Ok(OnDeadlock::WaitDie),
            3 => Ok(OnDeadlock::WoundWait),
            _ => Err(Malformed::Value("deadlock policy")),
        }
    }

    pub(super) fn age(&mut self) -> Result<Option<Age>, Malformed> {
        self.option(|this| this.u64().map(Age))
    }

    pub(super) fn party_id(&mut self) -> Result<PartyId, Malformed> {
        self.u128().map(PartyId::from_bits)
    }

    pub(super) fn party(&mut self) -> Result<Option<Party>, Malformed> {
        self.option(|this| Ok(Party { id: this.party_id()?, age: this.age()? }))
    }

    pub(super) fn conflict(&mut self) -> Result<Conflict, Malformed> {
        match self.u8()? {
            0 => Ok(Conflict::Cycle(
                self.list(|this| Ok(Waits { party: this.option(Self::party_id)?, name: this.name()? }))?,
            )),
            1 => Ok(Conflict::Elder(self.party_id()?)),
            2 => Ok(Conflict::Wounded(self.party_id()?)),
            3 => Ok(Conflict::Itself),
            _ => Err(Malformed::Value("conflict")),
        }
    }
}
