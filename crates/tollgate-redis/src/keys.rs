//! The keys of a lock: names are mapped injectively, and all keys of one lock fall into one cluster slot.

use tollgate_core::{Error, LockName, Result};

/// Refuses a prefix with which a lock's keys would not be in one slot.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.contains(['{', '}']) {
        return Err(Error::invalid(
            "a prefix with braces would put a lock's keys into different slots; leave the braces out",
        ));
    }
    Ok(())
}

/// The key of a lock itself; scripts name the others after it.
pub(crate) fn key_of(prefix: &str, name: &LockName) -> String {
    let name = name.as_str();
    if name.contains(['%', '{', '}']) {
        return format!("{prefix}{}", encode(name));
    }
    let mut key = String::with_capacity(prefix.len() + name.len());
    key.push_str(prefix);
    key.push_str(name);
    key
}

/// Where the largest token of the lock with the key `key` is.
pub(crate) fn fence_of(key: &str) -> String {
    let mut fence = String::with_capacity(key.len() + 8);
    for part in ["{", key, "}:fence"] {
        fence.push_str(part);
    }
    fence
}

/// A name, or how names begin, as it stands in keys: braces would choose a slot of their own, and the percent sign is what
/// they are written with.
pub(crate) fn encode(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

/// The name of the lock with the key `key`; `None` if that is no lock's key under `prefix`.
pub(crate) fn name_of(prefix: &str, key: &str) -> Option<LockName> {
    let key = match key.strip_prefix('{') {
        Some(side) => side.split_once("}:")?.0,
        None => key,
    };
    let encoded = key.strip_prefix(prefix)?;
    LockName::new(encoded.replace("%7B", "{").replace("%7D", "}").replace("%25", "%")).ok()
}

/// A pattern for keys that start with `text`.
pub(crate) fn starting_with(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were() {
        for name in ["a", "a b", "50%", "{a}", "%7B", "%257B{", "ä/ö"] {
            let name = LockName::new(name).unwrap();
            let key = key_of("lock:", &name);
            assert!(!key.contains(['{', '}']), "all of its keys are in one slot: {key}");
            for key in [key.clone(), format!("{{{key}}}:queue")] {
                assert_eq!(name_of("lock:", &key).as_ref(), Some(&name), "{key}");
            }
        }
        assert_eq!(name_of("lock:", "other:a"), None);
    }
}
