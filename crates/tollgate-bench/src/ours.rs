//! Tollgate, on whatever engine a URL names.

use std::sync::Arc;

use tokio::sync::OnceCell;
use tollgate::{Guard, Locks};

use crate::contender::{Client, Contender, Held, Waiting};

/// Tollgate on one engine.
pub struct Ours {
    url: String,
    name: String,
    /// The one client that everybody is, if they share it.
    shared: Option<OnceCell<Locks>>,
    holds_many: bool,
}

impl Ours {
    /// Tollgate on the engine that `url` names.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), name: "tollgate".to_owned(), shared: None, holds_many: true }
    }

    /// Under another name, where it takes part more than once.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// With the connections of one client for everybody.
    pub fn shared(self) -> Self {
        Self { shared: Some(OnceCell::new()), ..self }
    }

    /// Where a lock is a connection's: every client holds one lock at a time.
    pub fn one_lock_each(self) -> Self {
        Self { holds_many: false, ..self }
    }
}

impl Contender for Ours {
    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let locks = match &self.shared {
                None => tollgate::connect(&self.url).await?,
                Some(shared) => shared.get_or_try_init(|| tollgate::connect(&self.url)).await?.clone(),
            };
            Ok(Arc::new(OurClient(locks)) as Arc<dyn Client>)
        })
    }

    fn holds_many(&self) -> bool {
        self.holds_many
    }
}

struct OurClient(Locks);

impl Client for OurClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move { Ok(Box::new(OurGuard(self.0.lock(name).acquire().await?)) as Box<dyn Held>) })
    }
}

struct OurGuard(Guard);

impl Held for OurGuard {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            self.0.release().await?;
            Ok(())
        })
    }
}
