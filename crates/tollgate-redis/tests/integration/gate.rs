//! The gate whose marks are in Redis.

use std::sync::Arc;

use crate::support::fenced::connection;
use tollgate_core::{ErrorKind, Gate};
use tollgate_redis::{RedisConfig, RedisFence, RedisGate};
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::gates::{gate_cases, shown, survives_a_crash};

async fn gate(address: std::net::SocketAddr) -> RedisGate {
    RedisGate::connect(&RedisConfig::from_url(&format!("redis://{address}/")).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gate_on_redis_keeps_the_contract() {
    let gate: Arc<dyn Gate> = Arc::new(gate(engines::shared(&Config::redis()).address()).await);
    gate_cases(&gate).await;
}

#[tokio::test]
async fn a_mark_outlives_a_redis_that_brings_it_to_its_disk() {
    let config = Config::redis().argument("--appendonly").argument("yes");
    let engine = engines::private(&config.argument("--appendfsync").argument("always")).unwrap();
    let gate: Arc<dyn Gate> = Arc::new(gate(engine.address()).await);
    survives_a_crash(&gate, || engine.kill(), || engine.restart(Data::Kept).unwrap()).await;
}

#[tokio::test]
async fn what_is_fenced_in_redis_and_by_a_gate_is_one_resource() {
    let address = engines::shared(&Config::redis()).address();
    let (gate, mut redis) = (gate(address).await, connection(address).await);
    gate.admit("one", shown(9, true)).await.unwrap();
    let fence = RedisFence::around("one").unwrap();
    assert_eq!(fence.admit(&mut redis, shown(8, true)).await.unwrap_err().kind(), ErrorKind::Lost);
    fence.admit(&mut redis, shown(10, true)).await.unwrap();
    assert_eq!(gate.admit("one", shown(9, true)).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_key_that_is_no_mark_lets_nobody_in() {
    let address = engines::shared(&Config::redis()).address();
    let gate = gate(address).await;
    crate::support::cli(address, &["SET", "{no mark}:mark", "x"]);
    let error = gate.admit("no mark", shown(9, true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(gate.highest("no mark").await.unwrap_err().kind(), ErrorKind::Config);
}
