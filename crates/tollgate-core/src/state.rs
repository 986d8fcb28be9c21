//! What can be seen of a lock from outside: states and events. Owner ids are secrets and are not here.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, Mode, Token};

use crate::claim::Details;

/// A lock that is held or waited for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-lock-state").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// let state = locks.inspect("orders/42").await?.expect("it is held");
/// assert_eq!((state.holders.len(), state.waiters.len()), (1, 0));
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockState {
    /// Which lock.
    pub name: LockName,
    /// Who is in, in the order of their grants.
    pub holders: Vec<Holder>,
    /// Who waits, in the order they will be served where the engine has a queue.
    pub waiters: Vec<Waiter>,
}

/// Somebody who is in.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-holder").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// let state = locks.inspect("orders/42").await?.expect("it is held");
/// let holder = &state.holders[0];
/// println!("pid {} on {} has token {:?}", holder.details.pid, holder.details.host, holder.token);
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// How they share.
    pub mode: Mode,
    /// Their token. Foreign clients that hold the lock without one have none.
    pub token: Option<Token>,
    /// When the engine will take the lock away unless it is renewed; `None` where nothing expires.
    #[serde(with = "millis", rename = "expires_in_ms", default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Duration>,
    /// Who they are.
    pub details: Details,
}

/// Somebody who waits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-waiter").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// let waits = tokio::spawn(locks.lock("orders/42").acquire());
/// # tokio::task::yield_now().await;
/// for waiter in locks.inspect("orders/42").await?.expect("it is held").waiters {
///     println!("pid {} waits to go in {}", waiter.details.pid, waiter.mode);
/// }
/// # waits.abort();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// How they want to share.
    pub mode: Mode,
    /// Who they are.
    pub details: Details,
}

/// Something that happened to a lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-event").await?;
/// use futures_util::StreamExt;
///
/// let mut events = locks.events("");
/// let guard = locks.lock("orders/42").acquire().await?;
/// let event = events.next().await.expect("it goes on")?;
/// assert_eq!((event.name.as_str(), event.token), ("orders/42", guard.token()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When this client heard of it, by its wall clock, in milliseconds since 1970. For display only.
    #[serde(default)]
    pub at_ms: u64,
    /// Which lock.
    pub name: LockName,
    /// The token of the grant it happened to.
    pub token: Token,
    /// What happened.
    pub what: Happening,
    /// The grant's holder, where the engine tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Details>,
}

impl Event {
    /// Something that this client hears of now.
    pub fn now(name: LockName, token: Token, what: Happening) -> Self {
        Self { at_ms: crate::claim::wall_clock_ms(), name, token, what, holder: None }
    }

    /// The same with the grant's holder.
    #[must_use]
    pub fn of(self, holder: Details) -> Self {
        Self { holder: Some(holder), ..self }
    }
}

/// What can happen to a grant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-happening").await?;
/// use futures_util::StreamExt;
/// use tollgate::Happening;
///
/// let mut events = locks.events("");
/// locks.lock("a").acquire().await?.release().await?;
/// assert_eq!(events.next().await.expect("it goes on")?.what, Happening::Granted);
/// assert_eq!(events.next().await.expect("it goes on")?.what, Happening::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
    /// Somebody got in.
    Granted,
    /// They left, or were lost: what the engine cannot tell apart.
    Ended,
    /// They released it.
    Released,
    /// Their lease ran out.
    Expired,
    /// An operator broke the lock.
    Revoked,
}

/// Durations as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
