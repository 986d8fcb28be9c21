//! Which request on the wire does what: by the values that its statement is given.

use tollgate_testkit::fault::Operation;

/// Whether a request is one of `operation`.
pub(crate) fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let Some(values) = values(frame) else { return false };
    let said = |place: usize| values[place].is_some_and(|value| value == [1]);
    // `take` has its details last, the refresh of a waiter a number.
    let takes = values.len() == 5 && values[4].is_some_and(|details| details.starts_with(b"{"));
    let acquires = values.len() == 10;
    match operation {
        Operation::TryAcquire => takes || acquires && !said(8),
        Operation::Acquire => takes || acquires && said(8),
        Operation::Withdraw => values.len() == 3 && said(2),
        Operation::Extend => values.len() == 4,
        // Those that look begin with the owner's id.
        Operation::Release => {
            let looks = values.first().is_some_and(|value| value.is_some_and(|value| value.len() == 16));
            values.len() == 2 && !looks || values.len() == 3 && values[2] == Some(&[0])
        }
    }
}

/// The values of a statement that is executed.
pub(crate) fn values(frame: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let mut rest = frame;
    while rest.len() >= 5 {
        let length = u32::from_be_bytes(rest[1..5].try_into().ok()?) as usize;
        let message = rest.get(5..=length)?;
        if rest[0] == b'B' {
            return bound(message);
        }
        rest = rest.get(length + 1..)?;
    }
    None
}

/// A Bind: the portal's name, the statement's, formats, values.
fn bound(message: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let mut parts = message.splitn(3, |byte| *byte == 0);
    let (_portal, _statement, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let formats = number(rest)?;
    let rest = rest.get(2 + 2 * formats..)?;
    let (count, mut rest) = (number(rest)?, rest.get(2..)?);
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let length = i32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        rest = rest.get(4..)?;
        let length = usize::try_from(length).ok();
        values.push(length.and_then(|length| rest.get(..length)));
        rest = rest.get(length.unwrap_or(0)..)?;
    }
    Some(values)
}

fn number(bytes: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?)))
}
