//! Scripts that run only if they are let in.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind as Kind, RedisError, ServerErrorKind, ToRedisArgs, Value};
use tollgate_core::Fence;

/// What stands before every script, on one line: errors of a user's script then name its own lines.
static GATE: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("../scripts/fence/gate.lua").lines().map(str::trim);
    lines.filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join(" ")
});

/// A Lua script of yours that runs only with a token that is not stale: the check and the script are one step.
///
/// It sees its own `KEYS` and `ARGV`, and what it returns or fails with comes back unchanged. Written once, it is kept
/// for the life of the program; [`RedisFence::run`](crate::RedisFence::run) runs it.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard, mut redis: redis::aio::MultiplexedConnection) -> tollgate::Result<()> {
/// use tollgate::redis::{FencedScript, RedisFence};
///
/// let take = FencedScript::new("return redis.call('DECRBY', KEYS[1], ARGV[1])");
/// let stock = RedisFence::around("stock")?;
/// let left: i64 = stock.run(&mut redis, take.key("stock").arg(3), guard.fence()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedScript {
    text: String,
    hash: String,
}

impl FencedScript {
    /// Puts the gate before `lua`. A line that starts with `#!` stays the first.
    pub fn new(lua: &str) -> Self {
        let (first, rest) = match lua.split_once('\n') {
            Some((first, rest)) if first.starts_with("#!") => (first, rest),
            None if lua.starts_with("#!") => (lua, ""),
            _ => ("", lua),
        };
        let end = if first.is_empty() { "" } else { "\n" };
        let text = format!("{first}{end}{} {rest}", *GATE);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The whole script, with the gate before it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A call with `key` as its first key.
    pub fn key(&self, key: impl AsRef<[u8]>) -> FencedCall<'_> {
        self.call().key(key)
    }

    /// A call without keys.
    pub fn call(&self) -> FencedCall<'_> {
        FencedCall { script: self, keys: Vec::new(), arguments: Vec::new() }
    }
}

/// A script with its keys and arguments.
///
/// In a cluster all keys must be in the slot of the resource: give them its `{tag}`.
///
/// ```no_run
/// # async fn example(guard: tollgate::Guard, mut redis: redis::aio::MultiplexedConnection) -> tollgate::Result<()> {
/// use tollgate::redis::{FencedScript, RedisFence};
///
/// let rename = FencedScript::new("return redis.call('RENAME', KEYS[1], KEYS[2])");
/// let call = rename.key("{report}:draft").key("{report}:final");
/// let () = RedisFence::around("{report}")?.run(&mut redis, call, guard.fence()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedCall<'a> {
    script: &'a FencedScript,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl FencedCall<'_> {
    /// One more key.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.keys.push(key.as_ref().to_owned());
        self
    }

    /// One more argument, or several if it is a list.
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    pub(super) fn count(&self) -> usize {
        self.arguments.len()
    }

    fn command(&self, name: &str, script: &str, mark: &[u8], fence: Fence) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len() + 1).arg(&self.keys).arg(mark).arg(&self.arguments);
        command.arg(fence.token().get()).arg(if fence.is_exclusive() { "exclusive" } else { "shared" });
        command
    }

    /// One round trip, or two if Redis does not know the script: it says so and has not run it then.
    pub(super) async fn run<C: ConnectionLike>(
        &self,
        connection: &mut C,
        mark: &[u8],
        fence: Fence,
    ) -> Result<Value, RedisError> {
        let by_hash = self.command("EVALSHA", &self.script.hash, mark, fence);
        match by_hash.query_async(connection).await {
            Err(error) if error.kind() == Kind::Server(ServerErrorKind::NoScript) => {
                let with_text = self.command("EVAL", &self.script.text, mark, fence);
                with_text.query_async(connection).await
            }
            answer => answer,
        }
    }
}
