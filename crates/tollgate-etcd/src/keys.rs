//! The layout: which keys belong to which lock.
//!
//! ```text
//! <prefix><name>/<lease>-<slot>~<mode>  a claim: the lease in hexadecimal, as etcd's own locks have it, a number that no other
//!                                  claim on this name has in that lease, and `x`, `s`, or `p` and a limit
//! <prefix><name>/<anything else>   a claim of another client, which is exclusive
//! <prefix>\x01withdrawn/<hash>-<lease>-<copy>  this copy of an acquire, which may still be on its way, must do nothing
//! <prefix>\x01floor/<name>           what is added to the revisions of a lock that moved here from another engine
//! <prefix>\x01restored            this etcd was restored from a backup
//! ```
//!
//! A remainder with a `/` belongs to a longer name, and no name has a control character: two names never meet. `\x01` is one that
//! can be written in a shell.

use sha2::{Digest, Sha256};
use tollgate_core::turn::Place;
use tollgate_core::{LockName, Mode, OwnerId};

use crate::wire::KeyValue;

/// Where the keys of locks are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    prefix: String,
}

/// A range of keys: from the first, to before the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) key: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl Layout {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// The key of a claim that hangs on `lease` and has this number there.
    pub(crate) fn claim(&self, name: &LockName, lease: i64, slot: u32, mode: Mode) -> Vec<u8> {
        let start = format!("{}{name}/{lease:x}-{slot}~", self.prefix);
        let key = match mode {
            Mode::Exclusive => start + "x",
            Mode::Shared => start + "s",
            Mode::Permit { limit } => format!("{start}p{limit}"),
        };
        key.into_bytes()
    }

    /// The key that keeps a copy of an acquire from doing anything.
    pub(crate) fn withdrawn(&self, owner: OwnerId, lease: i64, copy: u32) -> Vec<u8> {
        format!("{}\x01withdrawn/{:032x}-{lease:x}-{copy}", self.prefix, hash(owner)).into_bytes()
    }

    /// The key that has what is added to a lock's revisions.
    pub(crate) fn floor(&self, name: &LockName) -> Vec<u8> {
        format!("{}\x01floor/{name}", self.prefix).into_bytes()
    }

    /// The keys of all locks to whose revisions something is added.
    pub(crate) fn floors(&self) -> Span {
        let key = format!("{}\x01floor/", self.prefix).into_bytes();
        Span { end: after_all(&key), key }
    }

    /// The key that says that this etcd was restored from a backup.
    pub(crate) fn restored(&self) -> Vec<u8> {
        format!("{}\x01restored", self.prefix).into_bytes()
    }

    /// A key that nobody has, to see what is allowed.
    pub(crate) fn probe(&self) -> Vec<u8> {
        format!("{}\x01probe", self.prefix).into_bytes()
    }

    /// All claims on `name`, and those on longer names.
    pub(crate) fn claims_on(&self, name: &LockName) -> Span {
        // What follows `/` in the order of bytes is `0`.
        Span {
            key: format!("{}{name}/", self.prefix).into_bytes(),
            end: format!("{}{name}0", self.prefix).into_bytes(),
        }
    }

    /// All keys of locks whose names start with `start`, and a few others.
    pub(crate) fn starting_with(&self, start: &str) -> Span {
        let key = format!("{}{start}", self.prefix).into_bytes();
        Span { end: after_all(&key), key }
    }

    /// The lock that `key` is a claim on.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<LockName> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (name, _) = rest.rsplit_once('/')?;
        LockName::new(name).ok()
    }
}

impl Span {
    /// One key.
    pub(crate) fn one(key: Vec<u8>) -> Self {
        Self { key, end: Vec::new() }
    }

    /// What follows the name in a claim's key, if it is a claim on that name and not on a longer one.
    pub(crate) fn remainder<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.strip_prefix(self.key.as_slice()).filter(|rest| !rest.contains(&b'/'))
    }
}

/// The first key that does not start with `start`.
fn after_all(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Every key.
    vec![0]
}

/// What of an owner id may be seen.
fn hash(owner: OwnerId) -> u128 {
    let digest =
        Sha256::new().chain_update(b"tollgate-etcd").chain_update(owner.to_bits().to_be_bytes()).finalize();
    digest[..16].iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// What tells owners apart, and does not make anybody one.
pub(crate) fn tag(owner: OwnerId) -> u64 {
    (hash(owner) >> 64) as u64
}

/// The mode of a claim, by what follows the name in its key. Others' are exclusive.
pub(crate) fn mode_of(remainder: &[u8]) -> Mode {
    ours(remainder).unwrap_or(Mode::Exclusive)
}

fn ours(remainder: &[u8]) -> Option<Mode> {
    let text = std::str::from_utf8(remainder).ok()?;
    let (_, rest) = text.split_once('-')?;
    let (slot, mode) = rest.split_once('~')?;
    slot.parse::<u32>().ok()?;
    match mode.split_at_checked(1)? {
        ("x", "") => Some(Mode::Exclusive),
        ("s", "") => Some(Mode::Shared),
        ("p", limit) => Mode::permit(limit.parse().ok()?),
        _ => None,
    }
}

/// Whether a claim is one of ours and not of another kind of client.
#[cfg(test)]
fn is_ours(remainder: &[u8]) -> bool {
    ours(remainder).is_some()
}

/// The claim on the lock of `span` that `found` is; none if it is one on a longer name.
pub(crate) fn place(span: &Span, found: &KeyValue) -> Option<Place<Vec<u8>>> {
    let mode = mode_of(span.remainder(&found.key)?);
    Some(Place { key: found.key.to_vec(), mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn a_key_tells_its_lock_and_its_mode() {
        let layout = Layout::new("/locks/".to_owned());
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(17).unwrap()] {
            for lock in ["a", "a/b", "a/", "/", "//", "größe", "x-y"] {
                let lock = name(lock);
                let key = layout.claim(&lock, 0x694d_7f00, 3, mode);
                assert_eq!(layout.name_of(&key), Some(lock.clone()));
                let rest = layout.claims_on(&lock).remainder(&key).unwrap().to_vec();
                assert_eq!(mode_of(&rest), mode);
                assert!(is_ours(&rest));
            }
        }
    }

    #[test]
    fn other_clients_claims_are_exclusive() {
        for other in
            ["694d7f", "694d-s12", "694d-0~p0", "694d-0~", "694d-0~x1", "694d-a~s", "", "-", "694d-é~s"]
        {
            assert_eq!(mode_of(other.as_bytes()), Mode::Exclusive, "{other}");
            assert!(!is_ours(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn longer_names_and_our_own_keys_are_no_claims_on_a_name() {
        let layout = Layout::new("/locks/".to_owned());
        let (short, long) = (name("a"), name("a/b"));
        let key = layout.claim(&long, 1, 0, Mode::Exclusive);
        assert_eq!(layout.claims_on(&short).remainder(&key), None);
        assert!(key > layout.claims_on(&short).key && key < layout.claims_on(&short).end);
        assert_eq!(layout.name_of(&layout.withdrawn(OwnerId::random(), 1, 1)), None);
        assert_eq!(layout.name_of(&layout.floor(&short)), None);
        assert_eq!(layout.name_of(&layout.floor(&long)), None);
        assert_eq!(layout.name_of(&layout.restored()), None);
    }

    #[test]
    fn a_span_ends_after_everything_that_starts_alike() {
        assert_eq!(after_all(b"a"), b"b");
        assert_eq!(after_all(b"a\xff"), b"b");
        assert_eq!(after_all(b""), b"\0");
    }
}
