//! A key of Redis, set by a script that compares the token.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tollgate::redis::RedisFence;
use tollgate_core::{BoxFuture, OwnerId, Result};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};

/// Where the locks and the data are.
pub(crate) fn url() -> String {
    format!("redis://{}/", engines::shared(&Config::redis()).address())
}

pub(crate) struct Keys;

struct Key {
    redis: MultiplexedConnection,
    fence: RedisFence,
    key: String,
    plain: String,
}

async fn connected(url: &str) -> MultiplexedConnection {
    let patience = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new().set_response_timeout(patience).set_connection_timeout(patience);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

impl Resource for Keys {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn found(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let (url, key) = (url(), OwnerId::random().to_hex());
            let mut redis = connected(&url).await;
            let nothing = Entry::default().to_string();
            let () = redis.mset(&[(&key, &nothing), (&format!("{key}-plain"), &nothing)]).await.unwrap();
            format!("{url} {key}")
        })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        Box::pin(async move {
            let (url, key) = place.split_once(' ').unwrap();
            let fence = RedisFence::around(key).unwrap();
            let (key, plain) = (key.to_owned(), format!("{key}-plain"));
            Box::new(Key { redis: connected(url).await, fence, key, plain }) as Box<dyn Register>
        })
    }
}

impl Key {
    async fn read(&mut self, key: &str) -> Entry {
        let text: String = self.redis.get(key).await.unwrap();
        text.parse().unwrap()
    }
}

impl Register for Key {
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async {
            self.fence.admit(&mut self.redis, proof.fence).await?;
            Ok(self.read(&self.key.clone()).await)
        })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(
            async move { self.fence.set(&mut self.redis, &self.key, entry.to_string(), proof.fence).await },
        )
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async { self.read(&self.plain.clone()).await })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.redis.set(&self.plain, entry.to_string()).await.unwrap() })
    }
}
