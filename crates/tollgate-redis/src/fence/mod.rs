//! What makes data in Redis refuse stale tokens.
//!
//! A resource is what one lock protects: a key, or several that belong together. Its mark, the highest exclusive token
//! that was let in, is kept beside it and compared in the same script that writes, so that nobody comes in between.

mod gate;
mod mark;
mod script;
mod trouble;

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{FromRedisValue, ToRedisArgs};
use tollgate_core::{Error, ErrorKind, Fence, Result};

pub use gate::RedisGate;
pub use script::{FencedCall, FencedScript};

macro_rules! scripts {
    ($($name:ident = $file:literal,)*) => {
        $(static $name: LazyLock<FencedScript> = LazyLock::new(|| {
            FencedScript::new(include_str!(concat!("../scripts/fence/", $file)))
        });)*
    };
}

scripts! {
    ADMIT = "admit.lua",
    SET = "set.lua",
    HSET = "hset.lua",
    DEL = "del.lua",
}

/// A fence around data in Redis: whoever comes with a stale token is refused, whatever it believes.
///
/// It works over your own connection, anything that is a [`redis::aio::ConnectionLike`]. A *resource* is what one lock
/// protects. Its mark is kept in the key `{RESOURCE}:mark` (`{TAG}:mark:RESOURCE` if the resource has a `{tag}`), in
/// the same cluster slot. An exclusive token raises the mark; a shared one is let in if it is not below it, and raises
/// nothing. Equal passes, smaller is `Lost`.
///
/// - **Admit before the first read.** Otherwise a stale write can slip in between your read and your write.
/// - **The mark never expires**, and must not: what forgets it lets stale writers in. It costs about 100 bytes.
///   Neither should Redis evict it (`maxmemory-policy noeviction`).
/// - **Every write has to come through the fence.** A plain `SET` is not stopped by anything.
/// - **One mark for what belongs together.** Keys that are written under one lock share its resource; with a mark
///   for each, a stale holder could still write the one that its successor has not touched yet.
///
/// ```no_run
/// # async fn example(locks: tollgate::Locks) -> Result<(), Box<dyn std::error::Error>> {
/// use redis::AsyncCommands;
/// use tollgate::redis::RedisFence;
///
/// let mut redis = redis::Client::open("redis://127.0.0.1/")?.get_multiplexed_async_connection().await?;
/// let total = RedisFence::around("total")?;
///
/// let guard = locks.lock("total").acquire().await?;
/// total.admit(&mut redis, guard.fence()?).await?;
/// let seen: i64 = redis.get("total").await?;
/// // However long this takes: a write that comes too late is refused.
/// total.set(&mut redis, "total", seen + 1, guard.fence()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisFence {
    mark: Vec<u8>,
}

impl RedisFence {
    /// A fence around `resource`: a key, or whatever you call the keys that one lock protects.
    ///
    /// # Errors
    /// `InvalidArgument` for a name beside which nothing can be kept in a cluster: an empty one, and one that has a `}`
    /// but no `{tag}`.
    pub fn around(resource: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self { mark: mark::mark_of(resource.as_ref())? })
    }

    /// The key of the mark, for users that may see only some keys, and for those who write their own scripts.
    pub fn mark(&self) -> &[u8] {
        &self.mark
    }

    /// Lets a holder in, which shuts out everybody before it. Do this before the first read.
    ///
    /// # Errors
    /// `Lost` if somebody was in after this holder; `Config` if the mark's key holds something else; `Indeterminate` if
    /// no answer came.
    pub async fn admit<C: ConnectionLike>(&self, redis: &mut C, fence: Fence) -> Result<()> {
        self.call(redis, &ADMIT.call(), fence).await.map_err(|error| error.during("admit"))
    }

    /// Sets `key` to `value`, without a ttl, if the token is not stale.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn set<C: ConnectionLike>(
        &self,
        redis: &mut C,
        key: impl AsRef<[u8]>,
        value: impl ToRedisArgs,
        fence: Fence,
    ) -> Result<()> {
        self.write(redis, SET.key(key).arg(value), 1, fence).await.map_err(|error| error.during("set"))
    }

    /// Sets `field` of the hash `key` to `value`, if the token is not stale.
    ///
    /// # Errors
    /// As [`admit`](Self::admit), and `InvalidArgument` if `key` is no hash.
    pub async fn hset<C: ConnectionLike>(
        &self,
        redis: &mut C,
        key: impl AsRef<[u8]>,
        field: impl AsRef<[u8]>,
        value: impl ToRedisArgs,
        fence: Fence,
    ) -> Result<()> {
        let call = HSET.key(key).arg(field.as_ref()).arg(value);
        let added: Result<u64> = self.write(redis, call, 2, fence).await;
        added.map(drop).map_err(|error| error.during("hset"))
    }

    /// Deletes `key` if the token is not stale; whether it was there.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn del<C: ConnectionLike>(
        &self,
        redis: &mut C,
        key: impl AsRef<[u8]>,
        fence: Fence,
    ) -> Result<bool> {
        self.call(redis, &DEL.key(key), fence).await.map_err(|error| error.during("del"))
    }

    /// Runs a script of yours if the token is not stale. The comparison and the script are one step.
    ///
    /// # Errors
    /// As [`admit`](Self::admit). What the script itself fails with is `Unexpected`, or the kind that fits, and says
    /// what Redis said; its source is the `redis::RedisError`.
    pub async fn run<C: ConnectionLike, T: FromRedisValue>(
        &self,
        redis: &mut C,
        call: FencedCall<'_>,
        fence: Fence,
    ) -> Result<T> {
        self.call(redis, &call, fence).await.map_err(|error| error.during("run a fenced script"))
    }

    /// Refuses what would not be a single value.
    async fn write<C: ConnectionLike, T: FromRedisValue>(
        &self,
        redis: &mut C,
        call: FencedCall<'_>,
        arguments: usize,
        fence: Fence,
    ) -> Result<T> {
        if call.count() != arguments {
            return Err(trouble::not_one());
        }
        self.call(redis, &call, fence).await
    }

    async fn call<C: ConnectionLike, T: FromRedisValue>(
        &self,
        redis: &mut C,
        call: &FencedCall<'_>,
        fence: Fence,
    ) -> Result<T> {
        let answer = call.run(redis, &self.mark, fence).await;
        let value = answer.map_err(|error| trouble::of_answer(error, &self.mark, fence))?;
        T::from_redis_value(value).map_err(|error| {
            let message = "the script was executed, but its result is not of the requested type";
            Error::new(ErrorKind::Unexpected, message).caused_by(error)
        })
    }
}
