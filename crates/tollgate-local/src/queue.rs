//! Who is in the way: the one rule of modes over the living claims ahead.

use tollgate_core::Mode;

use crate::error::Result;
use crate::layout::{Entry, Ticket};

/// What a claim has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody ahead is in the way, and nobody will be.
    Go,
    /// Look again when this claim is gone.
    AfterLeaving(Ticket),
    /// Look again when this claim no longer waits.
    AfterWaiting(Ticket),
    /// Look again when any of these is gone. No kernel lock waits for *any* of several, so one claim of
    /// a queue, the first permit that waits, has to ask.
    AfterAny(Vec<Ticket>),
}

/// What a claim of `mode` has to do, given the claims ahead of it from the nearest to the farthest.
///
/// Whether a claim lives is asked only where it matters: each question is a system call. No answer can
/// become wrong later, because claims ahead only ever go.
pub(crate) fn decide(
    mode: Mode,
    ahead: impl Iterator<Item = Result<Entry>>,
    mut lives: impl FnMut(Ticket) -> Result<bool>,
) -> Result<Verdict> {
    let mut together = Vec::new();
    for entry in ahead {
        let entry = entry?;
        let compatible = match mode {
            Mode::Exclusive => false,
            Mode::Shared => entry.mode == Mode::Shared,
            Mode::Permit { .. } => entry.mode == mode,
        };
        if mode == Mode::Shared && compatible {
            // Whoever was in the way of a reader before us would be in ours, and nobody was.
            if entry.token.is_some() {
                return Ok(Verdict::Go);
            }
            continue;
        }
        if entry.left || !lives(entry.ticket)? {
            continue;
        }
        if !compatible {
            return Ok(Verdict::AfterLeaving(entry.ticket));
        }
        together.push(entry.ticket);
        if together.len() > mode.capacity() as usize {
            // The one before us waits, too, and goes before us.
            return Ok(Verdict::AfterWaiting(together[0]));
        }
    }
    if together.len() < mode.capacity() as usize { Ok(Verdict::Go) } else { Ok(Verdict::AfterAny(together)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [u32; 5] = [0, 1, 2, 3, 4];

    fn mode(number: u32) -> Mode {
        match number {
            0 => Mode::Exclusive,
            1 => Mode::Shared,
            limit => Mode::permit(limit - 1).unwrap(),
        }
    }

    fn entry(ticket: Ticket, mode: Mode) -> Entry {
        Entry { ticket, mode, token: None, left: false, revoked: false, details_len: 0 }
    }

    fn verdict(mode: Mode, queue: &[(Mode, bool)]) -> Verdict {
        let ahead = queue.iter().enumerate().rev().map(|(at, (mode, _))| Ok(entry(at as Ticket, *mode)));
        decide(mode, ahead, |ticket| Ok(queue[ticket as usize].1)).unwrap()
    }

    /// Every queue of up to four claims, living and dead, of every mode.
    #[test]
    fn a_claim_goes_exactly_when_the_rule_says_so() {
        let mut queues = vec![vec![]];
        for _ in 0..4 {
            let longer: Vec<_> = queues
                .iter()
                .flat_map(|queue: &Vec<(Mode, bool)>| {
                    MODES.iter().flat_map(move |number| {
                        [true, false].map(|lives| [queue.clone(), vec![(mode(*number), lives)]].concat())
                    })
                })
                .collect();
            for queue in &longer {
                for mine in MODES.map(mode) {
                    let living = queue.iter().filter(|(_, lives)| *lives).map(|(mode, _)| *mode);
                    let verdict = verdict(mine, queue);
                    assert_eq!(verdict == Verdict::Go, mine.joins(living), "{mine:?} behind {queue:?}");
                    let named = match verdict {
                        Verdict::Go => vec![],
                        Verdict::AfterLeaving(ticket) | Verdict::AfterWaiting(ticket) => vec![ticket],
                        Verdict::AfterAny(tickets) => tickets,
                    };
                    assert!(
                        named.iter().all(|ticket| queue[*ticket as usize].1),
                        "only the living are waited for"
                    );
                }
            }
            queues = longer;
        }
    }

    #[test]
    fn one_permit_of_a_queue_asks_and_the_others_wait_for_it() {
        let two = Mode::permit(2).unwrap();
        assert_eq!(verdict(two, &[(two, true), (two, true)]), Verdict::AfterAny(vec![1, 0]));
        assert_eq!(verdict(two, &[(two, true), (two, true), (two, true)]), Verdict::AfterWaiting(2));
        assert_eq!(verdict(two, &[(Mode::Exclusive, true), (two, true)]), Verdict::AfterLeaving(0));
    }
}
