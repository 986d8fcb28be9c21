//! The protocol of MySQL and MariaDB.

use std::collections::VecDeque;

use super::protocol::{Answer, Conversation, Garbled, Protocol, Request};

/// MySQL: a request is a packet, a reply as many as the protocol says. The server speaks first, and its greeting
/// passes whatever is done to replies.
///
/// What a request asked says how its reply is to be read. Not understood: compression, `LOAD DATA LOCAL`, and packets of 16 MB and more. Once a client has asked
/// for TLS, whatever was read at once is a frame.
#[derive(Debug, Clone, Copy, Default)]
pub struct MySql;

impl Protocol for MySql {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Talk::default())
    }
}

/// How far a connection is.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Greeting,
    Authentication,
    Commands,
    Encrypted,
}

/// How the reply to a command is made up.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A result: OK, an error, or columns and rows; several where the server says so.
    #[default]
    Results,
    /// A statement's number, with its parameters and columns.
    Prepared,
    /// Rows alone.
    Rows,
    /// One packet.
    Word,
}

#[derive(Default)]
struct Talk {
    phase: Phase,
    /// How the replies that are to come are made up.
    shapes: VecDeque<Shape>,
    /// What each end can do, with what only MariaDB knows in the upper half.
    server: u64,
    client: u64,
}

const QUIT: u8 = 0x01;
const FIELD_LIST: u8 = 0x04;
const STATISTICS: u8 = 0x09;
const CHANGE_USER: u8 = 0x11;
const PREPARE: u8 = 0x16;
const SEND_LONG_DATA: u8 = 0x18;
const CLOSE_STATEMENT: u8 = 0x19;
const FETCH: u8 = 0x1c;

const CLIENT_SSL: u64 = 1 << 11;
/// Columns end without a packet of their own, and rows with an OK.
const DEPRECATE_EOF: u64 = 1 << 24;
/// Columns of a prepared statement are told once.
const CACHE_METADATA: u64 = 1 << 36;
/// In a status: another result comes.
const MORE_RESULTS: u16 = 0x0008;
/// In a status: rows come when they are fetched.
const CURSOR_EXISTS: u16 = 0x0040;

const OK: u8 = 0x00;
const MORE_DATA: u8 = 0x01;
const LOCAL_INFILE: u8 = 0xfb;
const EOF: u8 = 0xfe;
const ERROR: u8 = 0xff;

impl Conversation for Talk {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        if self.phase == Phase::Encrypted {
            return Ok((!bytes.is_empty()).then_some(Request { length: bytes.len(), answered: true }));
        }
        let mut packets = Packets { bytes, read: 0 };
        let Some(packet) = packets.next()? else { return Ok(None) };
        let answered = match self.phase {
            Phase::Commands => self.command(packet),
            _ => self.introduction(packet),
        };
        Ok(Some(Request { length: packets.read, answered }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        if self.phase == Phase::Encrypted {
            return Ok((!bytes.is_empty()).then_some(Answer::Reply(bytes.len())));
        }
        let mut packets = Packets { bytes, read: 0 };
        match self.phase {
            Phase::Greeting => {
                let Some(packet) = packets.next()? else { return Ok(None) };
                self.server = capabilities_of_server(packet);
                self.phase = Phase::Authentication;
                Ok(Some(Answer::Confirmation(packets.read)))
            }
            Phase::Authentication => Ok(self.verdict(&mut packets)?.map(|()| Answer::Reply(packets.read))),
            _ => {
                let shape = self.shapes.front().copied().unwrap_or_default();
                let Some(()) = self.results(shape, &mut packets)? else { return Ok(None) };
                self.shapes.pop_front();
                Ok(Some(Answer::Reply(packets.read)))
            }
        }
    }

    fn lost(&mut self) {
        self.shapes.pop_back();
    }

    fn repeated(&mut self) {
        self.shapes.extend(self.shapes.back().copied());
    }
}

impl Talk {
    /// Reads how a client introduces itself, and says whether it is answered.
    fn introduction(&mut self, packet: &[u8]) -> bool {
        if self.client != 0 {
            return true;
        }
        self.client = number_at(packet, 0) | number_at(packet, 28) << 32;
        // Who wants TLS says so by half an introduction.
        let encrypts = self.client & CLIENT_SSL != 0 && packet.len() == 32;
        if encrypts {
            self.phase = Phase::Encrypted;
        }
        !encrypts
    }

    /// Reads a command, and says whether it is answered.
    fn command(&mut self, packet: &[u8]) -> bool {
        self.shapes.push_back(match packet.first().copied() {
            Some(QUIT | CLOSE_STATEMENT | SEND_LONG_DATA) => return false,
            Some(PREPARE) => Shape::Prepared,
            Some(FIELD_LIST | FETCH) => Shape::Rows,
            Some(STATISTICS) => Shape::Word,
            Some(CHANGE_USER) => {
                self.phase = Phase::Authentication;
                return true;
            }
            _ => Shape::Results,
        });
        true
    }

    /// What a server says to a password.
    fn verdict(&mut self, packets: &mut Packets<'_>) -> Result<Option<()>, Garbled> {
        while let Some(packet) = packets.next()? {
            match packet {
                [OK, ..] => self.phase = Phase::Commands,
                // "I know that password"; the OK follows.
                [MORE_DATA, 3] => continue,
                _ => {}
            }
            return Ok(Some(()));
        }
        Ok(None)
    }

    /// Reads to the end of a reply.
    fn results(&self, shape: Shape, packets: &mut Packets<'_>) -> Result<Option<()>, Garbled> {
        loop {
            let status = match shape {
                Shape::Rows => self.rows(packets)?,
                Shape::Word => packets.next()?.map(|_| 0),
                Shape::Prepared => self.prepared(packets)?,
                Shape::Results => self.result(packets)?,
            };
            match status {
                None => return Ok(None),
                Some(status) if status & MORE_RESULTS != 0 => {}
                Some(_) => return Ok(Some(())),
            }
        }
    }

    /// Reads one result, and tells its status.
    fn result(&self, packets: &mut Packets<'_>) -> Result<Option<u16>, Garbled> {
        let Some(packet) = packets.next()? else { return Ok(None) };
        let columns = match packet.first().copied() {
            None => return Err(Garbled),
            Some(OK) => return Ok(Some(status_of_ok(packet))),
            Some(ERROR | EOF | LOCAL_INFILE) => return Ok(Some(0)),
            Some(_) => integer(packet).ok_or(Garbled)?.0,
        };
        if self.server & self.client & CACHE_METADATA != 0 && packet.last() == Some(&0) {
            return self.rows(packets);
        }
        match self.definitions(packets, columns)? {
            None => Ok(None),
            Some(status) if status & CURSOR_EXISTS != 0 => Ok(Some(status)),
            Some(_) => self.rows(packets),
        }
    }

    /// Reads so many definitions of columns, and tells the status behind them, if there is one.
    fn definitions(&self, packets: &mut Packets<'_>, count: u64) -> Result<Option<u16>, Garbled> {
        for _ in 0..count {
            if packets.next()?.is_none() {
                return Ok(None);
            }
        }
        if count == 0 || self.deprecates_eof() {
            return Ok(Some(0));
        }
        Ok(packets.next()?.map(status_of_eof))
    }

    /// Reads rows to their end, and tells the status there.
    fn rows(&self, packets: &mut Packets<'_>) -> Result<Option<u16>, Garbled> {
        while let Some(packet) = packets.next()? {
            match packet.first() {
                Some(&ERROR) => return Ok(Some(0)),
                Some(&EOF) if self.deprecates_eof() => return Ok(Some(status_of_ok(packet))),
                // A longer one is a row that begins with a long text.
                Some(&EOF) if packet.len() < 9 => return Ok(Some(status_of_eof(packet))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads what a statement was made into.
    fn prepared(&self, packets: &mut Packets<'_>) -> Result<Option<u16>, Garbled> {
        let Some(packet) = packets.next()? else { return Ok(None) };
        let [OK, _, _, _, _, columns @ .., _, _, _] = packet else { return Ok(Some(0)) };
        let [few, many, parameters, more_parameters] = columns else { return Err(Garbled) };
        let counts = [[*parameters, *more_parameters], [*few, *many]];
        for count in counts.map(u16::from_le_bytes) {
            if self.definitions(packets, count.into())?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(0))
    }

    fn deprecates_eof(&self) -> bool {
        self.server & self.client & DEPRECATE_EOF != 0
    }
}

/// Packets one after the other: three bytes that say how long each is, lowest first, and its number.
struct Packets<'a> {
    bytes: &'a [u8],
    read: usize,
}

impl<'a> Packets<'a> {
    /// The content of the next one, if it is whole.
    fn next(&mut self) -> Result<Option<&'a [u8]>, Garbled> {
        let rest = &self.bytes[self.read..];
        let Some([low, middle, high, _]) = rest.first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
        if length == 0xff_ffff {
            return Err(Garbled);
        }
        let content = rest.get(4..4 + length);
        if content.is_some() {
            self.read += 4 + length;
        }
        Ok(content)
    }
}

/// What the server of a greeting can do; nothing, if it is an error.
fn capabilities_of_server(greeting: &[u8]) -> u64 {
    let version = greeting.iter().skip(1).position(|byte| *byte == 0).unwrap_or(greeting.len());
    // Behind the version: a connection's number, eight bytes of salt and a zero; then, apart from each other, both
    // halves.
    let low = version + 2 + 4 + 8 + 1;
    let half = |at: usize| greeting.get(at..at + 2).map_or(0, |half| u16::from_le_bytes([half[0], half[1]]));
    // MariaDB's own are behind the length of the salt and six bytes that say nothing.
    u64::from(half(low)) | u64::from(half(low + 5)) << 16 | number_at(greeting, low + 14) << 32
}

/// Four bytes, lowest first; zero if they are not there.
fn number_at(bytes: &[u8], at: usize) -> u64 {
    let four = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four).into())
}

/// A number of one to nine bytes, and how many those are.
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let width = match bytes.first()? {
        small @ ..=0xfa => return Some((u64::from(*small), 1)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let mut number = [0; 8];
    number[..width].copy_from_slice(bytes.get(1..=width)?);
    Some((u64::from_le_bytes(number), width + 1))
}

/// The status of an OK: behind the number of rows that were changed, and the last number given.
fn status_of_ok(packet: &[u8]) -> u16 {
    let behind = |at: usize| Some(at + integer(packet.get(at..)?)?.1);
    let at = behind(1).and_then(behind);
    at.and_then(|at| packet.get(at..at + 2)).map_or(0, |status| u16::from_le_bytes([status[0], status[1]]))
}

/// The status of an EOF: behind the number of warnings.
fn status_of_eof(packet: &[u8]) -> u16 {
    packet.get(3..5).map_or(0, |status| u16::from_le_bytes([status[0], status[1]]))
}

#[cfg(test)]
mod tests;
