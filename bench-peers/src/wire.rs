//! Wires on which requests are only counted: everything passes as it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_testkit::proxy::{Answer, Conversation, Garbled, Protocol, Request};

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// HTTP/2, as etcd speaks. Every call begins with HEADERS.
    Http2,
    /// PostgreSQL. Every answer is asked for by a query or a sync.
    Postgres,
    /// MySQL and MariaDB. Every command is number 0 of its packets.
    MySql,
}

/// Counts the requests of all connections.
pub(crate) struct Counting {
    dialect: Dialect,
    requests: Arc<AtomicU64>,
}

impl Counting {
    /// Adds what is asked for to `requests`.
    pub(crate) fn new(dialect: Dialect, requests: Arc<AtomicU64>) -> Self {
        Self { dialect, requests }
    }
}

impl Protocol for Counting {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Listener { frames: Frames::new(self.dialect), requests: self.requests.clone() })
    }
}

struct Listener {
    frames: Frames,
    requests: Arc<AtomicU64>,
}

impl Conversation for Listener {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        self.requests.fetch_add(self.frames.requests_in(bytes), Ordering::Relaxed);
        Ok((!bytes.is_empty()).then_some(Request { length: bytes.len(), answered: false }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        Ok((!bytes.is_empty()).then_some(Answer::Push(bytes.len())))
    }
}

/// Where frames begin in what one client sends, however it is cut into pieces.
struct Frames {
    dialect: Dialect,
    header: Vec<u8>,
    /// Bytes before the next header.
    skip: usize,
    /// Whether a frame has begun.
    greeted: bool,
}

impl Frames {
    /// What an HTTP/2 client says before its first frame.
    const PREFACE: usize = 24;

    fn new(dialect: Dialect) -> Self {
        let skip = if dialect == Dialect::Http2 { Self::PREFACE } else { 0 };
        Self { dialect, header: Vec::new(), skip, greeted: false }
    }

    /// How many requests begin in the next piece.
    fn requests_in(&mut self, mut bytes: &[u8]) -> u64 {
        let mut requests = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let missing = (self.header_length() - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.header.len() == self.header_length() {
                requests += u64::from(self.begin());
            }
        }
        requests
    }

    fn header_length(&self) -> usize {
        match self.dialect {
            Dialect::Http2 => 9,
            Dialect::MySql => 4,
            // The first packet has no type.
            Dialect::Postgres => 4 + usize::from(self.greeted),
        }
    }

    /// Begins the frame whose header is complete, and says whether it is a request.
    fn begin(&mut self) -> bool {
        let header = std::mem::take(&mut self.header);
        let first = !std::mem::replace(&mut self.greeted, true);
        let big_endian = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        let (length, is_request) = match self.dialect {
            Dialect::Http2 => (big_endian(&header[..3]), header[3] == 1),
            // The length counts itself.
            Dialect::Postgres if first => (big_endian(&header).saturating_sub(4), false),
            Dialect::Postgres => {
                (big_endian(&header[1..]).saturating_sub(4), matches!(header[0], b'Q' | b'S'))
            }
            Dialect::MySql => (big_endian(&[header[2], header[1], header[0]]), header[3] == 0),
        };
        self.skip = length;
        is_request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversations() -> [(Dialect, Vec<u8>, u64); 3] {
        let http2 = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &[0, 0, 2, 4, 0, 0, 0, 0, 0, 1, 1], // SETTINGS, whose content looks like HEADERS
            &[0, 0, 1, 1, 4, 0, 0, 0, 1, 9],    // HEADERS
            &[0, 0, 3, 0, 1, 0, 0, 0, 1, 7, 7, 7], // DATA
            &[0, 0, 0, 1, 4, 0, 0, 0, 3],       // HEADERS
        ]
        .concat();
        let postgres = [
            &[0, 0, 0, 9, 0, 3, 0, 0, b'Q'][..], // the startup packet
            &[b'P', 0, 0, 0, 6, b'S', b'S'],     // Parse
            &[b'S', 0, 0, 0, 4],                 // Sync
            &[b'Q', 0, 0, 0, 5, 0],              // Query
        ]
        .concat();
        let mysql = [
            &[2, 0, 0, 1, 0, 0][..],      // the answer to the greeting
            &[3, 0, 0, 0, 3, b'h', b'i'], // a command
            &[0, 1, 0, 0],                // a longer one
            &[0; 256],
            &[1, 0, 0, 0, 14], // a ping
        ]
        .concat();
        [(Dialect::Http2, http2, 2), (Dialect::Postgres, postgres, 2), (Dialect::MySql, mysql, 3)]
    }

    #[test]
    fn requests_are_counted_however_they_are_cut() {
        for (dialect, bytes, requests) in conversations() {
            for piece in [1, 2, 3, 5, bytes.len()] {
                let mut frames = Frames::new(dialect);
                let counted: u64 = bytes.chunks(piece).map(|bytes| frames.requests_in(bytes)).sum();
                assert_eq!(counted, requests, "{dialect:?} in pieces of {piece}");
            }
        }
    }
}
