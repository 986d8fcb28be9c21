//! The worlds that are checked, from small to large.

use crate::world::{Renewals, Size};

/// Two round trips and nothing else: locks expire, requests come late or never, clocks can be trusted.
pub(crate) const BARE: Size = Size {
    floors: &[[0, 0, 0]],
    hints: &[0],
    proposals: &[],
    restarts: 0,
    renewals: Renewals::None,
    duplicates: 0,
    losses: 0,
    lost_at_once: 1,
    // With trusted clocks nothing rests on it.
    margin: 0,
    wait: 0,
    expiry: true,
    clocks_can_be_trusted: true,
    normal: true,
};

/// Everything at once that two clients can be exhaustively checked with in seconds.
pub(crate) const FULL: Size = Size { renewals: Renewals::Unconditional, duplicates: 1, losses: 1, ..BARE };

/// One node loses its data.
pub(crate) const LOSS: Size = Size { losses: 1, ..BARE };

/// Counters that were apart already, and hints that some nodes follow and others do not.
pub(crate) const APART: Size = Size { floors: &[[0, 0, 0], [0, 0, 2], [0, 1, 2]], hints: &[0, 2], ..LOSS };

/// Grants come however late. The margin is more than any counter can be ahead of the others here.
pub(crate) const TIMELESS: Size = Size { clocks_can_be_trusted: false, margin: 6, ..LOSS };

/// Renewals exactly as they are sent.
pub(crate) const ROUNDS: Size = Size { renewals: Renewals::Rounds, ..BARE };

/// One client starts over.
pub(crate) const RESTART: Size = Size { restarts: 1, ..BARE };

/// Locks stay until they are released.
pub(crate) const ENDLESS: Size = Size { expiry: false, ..RESTART };

/// Two nodes may be without their data at once: too few are left to recover from.
pub(crate) const TWO_LOST: Size = Size { losses: 2, lost_at_once: 2, margin: 3, ..BARE };

/// Clients take plainly, or by scripts, or by scripts after a plain take.
pub(crate) const TAKES: Size = Size { proposals: &[1, 2], ..RESTART };
