//! `etcd-client`: etcd's own lock service, in a lease.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{LockClient, LockOptions};
use tokio::task::JoinSet;
use tollgate_bench::{Client, Contender, Failure, Held, Waiting};

use super::TTL;

/// How often a lease is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// `etcd-client`, with a connection and a lease for each client.
pub(crate) struct EtcdLock {
    endpoints: Vec<String>,
}

impl EtcdLock {
    /// On the nodes at `addresses`.
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        Self { endpoints: addresses.iter().map(SocketAddr::to_string).collect() }
    }
}

impl Contender for EtcdLock {
    fn name(&self) -> &str {
        "etcd-client"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let client = etcd_client::Client::connect(&self.endpoints, None).await?;
            let leases = Arc::new(Leases { client, known: Mutex::default(), renewals: Mutex::default() });
            let warm_up = EtcdClient { leases };
            warm_up.lock(&super::warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(warm_up) as Arc<dyn Client>)
        })
    }
}

/// The leases of one client. It has one, unless several of its tasks want the same name: etcd's lock is the
/// lease's, and would let all of them in.
struct Leases {
    client: etcd_client::Client,
    known: Mutex<Vec<Lease>>,
    renewals: Mutex<JoinSet<Result<(), etcd_client::Error>>>,
}

struct Lease {
    id: i64,
    /// What is held, or waited for, in it.
    names: HashSet<String>,
}

impl Leases {
    fn known(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease in which nobody has `name`.
    async fn enter(&self, name: &str) -> Result<i64, Failure> {
        if let Some(lease) = self.known().iter_mut().find(|lease| !lease.names.contains(name)) {
            lease.names.insert(name.to_owned());
            return Ok(lease.id);
        }
        let mut client = self.client.clone();
        let id = client.lease_grant(i64::try_from(TTL.as_secs())?, None).await?.id();
        self.known().push(Lease { id, names: HashSet::from([name.to_owned()]) });
        // They end with the client.
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner).spawn(renew(client, id));
        Ok(id)
    }

    fn leave(&self, id: i64, name: &str) {
        if let Some(lease) = self.known().iter_mut().find(|lease| lease.id == id) {
            lease.names.remove(name);
        }
    }
}

async fn renew(mut client: etcd_client::Client, id: i64) -> Result<(), etcd_client::Error> {
    tokio::time::sleep(RENEW_EVERY).await;
    let (mut keeper, mut answers) = client.lease_keep_alive(id).await?;
    while answers.message().await?.is_some_and(|answer| answer.ttl() > 0) {
        tokio::time::sleep(RENEW_EVERY).await;
        keeper.keep_alive().await?;
    }
    Ok(())
}

struct EtcdClient {
    leases: Arc<Leases>,
}

impl Client for EtcdClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let lease = self.leases.enter(name).await?;
            let mut client = self.leases.client.lock_client();
            let taken = client.lock(name, Some(LockOptions::new().with_lease(lease))).await?;
            let key = taken.key().to_vec();
            let leases = self.leases.clone();
            Ok(Box::new(Taken { client, key, leases, lease, name: name.to_owned() }) as Box<dyn Held>)
        })
    }
}

struct Taken {
    client: LockClient,
    key: Vec<u8>,
    leases: Arc<Leases>,
    lease: i64,
    name: String,
}

impl Held for Taken {
    fn unlock(mut self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            self.client.unlock(std::mem::take(&mut self.key)).await?;
            self.leases.leave(self.lease, &self.name);
            Ok(())
        })
    }
}
