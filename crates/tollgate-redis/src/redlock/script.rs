//! The scripts, known to every node by their hashes from the moment a connection is opened, and questions made of them.

use std::sync::LazyLock;

use redis::{Arg, Cmd, Script, ToRedisArgs};

use crate::redlock::link::Link;

/// What all keys start with by which a node is a voter: no lock may be among them.
pub(crate) const RESERVED: &str = "tollgate:";
/// What a node remembers of its membership, for its next run, too: `RUN_ID G MAX_TTL`.
pub(crate) const RECORD: &str = "tollgate:member";
/// Who may make the node a voter.
pub(crate) const MUTEX: &str = "tollgate:recovery";
/// Since when somebody has known that the node has forgotten everything.
pub(crate) const EMPTY: &str = "tollgate:empty";

/// The key that makes a node a voter in one run, and has its G. Named after the run, so that to find it is to check it.
pub(crate) fn member_of(run_id: &str) -> String {
    format!("tollgate:member:{run_id}")
}

/// A script.
pub(crate) struct Lua {
    pub(crate) code: &'static str,
    hash: LazyLock<String>,
}

impl Lua {
    /// Asked of a voter: the node's member key follows `keys`.
    pub(crate) fn of_voter(&self, keys: &[&str]) -> Question {
        self.question(keys, true)
    }

    /// Asked of anybody.
    pub(crate) fn of_any(&self, keys: &[&str]) -> Question {
        self.question(keys, false)
    }

    fn question(&self, keys: &[&str], of_voter: bool) -> Question {
        let mut before = Cmd::with_capacity(4 + keys.len(), 256);
        before.arg("EVALSHA").arg(self.hash.as_str()).arg(keys.len() + usize::from(of_voter)).arg(keys);
        Question { before, of_voter, after: Cmd::with_capacity(4, 160) }
    }
}

/// What is asked of several nodes, apart from who the node is.
#[derive(Clone)]
pub(crate) struct Question {
    before: Cmd,
    of_voter: bool,
    after: Cmd,
}

impl Question {
    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.after.arg(argument);
        self
    }

    /// For the node at the other end of `link`.
    pub(crate) fn to(&self, link: &Link) -> Cmd {
        let mut request = self.before.clone();
        if self.of_voter {
            request.arg(&link.member);
        }
        for argument in self.after.args_iter() {
            if let Arg::Simple(bytes) = argument {
                request.arg(bytes);
            }
        }
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
    /// Marks a grant as revoked on a node.
    REVOKE = "revoke",
    /// Gives the lock back on a node.
    RELEASE = "release",
    /// Takes back what a claim took on a node.
    RETRACT = "retract",
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
