//! `rslock`: a key with a ttl on one Redis, or on most of several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rslock::{LockGuard, LockManager};
use tollgate_bench::{Client, Contender, Held, Waiting};

use super::{TTL, warm_up_name};

/// `rslock`, which tries again after a random part of its delay.
pub(crate) struct Rslock {
    name: &'static str,
    urls: Vec<String>,
    retry: Option<(u32, Duration)>,
}

impl Rslock {
    /// As it is made: three tries, up to 200 ms apart, and over again.
    pub(crate) fn patient(addresses: &[SocketAddr]) -> Self {
        Self { name: "rslock (200 ms)", urls: urls(addresses), retry: None }
    }

    /// Up to 10 ms apart.
    pub(crate) fn eager(addresses: &[SocketAddr]) -> Self {
        let retry = Some((3, Duration::from_millis(10)));
        Self { name: "rslock (10 ms)", urls: urls(addresses), retry }
    }
}

fn urls(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(|address| format!("redis://{address}")).collect()
}

impl Contender for Rslock {
    fn name(&self) -> &str {
        self.name
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let mut manager = LockManager::new(self.urls.clone());
            if let Some((count, delay)) = self.retry {
                manager.set_retry(count, delay);
            }
            // It connects, and sends its script, when it is first used.
            manager.acquire(warm_up_name().as_str(), TTL).await?.release().await;
            Ok(Arc::new(RslockClient(manager)) as Arc<dyn Client>)
        })
    }
}

struct RslockClient(LockManager);

impl Client for RslockClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move { Ok(Box::new(Taken(self.0.acquire(name, TTL).await?)) as Box<dyn Held>) })
    }
}

struct Taken(LockGuard);

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            self.0.release().await;
            Ok(())
        })
    }
}
