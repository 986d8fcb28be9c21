//! The keys of a lock: names are mapped injectively, and all keys of one lock fall into one cluster slot.

use tollgate_core::LockName;

/// The five keys of a lock, in the order scripts know them.
pub(crate) struct Keys(pub(crate) [String; 5]);

impl Keys {
    pub(crate) fn of(prefix: &str, name: &LockName) -> Self {
        let lock = format!("{prefix}{}", encode(name.as_str()));
        let side = |what: &str| format!("{{{lock}}}:{what}");
        let [fence, queue, waiters, holders] = ["fence", "queue", "waiters", "holders"].map(side);
        Self([lock, fence, queue, waiters, holders])
    }
}

/// Braces would choose a slot of their own, and the percent sign is what they are written with.
fn encode(name: &str) -> String {
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

/// As [`encode`], for a prefix of names.
pub(crate) fn encode_prefix(prefix: &str) -> String {
    encode(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were() {
        for name in ["a", "a b", "50%", "{a}", "%7B", "%257B{", "ä/ö"] {
            let name = LockName::new(name).unwrap();
            let keys = Keys::of("lock:", &name).0;
            for key in &keys {
                assert_eq!(name_of("lock:", key).as_ref(), Some(&name), "{key}");
            }
            assert!(keys[1].starts_with(&format!("{{{}}}", keys[0])), "one slot: {keys:?}");
        }
        assert_eq!(name_of("lock:", "other:a"), None);
    }
}
