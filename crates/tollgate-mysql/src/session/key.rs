//! What a lock is called by `GET_LOCK`.

use sha2::{Digest, Sha256};
use tollgate_core::LockName;

/// As many bytes as the server takes.
const LONGEST: usize = 64;

/// The name itself if every server takes it as it is; else `tg:` and half of its SHA-256 in hex. Servers compare without
/// regard to case, and cut or refuse what is longer than 64 characters.
pub(super) fn key(name: &LockName) -> String {
    let name = name.as_str();
    let plain = name.len() <= LONGEST
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
        && !name.starts_with("tg:");
    if plain {
        return name.to_owned();
    }
    let hash = Sha256::digest(name.as_bytes());
    hash[..16].iter().fold("tg:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> String {
        key(&LockName::new(name).expect("a name"))
    }

    #[test]
    fn names_that_a_server_would_take_for_each_other_are_told_apart() {
        assert_eq!(of("orders/42"), "orders/42");
        let odd = ["Orders/42", "orders 42", "orders/42 ", "ä", &"x".repeat(65), "tg:orders"];
        let keys: std::collections::HashSet<_> = odd.iter().map(|name| of(name)).collect();
        assert_eq!(keys.len(), odd.len());
        assert!(keys.iter().all(|key| key.starts_with("tg:") && key.len() == 35));
    }
}
