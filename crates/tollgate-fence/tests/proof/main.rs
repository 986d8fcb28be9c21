//! The proof, end to end: every engine that locks are lost on, and every resource that can be fenced.
//!
//! `memory:` has no part in it: its locks are those of one process, and a process that is stopped stops everybody who could
//! take over. Resources that are not etcd or ZooKeeper are fenced by any engine's tokens; those two compare their own locks.
#![allow(clippy::unwrap_used)]

mod caller;
mod etcd;
mod file;
mod http;
mod mysql;
mod postgres;
mod redis;
mod redlock;
#[path = "../support/mod.rs"]
mod support;
mod zookeeper;

use tollgate_testkit::proof::{self, Cast, Engine};

fn main() {
    let engine = |name, url| Engine { name, url };
    proof::main(Cast {
        connect: |url| Box::pin(tollgate::connect(url)),
        expiring: vec![
            engine("redis", redis::url),
            engine("redlock", redlock::url),
            engine("etcd", etcd::url),
            engine("zookeeper", zookeeper::url),
            engine("postgres", postgres::url),
            engine("mysql", mysql::url),
        ],
        lasting: vec![
            engine("file", file::url),
            engine("postgres-advisory", postgres::advisory),
            engine("mysql-session", mysql::session),
        ],
        resources: vec![
            Box::new(redis::Keys),
            Box::new(etcd::Keys),
            Box::new(zookeeper::Nodes),
            Box::new(postgres::Tables { guarded: false }),
            Box::new(postgres::Tables { guarded: true }),
            Box::new(mysql::Tables { guarded: false }),
            Box::new(mysql::Tables { guarded: true }),
            Box::new(file::Files),
            Box::new(http::Shelves::behind_a_proxy()),
            Box::new(http::Shelves::with_the_layer()),
        ],
        pairs: &[
            ("redis", "redis"),
            ("redlock", "file"),
            ("etcd", "etcd"),
            ("zookeeper", "zookeeper"),
            ("postgres", "postgres"),
            ("mysql", "mysql"),
            ("redis", "postgres-guarded"),
            ("postgres", "mysql-guarded"),
            ("etcd", "http-proxy"),
            ("mysql", "http-layer"),
        ],
        lasting_pairs: &[("file", "file"), ("postgres-advisory", "postgres"), ("mysql-session", "mysql")],
        judged: &[
            ("redis", "redis"),
            ("etcd", "etcd"),
            ("zookeeper", "zookeeper"),
            ("postgres", "postgres"),
            ("mysql", "mysql"),
            ("redis", "file"),
            ("redis", "http-proxy"),
            ("redis", "http-layer"),
        ],
    })
}
