//! A task or transaction that takes several locks.

use std::sync::{Arc, OnceLock};

use tollgate_types::{Age, Party, PartyId};

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

impl Default for PartyHandle {
    fn default() -> Self {
        Self::new()
    }
}
