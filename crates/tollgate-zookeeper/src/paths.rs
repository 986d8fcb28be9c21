//! The layouts: which nodes belong to which lock, and what their names say.
//!
//! ```text
//! <root>/<name>/<tag>-<mode>-<end><N>   a claim of ours: what tells claims apart, `x`, `s`, or `p` and a limit, and what other
//!                                       clients look for, with the sequence number that ZooKeeper gave
//! <root>/<name>/<anything><end><N>      a claim of another client
//! <root>/%floor                         what is added to tokens, see `floor.rs`; no name has such a path
//! ```

use sha2::{Digest, Sha256};
use tollgate_core::{LockName, Mode, OwnerId};

use crate::config::Style;
use crate::names::path_of;

/// What the names of claims end with before their number, in any layout.
const ENDS: [&str; 5] = ["lock-", "__READ__", "__WRIT__", "__lock__", "__rlock__"];

/// Where the nodes of locks are, and whose they look like.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: String,
    style: Style,
}

/// What the name of a claim's node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// All of it.
    pub(crate) name: String,
    /// Its place among the claims on its lock, unless numbers have come to their end: see `order.rs`.
    pub(crate) sequence: i32,
    pub(crate) mode: Mode,
}

impl Layout {
    pub(crate) fn new(root: String, style: Style) -> Self {
        Self { root, style }
    }

    /// The folder of all locks.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The folder of a lock.
    pub(crate) fn folder(&self, name: &LockName) -> String {
        format!("{}/{}", self.root, path_of(name))
    }

    /// The node that has what is added to tokens.
    pub(crate) fn floor(&self) -> String {
        format!("{}/%floor", self.root)
    }

    /// What the name of a claim's node starts with, up to its number.
    pub(crate) fn start(&self, owner: OwnerId, mode: Mode) -> String {
        let mark = match mode {
            Mode::Exclusive => "x".to_owned(),
            Mode::Shared => "s".to_owned(),
            Mode::Permit { limit } => format!("p{limit}"),
        };
        format!("{}-{mark}-{}", tag(owner), self.end(mode))
    }

    /// What other clients look for in the name of a claim with this mode. Permits they take for exclusive.
    fn end(&self, mode: Mode) -> &'static str {
        match (self.style, mode) {
            (Style::Curator, _) => "lock-",
            (Style::CuratorReadWrite, Mode::Shared) => "__READ__",
            (Style::CuratorReadWrite, _) => "__WRIT__",
            (Style::Kazoo, Mode::Shared) => "__rlock__",
            (Style::Kazoo, _) => "__lock__",
        }
    }

    /// What a node in a lock's folder is; none if it is no claim in this layout.
    pub(crate) fn read(&self, name: &str) -> Option<Node> {
        let (before, end, sequence) = split(name)?;
        let foreign = match (self.style, end) {
            (Style::Curator, "lock-")
            | (Style::CuratorReadWrite, "__WRIT__")
            | (Style::Kazoo, "__lock__") => Mode::Exclusive,
            (Style::CuratorReadWrite, "__READ__") | (Style::Kazoo, "__rlock__") => Mode::Shared,
            _ => return None,
        };
        let mode = ours(before).filter(|mode| self.end(*mode) == end).unwrap_or(foreign);
        Some(Node { name: name.to_owned(), sequence, mode })
    }
}

/// What tells the claims of owners apart, and does not make anybody one.
pub(crate) fn tag(owner: OwnerId) -> String {
    let digest = Sha256::new()
        .chain_update(b"tollgate-zookeeper")
        .chain_update(owner.to_bits().to_be_bytes())
        .finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Those of `nodes` that were made for claims of this owner.
pub(crate) fn of_owner(owner: OwnerId, nodes: &[String]) -> impl Iterator<Item = &String> {
    let tag = tag(owner);
    nodes.iter().filter(move |node| has(&tag, node))
}

/// Whether a node was made for a claim of this owner.
pub(crate) fn is_of(owner: OwnerId, node: &str) -> bool {
    has(&tag(owner), node)
}

fn has(tag: &str, node: &str) -> bool {
    node.strip_prefix(tag).is_some_and(|rest| rest.starts_with('-'))
}

/// Whether a part of a name could be taken for a claim.
pub(crate) fn is_like_a_claim(part: &str) -> bool {
    split(part).is_some()
}

/// What is before the end of a claim's name, that end, and the number.
fn split(name: &str) -> Option<(&str, &str, i32)> {
    let digits = name.len() - name.trim_end_matches(|char: char| char.is_ascii_digit()).len();
    let (rest, number) = name.split_at(name.len() - digits);
    // As ZooKeeper writes it: ten places, and one more for the sign only if it has ten digits.
    let (rest, number) = match (number.len(), rest.strip_suffix('-')) {
        (10, Some(negative)) if ends_like_one(negative).is_some() => (negative, &name[negative.len()..]),
        (9, Some(negative)) => (negative, &name[negative.len()..]),
        (10, _) => (rest, number),
        _ => return None,
    };
    let end = ends_like_one(rest)?;
    Some((&rest[..rest.len() - end.len()], end, number.parse().ok()?))
}

fn ends_like_one(rest: &str) -> Option<&'static str> {
    ENDS.into_iter().find(|end| rest.ends_with(end))
}

/// The mode in the name of a claim of ours, by what is before its end.
fn ours(before: &str) -> Option<Mode> {
    let (tag, mark) = before.strip_suffix('-')?.split_once('-')?;
    if tag.len() != 32 || !tag.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match mark.split_at_checked(1)? {
        ("x", "") => Some(Mode::Exclusive),
        ("s", "") => Some(Mode::Shared),
        ("p", limit) => Mode::permit(limit.parse().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLES: [Style; 3] = [Style::Curator, Style::CuratorReadWrite, Style::Kazoo];

    #[test]
    fn a_node_tells_its_mode_and_its_place() {
        let owner = OwnerId::random();
        for style in STYLES {
            let layout = Layout::new("/locks".to_owned(), style);
            for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(17).unwrap()] {
                for sequence in [0, 1, 42, i32::MAX, i32::MIN, -1, -42] {
                    let name = format!("{}{sequence:010}", layout.start(owner, mode));
                    let node = layout.read(&name).unwrap();
                    assert_eq!((node.mode, node.sequence), (mode, sequence), "{name}");
                    assert!(is_of(owner, &name) && !is_of(OwnerId::random(), &name));
                    assert!(is_like_a_claim(&name));
                }
            }
        }
    }

    #[test]
    fn others_claims_are_what_they_say() {
        let read = |style, name: &str| {
            Layout::new(String::new(), style).read(name).map(|node| (node.mode, node.sequence))
        };
        let curator = "_c_6e2f1d3c-0c0a-4b4e-9a6a-0a6a0a6a0a6a-lock-0000000007";
        assert_eq!(read(Style::Curator, curator), Some((Mode::Exclusive, 7)));
        assert_eq!(read(Style::Curator, "lock-0000000007"), Some((Mode::Exclusive, 7)));
        let (writes, reads) = ("_c_6e2f-__WRIT__0000000001", "_c_6e2f-__READ__0000000002");
        assert_eq!(read(Style::CuratorReadWrite, writes), Some((Mode::Exclusive, 1)));
        assert_eq!(read(Style::CuratorReadWrite, reads), Some((Mode::Shared, 2)));
        assert_eq!(read(Style::CuratorReadWrite, curator), None);
        assert_eq!(read(Style::Kazoo, "6e2f__lock__0000000001"), Some((Mode::Exclusive, 1)));
        assert_eq!(read(Style::Kazoo, "6e2f__rlock__-000000001"), Some((Mode::Shared, -1)));
        assert_eq!(read(Style::Kazoo, "6e2f__rlock__-2147483648"), Some((Mode::Shared, i32::MIN)));
        for other in ["orders", "lock-1", "lock-00000000012", "lock-9999999999", "", "-0000000001"] {
            assert_eq!(read(Style::Curator, other), None, "{other}");
        }
    }
}
