//! Requests and answers.

use super::fault::Code;
use super::jute::{Garbled, Reader, Writer};
use super::watches::Kind;

/// The numbers of requests.
mod opcode {
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE: i32 = 15;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const AUTH: i32 = 100;
    pub(super) const SET_WATCHES: i32 = 101;
    pub(super) const CLOSE: i32 = -11;
    /// Of a step of a `multi` that failed, and after the last one.
    pub(super) const ERROR: i32 = -1;
}

/// What an authentication is numbered with, whenever it is sent.
pub(crate) const AUTH_XID: i32 = -4;
/// What a watch's event is numbered with.
pub(crate) const EVENT_XID: i32 = -1;
/// Where a frame has its number: after its length.
const XID: std::ops::Range<usize> = 4..8;
/// Any version of a node.
const ANY: i32 = -1;

/// How a node is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flags {
    Persistent,
    EphemeralSequential,
    /// Removed by ZooKeeper when it has been empty for a while.
    Container,
}

/// A frame, complete but for its number.
#[derive(Debug)]
pub(crate) struct Request {
    frame: Writer,
    /// What it asks to be told of.
    pub(super) watches: Vec<(Kind, Box<str>)>,
}

impl Request {
    fn new(opcode: i32) -> Self {
        let mut frame = Writer(Vec::with_capacity(256));
        // The length and the number, which are known later.
        frame.int(0).int(0).int(opcode);
        Self { frame, watches: Vec::new() }
    }

    fn of_path(opcode: i32, path: &str) -> Self {
        let mut request = Self::new(opcode);
        request.frame.text(path);
        request
    }

    fn watching(opcode: i32, path: &str, watch: Option<Kind>) -> Self {
        let mut request = Self::of_path(opcode, path);
        request.frame.flag(watch.is_some());
        request.watches.extend(watch.map(|kind| (kind, path.into())));
        request
    }

    pub(crate) fn create(path: &str, data: &[u8], acl: &[Acl], flags: Flags) -> Self {
        let container = flags == Flags::Container;
        let mut request = Self::new(if container { opcode::CREATE_CONTAINER } else { opcode::CREATE });
        write_create(&mut request.frame, path, data, acl, flags);
        request
    }

    pub(crate) fn delete(path: &str) -> Self {
        let mut request = Self::of_path(opcode::DELETE, path);
        request.frame.int(ANY);
        request
    }

    /// Whether it is there; `watch` asks to be told when that or its data change.
    pub(crate) fn exists(path: &str, watch: bool) -> Self {
        Self::watching(opcode::EXISTS, path, watch.then_some(Kind::Node))
    }

    pub(crate) fn get_data(path: &str, watch: bool) -> Self {
        Self::watching(opcode::GET_DATA, path, watch.then_some(Kind::Node))
    }

    pub(crate) fn get_children(path: &str, watch: bool) -> Self {
        Self::watching(opcode::GET_CHILDREN, path, watch.then_some(Kind::Children))
    }

    /// To be told when these are deleted, at once of those that are not there, or written again.
    pub(crate) fn watch_all(paths: &[String]) -> Self {
        let mut request = Self::new(opcode::SET_WATCHES);
        // What was written before does not matter.
        request.frame.long(i64::MAX).count(paths.len());
        for path in paths {
            request.frame.text(path);
            request.watches.push((Kind::Node, path.as_str().into()));
        }
        // Nothing that is not there yet, and no lists.
        request.frame.count(0).count(0);
        request
    }

    pub(crate) fn set_data(path: &str, data: &[u8], version: Option<i32>) -> Self {
        let mut request = Self::of_path(opcode::SET_DATA, path);
        request.frame.bytes(data).int(version.unwrap_or(ANY));
        request
    }

    pub(crate) fn get_acl(path: &str) -> Self {
        Self::of_path(opcode::GET_ACL, path)
    }

    pub(crate) fn sync(path: &str) -> Self {
        Self::of_path(opcode::SYNC, path)
    }

    /// All of them or none.
    pub(crate) fn multi<'a>(steps: impl IntoIterator<Item = Step<'a>>) -> Self {
        let mut request = Self::new(opcode::MULTI);
        let frame = &mut request.frame;
        for step in steps {
            let opcode = match step {
                Step::Check { .. } => opcode::CHECK,
                Step::Create { .. } => opcode::CREATE,
                Step::Set { .. } => opcode::SET_DATA,
                Step::Delete { .. } => opcode::DELETE,
            };
            frame.int(opcode).flag(false).int(-1);
            match step {
                Step::Check { path } | Step::Delete { path } => {
                    frame.text(path).int(ANY);
                }
                Step::Create { path, data, acl } => write_create(frame, path, data, acl, Flags::Persistent),
                Step::Set { path, data, version } => {
                    frame.text(path).bytes(data).int(version.unwrap_or(ANY));
                }
            }
        }
        frame.int(opcode::ERROR).flag(true).int(-1);
        request
    }

    pub(crate) fn auth(scheme: &str, secret: &[u8]) -> Self {
        let mut request = Self::new(opcode::AUTH);
        request.frame.int(0).text(scheme).bytes(secret);
        request
    }

    /// Ends the session.
    pub(crate) fn close() -> Self {
        Self::new(opcode::CLOSE)
    }

    /// The bytes to send, if it is the request with this number.
    pub(crate) fn frame(mut self, xid: i32) -> Vec<u8> {
        self.frame.0[XID].copy_from_slice(&xid.to_be_bytes());
        measured(self.frame.0)
    }
}

/// A frame whose first four bytes say how many follow.
fn measured(mut frame: Vec<u8>) -> Vec<u8> {
    let length = i32::try_from(frame.len() - 4).unwrap_or(i32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

fn write_create(frame: &mut Writer, path: &str, data: &[u8], acl: &[Acl], flags: Flags) {
    frame.text(path).bytes(data).count(acl.len());
    for entry in acl {
        frame.int(entry.permission.0).text(&entry.scheme).text(&entry.id);
    }
    frame.int(match flags {
        Flags::Persistent => 0,
        Flags::EphemeralSequential => 3,
        Flags::Container => 4,
    });
}

/// One of the steps that are done together.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// The node is there.
    Check {
        path: &'a str,
    },
    Create {
        path: &'a str,
        data: &'a [u8],
        acl: &'a [Acl],
    },
    Set {
        path: &'a str,
        data: &'a [u8],
        version: Option<i32>,
    },
    Delete {
        path: &'a str,
    },
}

/// What the first frame of a connection asks for.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    /// The last transaction that was seen; no server that is behind it will do.
    pub(crate) seen: i64,
    pub(crate) timeout_ms: i32,
    /// The session that is to go on; 0 and nothing for a new one.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl Hello {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = Writer::default();
        frame.int(0).int(0).long(self.seen).int(self.timeout_ms).long(self.session);
        frame.bytes(&self.password).flag(false);
        measured(frame.0)
    }
}

/// What it is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// 0 if there is no such session.
    pub(crate) timeout_ms: u32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

/// The head of every other answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) code: Code,
}

/// What ZooKeeper says of a node. Only what somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created it.
    pub(crate) czxid: i64,
    /// The one that last changed its data.
    pub(crate) mzxid: i64,
    pub(crate) version: i32,
    /// The session that it ends with; 0 if none.
    pub(crate) ephemeral_owner: i64,
}

/// Who may do what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl {
    permission: Permission,
    scheme: String,
    id: String,
}

impl Acl {
    pub(crate) fn new(permission: Permission, scheme: &str, id: &str) -> Self {
        Self { permission, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn permission(&self) -> Permission {
        self.permission
    }
}

/// What may be done with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permission(i32);

impl Permission {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ: Self = Self(1);
    pub(crate) const CREATE: Self = Self(4);
    pub(crate) const DELETE: Self = Self(8);
    pub(crate) const ALL: Self = Self(31);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Permission {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How answers are read.
pub(crate) mod answer {
    use super::{Acl, Code, Garbled, Head, Permission, Reader, Stat, Welcome, opcode};

    /// Each step's own, in their order: nothing, or why it was not done.
    pub(crate) type Steps = Vec<Result<(), Code>>;

    pub(crate) fn welcome(body: &[u8]) -> Result<Welcome, Garbled> {
        let mut reader = Reader(body);
        reader.int()?;
        // Less than nothing is nothing.
        let timeout_ms = u32::try_from(reader.int()?).unwrap_or(0);
        let (session, password) = (reader.long()?, reader.bytes()?.to_vec());
        Ok(Welcome { timeout_ms, session, password })
    }

    pub(crate) fn head<'a>(reader: &mut Reader<'a>) -> Result<Head, Garbled> {
        Ok(Head { xid: reader.int()?, zxid: reader.long()?, code: Code(reader.int()?) })
    }

    pub(crate) fn nothing(_: &mut Reader<'_>) -> Result<(), Garbled> {
        Ok(())
    }

    pub(crate) fn stat(reader: &mut Reader<'_>) -> Result<Stat, Garbled> {
        let (czxid, mzxid) = (reader.long()?, reader.long()?);
        let _times = (reader.long()?, reader.long()?);
        let version = reader.int()?;
        let _versions = (reader.int()?, reader.int()?);
        let ephemeral_owner = reader.long()?;
        let _rest = (reader.int()?, reader.int()?, reader.long()?);
        Ok(Stat { czxid, mzxid, version, ephemeral_owner })
    }

    /// The path that a node really has, and what ZooKeeper says of it.
    pub(crate) fn created(reader: &mut Reader<'_>) -> Result<(String, Stat), Garbled> {
        Ok((reader.text()?, stat(reader)?))
    }

    pub(crate) fn data(reader: &mut Reader<'_>) -> Result<(Vec<u8>, Stat), Garbled> {
        Ok((reader.bytes()?.to_vec(), stat(reader)?))
    }

    pub(crate) fn children(reader: &mut Reader<'_>) -> Result<Vec<String>, Garbled> {
        let count = reader.count(4)?;
        (0..count).map(|_| reader.text()).collect()
    }

    pub(crate) fn acl(reader: &mut Reader<'_>) -> Result<Vec<Acl>, Garbled> {
        let count = reader.count(12)?;
        let entry = |_| {
            let permission = Permission(reader.int()?);
            Ok(Acl { permission, scheme: reader.text()?, id: reader.text()? })
        };
        (0..count).map(entry).collect()
    }

    pub(crate) fn steps(reader: &mut Reader<'_>) -> Result<Steps, Garbled> {
        let mut steps = Vec::new();
        loop {
            let (opcode, done, _) = (reader.int()?, reader.flag()?, reader.int()?);
            if done {
                return Ok(steps);
            }
            steps.push(match opcode {
                opcode::CHECK | opcode::DELETE => Ok(()),
                opcode::CREATE => created(reader).map(drop).map(Ok)?,
                opcode::SET_DATA => stat(reader).map(drop).map(Ok)?,
                opcode::ERROR => match Code(reader.int()?) {
                    Code(0) => Ok(()),
                    code => Err(code),
                },
                _ => return Err(Garbled),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.0
    }

    fn write_stat(writer: &mut Writer, stat: &Stat) {
        writer.long(stat.czxid).long(stat.mzxid).long(1).long(2).int(stat.version).int(3).int(4);
        writer.long(stat.ephemeral_owner).int(5).int(6).long(7);
    }

    proptest! {
        #[test]
        fn answers_are_understood(
            path: String,
            data: Vec<u8>,
            names: Vec<String>,
            numbers: (i64, i64, i32, i64),
        ) {
            let (czxid, mzxid, version, ephemeral_owner) = numbers;
            let stat = Stat { czxid, mzxid, version, ephemeral_owner };
            let created = written(|writer| write_stat(writer.text(&path), &stat));
            prop_assert_eq!(answer::created(&mut Reader(&created)), Ok((path, stat)));
            let read = written(|writer| write_stat(writer.bytes(&data), &stat));
            prop_assert_eq!(answer::data(&mut Reader(&read)), Ok((data, stat)));
            let listed = written(|writer| {
                writer.count(names.len());
                for name in &names {
                    writer.text(name);
                }
            });
            prop_assert_eq!(answer::children(&mut Reader(&listed)), Ok(names));
            for short in 0..created.len() {
                prop_assert_eq!(answer::created(&mut Reader(&created[..short])), Err(Garbled));
            }
        }

        /// Whatever comes: an error at most.
        #[test]
        fn garbage_is_borne(garbage: Vec<u8>) {
            let reader = || Reader(&garbage);
            let _ = answer::welcome(&garbage);
            let _ = answer::head(&mut reader());
            let _ = answer::created(&mut reader());
            let _ = answer::data(&mut reader());
            let _ = answer::children(&mut reader());
            let _ = answer::acl(&mut reader());
            let _ = answer::steps(&mut reader());
        }
    }

    #[test]
    fn a_frame_says_how_long_it_is_and_which_request() {
        let frame = Request::delete("/a").frame(7);
        assert_eq!(frame, [0, 0, 0, 18, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 2, b'/', b'a', 255, 255, 255, 255]);
        let hello = Hello { seen: 1, timeout_ms: 2, session: 3, password: vec![9; 16] }.frame();
        assert_eq!((hello.len(), &hello[..4]), (49, [0, 0, 0, 45].as_slice()));
    }

    #[test]
    fn the_step_that_failed_is_told() {
        let body = written(|writer| {
            for code in [0, -101, -2] {
                writer.int(-1).flag(false).int(code).int(code);
            }
            writer.int(-1).flag(true).int(-1);
        });
        let steps = answer::steps(&mut Reader(&body)).unwrap();
        assert_eq!(steps, [Ok(()), Err(Code::NO_NODE), Err(Code::INCONSISTENT)]);
    }
}
