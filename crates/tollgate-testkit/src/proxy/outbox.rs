//! What was read on one side and is not yet written on the other.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::rule::{Close, Trap};

/// Bytes in their order, some of which have to wait.
#[derive(Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
}

enum Piece {
    Bytes { bytes: Vec<u8>, written: usize, waits: Waits },
    Cut(Close),
}

/// What a piece waits for before it may go.
pub(super) enum Waits {
    Nothing,
    Until(Instant),
    For(Arc<Trap>),
}

/// What can be done now.
pub(super) enum Next<'a> {
    /// Nothing is there.
    Nothing,
    /// Nothing before the test lets it go.
    Held,
    /// Nothing before then.
    At(Instant),
    /// These bytes can be written.
    Write(&'a [u8]),
    /// The connection is to be cut.
    Cut(Close),
}

impl Outbox {
    pub(super) fn push(&mut self, frame: &[u8], waits: Waits) {
        if frame.is_empty() {
            return;
        }
        if let (Waits::Nothing, Some(Piece::Bytes { bytes, waits: Waits::Nothing, .. })) =
            (&waits, self.pieces.back_mut())
        {
            bytes.extend_from_slice(frame);
            return;
        }
        self.pieces.push_back(Piece::Bytes { bytes: frame.to_vec(), written: 0, waits });
    }

    pub(super) fn push_cut(&mut self, close: Close) {
        self.pieces.push_back(Piece::Cut(close));
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    pub(super) fn next(&self) -> Next<'_> {
        match self.pieces.front() {
            None => Next::Nothing,
            Some(Piece::Cut(close)) => Next::Cut(*close),
            Some(Piece::Bytes { bytes, written, waits }) => match waits {
                Waits::Until(due) if *due > Instant::now() => Next::At(*due),
                Waits::For(trap) if !trap.is_let_go() => Next::Held,
                _ => Next::Write(&bytes[*written..]),
            },
        }
    }

    /// So many bytes of the first piece are written.
    pub(super) fn wrote(&mut self, more: usize) {
        if let Some(Piece::Bytes { bytes, written, .. }) = self.pieces.front_mut() {
            *written += more;
            if *written == bytes.len() {
                self.pieces.pop_front();
            }
        }
    }
}
