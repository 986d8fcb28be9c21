//! Names of locks as paths of ZooKeeper's, and back. Two names never meet.
//!
//! A `/` in a name makes a node below a node. What ZooKeeper does not take, and what looks like a claim, is percent-encoded.

use tollgate_core::LockName;

use crate::paths::is_like_a_claim;

/// A part of a name that has nothing in it.
const NOTHING: &str = "%00";

/// The path of a lock's folder below the folder of all, without a `/` at its start.
pub(crate) fn path_of(name: &LockName) -> String {
    name.as_str().split('/').map(encoded).collect::<Vec<_>>().join("/")
}

/// The name whose folder is `path`; none if no name has that.
pub(crate) fn name_of(path: &str) -> Option<LockName> {
    LockName::new(start_of(path)?).ok()
}

/// What the names start with whose folders are at `path` or below; none if no name has such a path.
pub(crate) fn start_of(path: &str) -> Option<String> {
    let part = |part: &str| decoded(part).filter(|plain| encoded(plain) == part);
    let parts: Option<Vec<String>> = path.split('/').map(part).collect();
    Some(parts?.join("/"))
}

fn encoded(part: &str) -> String {
    if part.is_empty() {
        return NOTHING.to_owned();
    }
    let hide_first = part == "." || part == ".." || is_like_a_claim(part);
    let mut path = String::with_capacity(part.len());
    for (at, char) in part.char_indices() {
        if (at == 0 && hide_first) || char == '%' || !is_taken(char) {
            let mut bytes = [0; 4];
            for byte in char.encode_utf8(&mut bytes).bytes() {
                path.push_str(&format!("%{byte:02X}"));
            }
        } else {
            path.push(char);
        }
    }
    path
}

/// Whether ZooKeeper takes a character in a path.
pub(crate) fn is_taken(char: char) -> bool {
    !char.is_control() && !matches!(char, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

fn decoded(part: &str) -> Option<String> {
    if part == NOTHING {
        return Some(String::new());
    }
    tollgate_core::url::decoded(part).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn names_are_found_again_by_their_paths() {
        for (text, path) in [
            ("a", "a"),
            ("orders/42", "orders/42"),
            ("größe", "größe"),
            ("a%b", "a%25b"),
            (".", "%2E"),
            ("../x", "%2E./x"),
            ("...", "..."),
            ("/", "%00/%00"),
            ("a//b", "a/%00/b"),
            ("lock-0000000001", "%6Cock-0000000001"),
            ("lock-1", "lock-1"),
            ("\u{e000}", "%EE%80%80"),
            ("\u{fffd}", "%EF%BF%BD"),
            ("😀", "%F0%9F%98%80"),
        ] {
            assert_eq!(path_of(&name(text)), path);
            assert_eq!(name_of(path), Some(name(text)), "{path}");
        }
    }

    #[test]
    fn what_no_name_has_is_no_name() {
        for path in ["", "a/", "%41", "%00x", "a%", "%floor", "%C3", "%00"] {
            assert_eq!(name_of(path), None, "{path}");
        }
        assert_eq!(start_of("%00").as_deref(), Some(""), "of /x");
        assert_eq!(start_of("%floor"), None);
    }
}
