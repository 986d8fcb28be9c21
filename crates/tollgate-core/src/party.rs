//! A task or transaction that takes several locks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tollgate_types::{Age, OwnerId, Party, PartyId};

use crate::clock::{BootClock, Clock};
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::Keeper;

/// A task or transaction that joins several claims. Clones are the same party, and it keeps its age across
/// retries: it gets older, and in the end wins against those who came later.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-party").await?;
/// use tollgate::PartyHandle;
///
/// let transfer = PartyHandle::new();
/// let from = locks.lock("accounts/7").party(&transfer).acquire().await?;
/// let to = locks.lock("accounts/9").party(&transfer).acquire().await?;
/// # drop((from, to));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PartyHandle {
    id: PartyId,
    age: Arc<OnceLock<Age>>,
}

impl PartyHandle {
    /// A new party. It gets its age with its first claim, granted or not.
    pub fn new() -> Self {
        Self { id: PartyId::random(), age: Arc::default() }
    }

    /// What a claim carries of it to the engine.
    pub fn stamp(&self) -> Party {
        Party { id: self.id, age: self.age.get().copied() }
    }

    /// Notes the age the engine gave it, for backends. The first one stays.
    pub fn note(&self, age: Age) {
        let _ = self.age.set(age);
    }
}

impl PartyHandle {
    /// Takes locks again and again until it has them: after `Deadlock`, `Busy` and `Lost`, with pauses that grow.
    ///
    /// Everything that `attempt` took is given back when it fails, because it is dropped; the party keeps its age, and so it
    /// is its turn in the end. Do what the locks protect after this, not in it. With
    /// [`WoundWait`](tollgate_types::OnDeadlock::WoundWait) a lock may be lost while the next one is waited for: wait for
    /// [`lost`](crate::Lease::lost) beside it, as a set does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-party-retry").await?;
    /// use tollgate::{OnDeadlock, PartyHandle};
    ///
    /// let transfer = PartyHandle::new();
    /// let (from, to) = transfer
    ///     .retry(async || {
    ///         let from = locks.lock("accounts/9").party(&transfer).on_deadlock(OnDeadlock::Detect).acquire().await?;
    ///         // Which other lock it takes may depend on what it finds under the first.
    ///         let to = locks.lock("accounts/7").party(&transfer).on_deadlock(OnDeadlock::Detect).acquire().await?;
    ///         Ok((from, to))
    ///     })
    ///     .await?;
    /// # drop((from, to));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry<T>(&self, mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let mut pauses = Pauses::default();
        loop {
            match attempt().await {
                Err(error) if pauses.help(&error) => sleep(pauses.next()).await,
                other => return other,
            }
        }
    }

    /// As [`retry`](Self::retry), for programs without a runtime.
    ///
    /// ```
    /// # fn main() -> tollgate::Result<()> {
    /// use tollgate::PartyHandle;
    ///
    /// let locks = tollgate::blocking::connect("memory:doc-party-retry-blocking")?;
    /// let transfer = PartyHandle::new();
    /// let from = transfer.retry_blocking(|| locks.lock("accounts/9").party(&transfer).acquire())?;
    /// # drop(from);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_blocking<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut pauses = Pauses::default();
        loop {
            match attempt() {
                Err(error) if pauses.help(&error) => std::thread::sleep(pauses.next()),
                other => return other,
            }
        }
    }
}

/// Pauses that grow, each of a random length, so that those who met do not meet again at once.
#[derive(Debug, Default)]
struct Pauses {
    taken: u32,
    /// How often the party was in its own way.
    itself: u32,
}

impl Pauses {
    const FIRST: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_millis(250);

    /// After how many tries a party that is in its own way holds something that no attempt gives back.
    const ITSELF: u32 = 5;

    /// Whether starting over after this may go better.
    fn help(&mut self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::Lost => true,
            ErrorKind::Deadlock if error.is_retryable() => true,
            // What an attempt dropped may not have left yet.
            ErrorKind::Deadlock => {
                self.itself += 1;
                self.itself < Self::ITSELF
            }
            _ => false,
        }
    }

    /// How long to wait this time.
    fn next(&mut self) -> Duration {
        let longest = Self::FIRST.saturating_mul(1 << self.taken.min(16)).min(Self::LONGEST);
        self.taken += 1;
        let dice = OwnerId::random().to_bits() as u32;
        longest / 2 + (longest / 2).mul_f64(f64::from(dice) / f64::from(u32::MAX))
    }
}

impl Default for PartyHandle {
    fn default() -> Self {
        Self::new()
    }
}
/// Sleeps by a clock that needs no runtime of the caller's.
async fn sleep(pause: Duration) {
    if let Ok(keeper) = Keeper::global() {
        let clock = BootClock::new(keeper);
        clock.sleep_until(clock.now() + pause).await;
    }
}
