//! The scripts, known to every node by their hashes from the moment a connection is opened.

use std::sync::LazyLock;

use redis::{Cmd, Script};

/// The node's own record: `RUN_ID G MAX_TTL`.
pub(crate) const MEMBER: &str = "tollgate:member";
/// Who may make the node a voter.
pub(crate) const MUTEX: &str = "tollgate:recovery";

/// Since when somebody has known that the node has forgotten everything.
pub(crate) const EMPTY: &str = "tollgate:empty";

/// A script.
pub(crate) struct Lua {
    pub(crate) code: &'static str,
    hash: LazyLock<String>,
}

impl Lua {
    /// A request for it; keys and arguments follow.
    pub(crate) fn request(&self, keys: &[&str]) -> Cmd {
        let mut request = Cmd::new();
        request.arg("EVALSHA").arg(self.hash.as_str()).arg(keys.len()).arg(keys);
        request
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal,)*) => {
        $($(#[$doc])* pub(crate) static $name: Lua = Lua {
            code: include_str!(concat!("../scripts/redlock/", $file, ".lua")),
            hash: LazyLock::new(|| {
                let code = include_str!(concat!("../scripts/redlock/", $file, ".lua"));
                Script::new(code).get_hash().to_owned()
            }),
        };)*

        /// All of them.
        pub(crate) static ALL: &[&Lua] = &[$(&$name),*];

        /// By which hash a node is asked for a script, for those who watch what is sent.
        pub fn redlock_hash_of(name: &str) -> Option<&'static str> {
            match name {
                $($file => Some($name.hash.as_str()),)*
                _ => None,
            }
        }
    };
}

scripts! {
    /// Takes the lock on a node.
    ACQUIRE = "acquire",
    /// Brings a node to the token of the others.
    COMMIT = "commit",
    /// Renews a grant on a node.
    RENEW = "renew",
    /// Gives a grant to a node that lost it.
    HEAL = "heal",
    /// Gives the lock back on a node.
    RELEASE = "release",
    /// Looks at a lock on a node.
    LOOK = "look",
    /// Raises the tokens of a lock on a node.
    FLOOR = "floor",
    /// Makes a node a voter.
    ADMIT = "admit",
    /// Raises all tokens of a node.
    RAISE = "raise",
    /// Finds out since when a node is known to have forgotten everything.
    NOTICE = "notice",
    /// Gives a node's mutex key back.
    UNLOCK = "unlock",
}
