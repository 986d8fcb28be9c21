//! Three Redises that know nothing of each other.

use std::sync::OnceLock;

use tollgate_core::Keeper;
use tollgate_testkit::engines::{self, Config, Engine};

/// Where locks are.
pub(crate) fn url() -> String {
    static NODES: OnceLock<(Vec<Engine>, String)> = OnceLock::new();
    let nodes = NODES.get_or_init(|| {
        let engines: Vec<Engine> = (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect();
        let hosts: Vec<String> = engines.iter().map(|engine| engine.address().to_string()).collect();
        let url = format!("redlock://{}/?max_ttl=60s", hosts.join(","));
        // This thread may belong to a runtime.
        Keeper::global().unwrap().block_on(tollgate::redlock_init(&url)).unwrap();
        (engines, url)
    });
    nodes.1.clone()
}
