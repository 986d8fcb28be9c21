//! Writes the values of a frame.

use tollgate_types::{Age, Conflict, Mode, OnDeadlock, Party, Waits};

/// A frame that is being written. Its length is filled in when it is dropped.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, kind: u8, id: u32) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        out.extend_from_slice(&id.to_be_bytes());
        Self { out, start }
    }

    /// How many bytes the frame has so far.
    pub(super) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.out.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u128(&mut self, value: u128) -> &mut Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn flag(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// A string. Every string of the protocol is far shorter than 64 KiB; of a longer one only the
    /// part that fits is sent.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let mut fits = usize::from(u16::MAX).min(text.len());
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.u16(u16::try_from(fits).unwrap_or(u16::MAX));
        self.out.extend_from_slice(&text.as_bytes()[..fits]);
        self
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    pub(super) fn mode(&mut self, mode: Mode) -> &mut Self {
        match mode {
            Mode::Exclusive => self.u8(0),
            Mode::Shared => self.u8(1),
            Mode::Permit { limit } => self.u8(2).u32(limit.get()),
        }
    }

    pub(super) fn on_deadlock(&mut self, policy: OnDeadlock) -> &mut Self {
        self.u8(match policy {
            OnDeadlock::Detect => 1,
            OnDeadlock::WaitDie => 2,
            OnDeadlock::WoundWait => 3,
            // Timeout, and what later versions add means the least here.
            _ => 0,
        })
    }

    pub(super) fn age(&mut self, age: Option<Age>) -> &mut Self {
        self.option(age, |this, age| {
            this.u64(age.0);
        })
    }

    pub(super) fn party(&mut self, party: Option<Party>) -> &mut Self {
        self.option(party, |this, party| {
            this.u128(party.id.to_bits()).age(party.age);
        })
    }

    pub(super) fn conflict(&mut self, conflict: &Conflict) -> &mut Self {
        match conflict {
            Conflict::Cycle(cycle) => {
                // What does not fit is left out: a cycle of that length is not read by a person.
                let most = cycle.iter().scan(self.len(), |length, Waits { name, .. }| {
                    *length += 32 + name.as_str().len();
                    Some(*length)
                });
                let most = most.take_while(|length| *length < super::PART_BYTES).count();
                self.u8(0).u16(u16::try_from(most).unwrap_or(u16::MAX));
                for Waits { party, name } in cycle.iter().take(most) {
                    self.option(*party, |this, party| {
                        this.u128(party.to_bits());
                    });
                    self.text(name.as_str());
                }
                self
            }
            Conflict::Elder(party) => self.u8(1).u128(party.to_bits()),
            Conflict::Wounded(party) => self.u8(2).u128(party.to_bits()),
            Conflict::Itself => self.u8(3),
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // A frame that is too long is refused by its reader.
        let length = u32::try_from(self.len() - 4).unwrap_or(u32::MAX);
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_be_bytes());
    }
}
