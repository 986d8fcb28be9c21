//! Which request on the wire does what: by the values that its statement is given.

use tollgate_testkit::fault::Operation;

/// Whether a request is one of `operation`.
pub(crate) fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    use Value::{Number, Text};

    let Some(values) = values(frame) else { return false };
    match (operation, &values[..]) {
        // `take`: owner, ttl, ttl, sent, details, name.
        (Operation::TryAcquire | Operation::Acquire, [Text(_), Number(_), .., Text(_)]) => values.len() == 6,
        (Operation::TryAcquire, [_, _, _, _, _, _, _, Number(waits), _]) => *waits == 0,
        (Operation::Acquire, [_, _, _, _, _, _, _, Number(waits), _]) => *waits == 1,
        (Operation::Withdraw, [Text(_), Text(_), Number(waits_too)]) => *waits_too == 1,
        // `renew` of one exclusive holder, and `extend` of all others.
        (Operation::Extend, [Number(_), Number(_), _, Text(_), Text(_)]) => true,
        (Operation::Extend, [Text(_), Text(_), Number(_), _]) => true,
        (Operation::Release, [Text(_), Text(owner)]) => owner.len() == 32,
        (Operation::Release, [Text(_), Text(_), Number(waits_too)]) => *waits_too == 0,
        _ => false,
    }
}

/// A value of a statement.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Number(i64),
    Text(&'a [u8]),
}

/// The values of a statement that is executed. How many there are is not said: as many as the packet is made up of.
pub(crate) fn values(frame: &[u8]) -> Option<Vec<Value<'_>>> {
    // A packet's header, the command, the statement's number, flags, and a one.
    let rest = frame.get(14..).filter(|_| frame[4] == 0x17)?;
    (1..10).find_map(|count| bound(rest, count))
}

/// `count` values: which are missing, a one, their types, and those that are there.
fn bound(rest: &[u8], count: usize) -> Option<Vec<Value<'_>>> {
    let (missing, rest) = rest.split_at_checked(count.div_ceil(8))?;
    let (new, rest) = rest.split_first()?;
    let (types, mut rest) = rest.split_at_checked(2 * count)?;
    let mut values = Vec::new();
    for place in 0..count {
        if missing[place / 8] & (1 << (place % 8)) != 0 {
            values.push(Value::Null);
            continue;
        }
        let length = match types[2 * place] {
            0x08 => {
                let (number, after) = rest.split_first_chunk::<8>()?;
                values.push(Value::Number(i64::from_le_bytes(*number)));
                rest = after;
                continue;
            }
            0xfd => match rest.split_first()? {
                (0xfc, after) => {
                    let (length, after) = after.split_first_chunk::<2>()?;
                    rest = after;
                    usize::from(u16::from_le_bytes(*length))
                }
                (length, after) => {
                    rest = after;
                    usize::from(*length)
                }
            },
            _ => return None,
        };
        let (text, after) = rest.split_at_checked(length)?;
        values.push(Value::Text(text));
        rest = after;
    }
    (*new == 1 && rest.is_empty()).then_some(values)
}
