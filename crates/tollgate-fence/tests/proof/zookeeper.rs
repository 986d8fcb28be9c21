//! A node of ZooKeeper, written together with a check for the lock's own node.

use std::time::Duration;

use tollgate::zookeeper::ZooKeeperFence;
use tollgate_core::{BoxFuture, OwnerId, Result};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};
use zookeeper_client::{Acls, Client, CreateMode};

fn address() -> String {
    engines::shared(&Config::zookeeper().argument("maxSessionTimeout=3600000")).address().to_string()
}

fn locks_on(address: &str) -> String {
    format!("zookeeper://{address}/?tick=200ms")
}

/// Where the locks and the data are.
pub(crate) fn url() -> String {
    locks_on(&address())
}

pub(crate) struct Nodes;

struct Node {
    client: Client,
    fence: ZooKeeperFence,
    path: String,
    plain: String,
}

async fn connected(address: &str) -> Client {
    // Longer than anybody is stopped.
    let connector = Client::connector().with_session_timeout(Duration::from_secs(300));
    connector.connect(address).await.unwrap()
}

impl Resource for Nodes {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn only_by(&self) -> Option<&'static str> {
        Some("zookeeper")
    }

    fn found(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let (address, path) = (address(), format!("/{}", OwnerId::random().to_hex()));
            let client = connected(&address).await;
            let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
            for path in [&path, &format!("{path}-plain")] {
                client.create(path, Entry::default().to_string().as_bytes(), &open).await.unwrap();
            }
            format!("{address} {path}")
        })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        Box::pin(async move {
            let (address, path) = place.split_once(' ').unwrap();
            let fence = tollgate::zookeeper::fence(&locks_on(address)).unwrap();
            let (path, plain) = (path.to_owned(), format!("{path}-plain"));
            Box::new(Node { client: connected(address).await, fence, path, plain }) as Box<dyn Register>
        })
    }
}

impl Node {
    async fn read(&self, path: &str) -> Entry {
        let (data, _) = self.client.get_data(path).await.unwrap();
        String::from_utf8(data).unwrap().parse().unwrap()
    }
}

impl Register for Node {
    fn enter<'a>(&'a mut self, _: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async { Ok(self.read(&self.path).await) })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.fence.guarded(&proof.grant)?.set(&self.path, entry.to_string()).commit().await
        })
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async { self.read(&self.plain).await })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let text = entry.to_string();
            self.client.set_data(&self.plain, text.as_bytes(), None).await.unwrap();
        })
    }
}
