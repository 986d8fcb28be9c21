//! A key of etcd, written in transactions that compare the lock's own key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate::etcd::EtcdFence;
use tollgate_core::{BoxFuture, OwnerId, Result};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};

use crate::caller::Caller;

/// Where the locks and the data are.
pub(crate) fn url() -> String {
    format!("etcd://{}/", engines::shared(&Config::etcd()).address())
}

pub(crate) struct Keys;

struct Key {
    /// etcd speaks JSON, too.
    etcd: Caller,
    fence: EtcdFence,
    key: String,
}

impl Key {
    async fn ask(&mut self, what: &str, request: Value) -> Value {
        let (status, answer) =
            self.etcd.ask("POST", &format!("/v3/kv/{what}"), None, request.to_string()).await;
        assert!(status.is_success(), "{answer:?}");
        serde_json::from_slice(&answer).unwrap()
    }

    async fn read(&mut self, key: &str) -> Entry {
        let found = self.ask("range", json!({ "key": STANDARD.encode(key) })).await;
        let Some(value) = found["kvs"][0]["value"].as_str() else { return Entry::default() };
        String::from_utf8(STANDARD.decode(value).unwrap()).unwrap().parse().unwrap()
    }
}

impl Resource for Keys {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn only_by(&self) -> Option<&'static str> {
        Some("etcd")
    }

    fn found(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            format!("{} {}", engines::shared(&Config::etcd()).address(), OwnerId::random().to_hex())
        })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        let (address, key) = place.split_once(' ').unwrap();
        let fence = tollgate::etcd::fence(&format!("etcd://{address}/")).unwrap();
        let (etcd, key) = (Caller::of(address.parse().unwrap()), key.to_owned());
        Box::pin(async { Box::new(Key { etcd, fence, key }) as Box<dyn Register> })
    }
}

impl Register for Key {
    fn enter<'a>(&'a mut self, _: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async { Ok(self.read(&self.key.clone()).await) })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(
            async move { self.fence.guarded(&proof.grant)?.put(&self.key, entry.to_string()).commit().await },
        )
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async { self.read(&format!("{}-plain", self.key)).await })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let key = STANDARD.encode(format!("{}-plain", self.key));
            self.ask("put", json!({ "key": key, "value": STANDARD.encode(entry.to_string()) })).await;
        })
    }
}
