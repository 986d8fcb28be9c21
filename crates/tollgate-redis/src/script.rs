//! The scripts, loaded once by their hashes.

use std::sync::LazyLock;

use redis::Script;

/// Scripts made of files; what is in brackets stands before what all have in common.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $([$first:literal])? $file:literal,)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                $(include_str!(concat!("scripts/", $first)), "\n",)?
                include_str!("scripts/common.lua"), "\n",
                include_str!(concat!("scripts/", $file)),
            ))
        });)*
    };
}

scripts! {
    /// Takes the lock, or a place in its queue.
    ACQUIRE = ["acquire_free.lua"] "acquire.lua",
    /// Makes sure that nothing of a claim is left.
    WITHDRAW = "withdraw.lua",
    /// Renews a grant.
    EXTEND = "extend.lua",
    /// Gives the lock back and hands it on.
    RELEASE = ["release_alone.lua"] "release.lua",
    /// Breaks a lock.
    REVOKE = "revoke.lua",
    /// Looks at a lock.
    INSPECT = "inspect.lua",
    /// Raises the tokens of a lock.
    FLOOR = "floor.lua",
}

/// By which hash Redis is asked for a script, for those who watch what is sent.
pub fn hash_of(name: &str) -> Option<&'static str> {
    let script: &'static LazyLock<Script> = match name {
        "acquire" => &ACQUIRE,
        "withdraw" => &WITHDRAW,
        "extend" => &EXTEND,
        "release" => &RELEASE,
        _ => return None,
    };
    Some(script.get_hash())
}
