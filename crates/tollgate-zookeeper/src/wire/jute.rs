//! Jute, ZooKeeper's way to write numbers and texts as bytes.

/// The largest frame that is taken: ZooKeeper's own limit is 1 MiB unless somebody raised it, and lists may be longer.
pub(crate) const LARGEST: usize = 64 << 20;

/// What came is not what was to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Bytes to send.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    /// How many of something follow.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.int(i32::try_from(count).unwrap_or(i32::MAX))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }
}

/// Bytes that came. What is longer than they are is garbled, so that no number in them makes us allocate more than came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Garbled)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn int(&mut self) -> Result<i32, Garbled> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Garbled> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Garbled> {
        Ok(self.array::<1>()? != [0])
    }

    /// How many of something follow, each of at least `least` bytes. ZooKeeper says −1 where there is nothing.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Garbled> {
        match self.int()? {
            -1 => Ok(0),
            count => {
                let count = usize::try_from(count).map_err(|_| Garbled)?;
                if count.saturating_mul(least) > self.0.len() { Err(Garbled) } else { Ok(count) }
            }
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Garbled> {
        let count = self.count(1)?;
        self.take(count)
    }

    /// Java writes characters beyond U+FFFF in a way of its own; whoever uses such names is not one of us.
    pub(crate) fn text(&mut self) -> Result<String, Garbled> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// The length of the frame after these four bytes.
pub(crate) fn frame_length(bytes: [u8; 4]) -> Result<usize, Garbled> {
    usize::try_from(i32::from_be_bytes(bytes)).ok().filter(|length| *length <= LARGEST).ok_or(Garbled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(int: i32, long: i64, flag: bool, bytes: Vec<u8>, text: String) {
            let mut writer = Writer::default();
            writer.int(int).text(&text).long(long).flag(flag).bytes(&bytes);
            let mut reader = Reader(&writer.0);
            prop_assert_eq!(reader.int(), Ok(int));
            prop_assert_eq!(reader.text(), Ok(text));
            prop_assert_eq!(reader.long(), Ok(long));
            prop_assert_eq!(reader.flag(), Ok(flag));
            prop_assert_eq!(reader.bytes(), Ok(bytes.as_slice()));
            prop_assert!(reader.0.is_empty());
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_garbled() {
        for length in [-2, i32::MIN, 5, i32::MAX] {
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend([1, 2, 3, 4]);
            assert_eq!(Reader(&bytes).bytes(), Err(Garbled), "{length}");
            assert_eq!(Reader(&bytes).count(4), Err(Garbled), "{length}");
        }
        assert_eq!(Reader(&(-1_i32).to_be_bytes()).bytes(), Ok([].as_slice()));
        assert_eq!(frame_length([255; 4]), Err(Garbled));
        assert_eq!(frame_length([4, 0, 0, 1]), Err(Garbled));
        assert_eq!(frame_length([4, 0, 0, 0]), Ok(LARGEST));
    }
}
