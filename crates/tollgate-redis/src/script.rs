//! The scripts, and requests that run them by their hashes.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// A script as Redis knows it.
pub(crate) struct Script {
    text: Cow<'static, str>,
    hash: String,
}

impl Script {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self { hash: redis::Script::new(&text).get_hash().to_owned(), text }
    }
}

/// A script with the lock it is to act on and its arguments.
pub(crate) struct Request {
    script: &'static Script,
    command: Cmd,
    /// Whether the keys of a lock go with the one that is named.
    of_lock: bool,
}

impl Request {
    /// Runs `script` on the lock whose key is `key`.
    pub(crate) fn new(script: &'static Script, key: &str) -> Self {
        let mut command = Cmd::with_capacity(9, 320);
        command.arg("EVALSHA").arg(script.hash.as_str()).arg("1").arg(key);
        Self { script, command, of_lock: true }
    }

    /// Runs `script` on `key` alone, which is no lock's.
    pub(crate) fn on_key(script: &'static Script, key: &[u8]) -> Self {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(script.hash.as_str()).arg("1").arg(key);
        Self { script, command, of_lock: false }
    }

    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// With every key it acts on named, as a cluster wants it: while a slot moves, it tells from them whether all are in
    /// one place.
    pub(crate) fn with_all_keys(&self, key: &str) -> Self {
        if !self.of_lock {
            return Self { script: self.script, command: self.command.clone(), of_lock: false };
        }
        let side = |what: &str| format!("{{{key}}}:{what}");
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(self.script.hash.as_str()).arg("6").arg(key);
        command.arg(["fence", "queue", "waiters", "holders", "ends"].map(side).as_slice());
        for argument in self.command.args_iter().skip(4) {
            if let Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        Self { script: self.script, command, of_lock: true }
    }

    /// By the script's hash: short, but Redis may not know it.
    pub(crate) fn by_hash(&self) -> &Cmd {
        &self.command
    }

    /// With the script itself, which Redis remembers.
    pub(crate) fn with_text(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(&*self.script.text);
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        command
    }
}

/// Scripts made of files. What is in brackets stands before all that they have in common, and before what crowds need:
/// whatever is answered there does not pay for the rest.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $([$first:literal])? $([, $second:literal])? $file:literal,)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                $(include_str!(concat!("scripts/", $first)), "\n",)?
                include_str!("scripts/common.lua"), "\n",
                $(include_str!(concat!("scripts/", $second)), "\n",)?
                include_str!("scripts/crowd.lua"), "\n",
                include_str!(concat!("scripts/", $file)),
            ))
        });)*
    };
}

scripts! {
    /// Takes the lock, or a place in its queue.
    ACQUIRE = [, "acquire_behind.lua"] "acquire.lua",
    /// Draws another token for a holder.
    REDRAW = "redraw.lua",
    /// Makes sure that nothing of a claim is left.
    WITHDRAW = "withdraw.lua",
    /// Renews a grant.
    EXTEND = "extend.lua",
    /// Gives the lock back and hands it on.
    RELEASE = ["release_alone.lua"] [, "release_next.lua"] "release.lua",
    /// Breaks a lock.
    REVOKE = "revoke.lua",
    /// Looks at a lock.
    INSPECT = "inspect.lua",
    /// Raises the tokens of a lock.
    FLOOR = "floor.lua",
}

/// By which hash Redis is asked for a script, for those who watch what is sent.
pub fn hash_of(name: &str) -> Option<&'static str> {
    let script: &'static Script = match name {
        "acquire" => &ACQUIRE,
        "withdraw" => &WITHDRAW,
        "extend" => &EXTEND,
        "release" => &RELEASE,
        _ => return None,
    };
    Some(&script.hash)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Token;

    use super::*;
    use crate::acquire::REMEMBERED;
    use crate::redlock::REDLOCK_SCRIPTS;

    #[test]
    fn scripts_and_clients_mean_the_same_numbers() {
        let common = &ACQUIRE.text;
        assert!(common.contains(&format!("local REMEMBERED = {REMEMBERED}\n")));
        assert!(common.contains(&format!("local LARGEST = {}\n", Token::MAX)));
        for lua in REDLOCK_SCRIPTS {
            let seconds = lua.code.split("'EXPIRE', KEYS").skip(1);
            for said in seconds {
                assert!(said[3..].starts_with(&format!(", '{REMEMBERED}')")), "{said}");
            }
        }
        assert!(REDLOCK_SCRIPTS.iter().any(|lua| lua.code.contains(&format!("last >= {} then", Token::MAX))));
    }
}
