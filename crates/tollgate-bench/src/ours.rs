//! Tollgate, on whatever engine a URL names.

use std::sync::Arc;

use tollgate::{Guard, Locks};

use crate::contender::{Client, Contender, Held, Waiting};

/// Tollgate on one engine.
pub struct Ours {
    url: String,
}

impl Ours {
    /// Tollgate on the engine that `url` names.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }
}

impl Contender for Ours {
    fn name(&self) -> &str {
        "tollgate"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(
            async move { Ok(Arc::new(OurClient(tollgate::connect(&self.url).await?)) as Arc<dyn Client>) },
        )
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
