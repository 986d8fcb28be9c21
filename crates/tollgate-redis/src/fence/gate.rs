//! Marks in Redis for what is not in Redis, over connections of the gate's own.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, FromRedisValue, Value};
use tollgate_core::{BootClock, BoxFuture, Error, Fence, Gate, Keeper, Result, Token, gate};

use super::{ADMIT, RedisFence, trouble};
use crate::config::RedisConfig;
use crate::error;
use crate::keys::encode;
use crate::script::{Request, Script};
use crate::site::Site;

static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(ADMIT.text().to_owned()));
static READ: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/fence/mark.lua")));

/// A [`Gate`] whose marks are in Redis, one server, behind sentinels or in a cluster.
///
/// A mark is the key `{RESOURCE}:mark`, as that of [`RedisFence::around`] is, so that what is fenced by both is one resource;
/// `%`, `{` and `}` in the name are percent-encoded first. It is as safe as that Redis: without `appendonly yes` and
/// `appendfsync always` a crash takes back the marks of up to a second, and so does a fail-over to a replica that lags.
///
/// ```no_run
/// # async fn example() -> tollgate_core::Result<()> {
/// use tollgate_core::Gate;
/// use tollgate_redis::{RedisConfig, RedisGate};
///
/// let gate = RedisGate::connect(&RedisConfig::from_url("redis://127.0.0.1/")?).await?;
/// println!("{:?}", gate.highest("orders").await?);
/// # Ok(())
/// # }
/// ```
pub struct RedisGate {
    site: Site,
}

impl RedisGate {
    /// Connects.
    ///
    /// # Errors
    /// `Unavailable` if no Redis answers.
    pub fn connect(config: &RedisConfig) -> BoxFuture<'_, Result<Self>> {
        Box::pin(async move {
            let clock = Arc::new(BootClock::new(Keeper::global()?));
            let site = Site::new(config, None, clock)?;
            site.open().await?;
            Ok(Self { site })
        })
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        gate::check(resource)?;
        let key = encode(resource);
        let mark = RedisFence::around(&key)?;
        if let Some(decided) = self.by_reading(&key, mark.mark(), fence).await? {
            return decided;
        }
        let kind = if fence.is_exclusive() { "exclusive" } else { "shared" };
        let request = Request::on_key(&RAISE, mark.mark()).arg(fence.token().get()).arg(kind);
        match self.site.run(&key, &request, |_| {}).await {
            Ok(_) => Ok(()),
            Err(error) => Err(told(error, mark.mark(), fence)),
        }
    }

    /// What a holder is told that raises nothing, as most do: a plain reading is a fraction of a script's work. Whatever else it
    /// finds, the script knows.
    async fn by_reading(&self, key: &str, mark: &[u8], fence: Fence) -> Result<Option<Result<()>>> {
        let link = self.site.link(key).await?;
        let Ok(read) = link.command(Cmd::new().arg("GET").arg(mark)).await else { return Ok(None) };
        let mark =
            Option::<u64>::from_redis_value(read).ok().flatten().and_then(|mark| Token::new(mark).ok());
        Ok(mark.and_then(|mark| gate::by_reading(Some(mark), fence)))
    }

    async fn mark(&self, resource: &str) -> Result<Option<Token>> {
        gate::check(resource)?;
        let key = encode(resource);
        let mark = RedisFence::around(&key)?;
        let answer = self.site.run(&key, &Request::on_key(&READ, mark.mark()), |_| {}).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        let number = u64::from_redis_value(answer).ok().and_then(|number| Token::new(number).ok());
        number.map(Some).ok_or_else(|| trouble::bad_mark(&String::from_utf8_lossy(mark.mark())))
    }
}

/// What Redis said of a fence, in a fence's own words.
fn told(failed: Error, mark: &[u8], fence: Fence) -> Error {
    match error::said(&failed) {
        Some(said) if matches!(error::code_of(said), Some("FENCED" | "BADMARK" | "NOPERM")) => {
            trouble::of_answer(said.clone(), mark, fence)
        }
        _ => failed,
    }
}

impl Drop for RedisGate {
    fn drop(&mut self) {
        self.site.close();
    }
}

impl Gate for RedisGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.decide(resource, fence).await.map_err(|error| error.during("admit")) })
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move { self.mark(resource).await.map_err(|error| error.during("read the mark")) })
    }
}
