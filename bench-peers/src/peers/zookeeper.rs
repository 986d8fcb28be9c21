//! `zookeeper-client`: its lock recipe, in Curator's layout.

use std::net::SocketAddr;
use std::sync::Arc;

use tollgate_bench::{Client, Contender, Held, Waiting};
use zookeeper_client::{Acls, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use super::warm_up_name;

/// `zookeeper-client`, with a session for each client.
pub(crate) struct ZooKeeperLock {
    cluster: String,
}

impl ZooKeeperLock {
    /// On the nodes at `addresses`.
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        Self { cluster: addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",") }
    }
}

impl Contender for ZooKeeperLock {
    fn name(&self) -> &str {
        "zookeeper-client"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let session = Session(zookeeper_client::Client::connect(&self.cluster).await?);
            session.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(session) as Arc<dyn Client>)
        })
    }
}

struct Session(zookeeper_client::Client);

impl Client for Session {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let folder = format!("/locks/{name}");
            let prefix = LockPrefix::new_curator(&folder, "lock-")?;
            let folders = CreateMode::Container.with_acls(Acls::anyone_all());
            let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(folders)?;
            let taken = self.0.lock(prefix, b"", options).await?;
            Ok(Box::new(Taken(taken.into_owned())) as Box<dyn Held>)
        })
    }
}

struct Taken(OwnedLockClient);

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            // There is no other way than to drop it: a task sends the deletion, and nobody hears of its end.
            // Whatever this session asks for next is served after it, if that task comes first.
            drop(self.0);
            tokio::task::yield_now().await;
            Ok(())
        })
    }
}
