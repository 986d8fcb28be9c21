//! Redises that are found in other ways than by an address: encrypted, behind sentinels, and in a cluster.

use std::path::Path;

use tollgate_core::tls::TlsFiles;
use tollgate_testkit::engines::{self, Config, Engine, Port};

use super::{cli, until};

/// A certificate that signs itself, and its key.
pub(crate) fn certificate(folder: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
}

/// A Redis that speaks only to those who show the certificate of the client in `folder`, over TLS on `port`.
pub(crate) fn encrypted(folder: &Path, port: &Port) -> Config {
    let text = |name: &str| folder.join(name).display().to_string();
    let config = Config::redis().argument("--tls-port").argument(port.number().to_string());
    let config = config.argument("--tls-cert-file").argument(text("server.pem"));
    let config = config.argument("--tls-key-file").argument(text("server.key"));
    config.argument("--tls-ca-cert-file").argument(text("client.pem"))
}

/// What such a client shows, and whom it trusts.
pub(crate) fn client_files(folder: &Path) -> TlsFiles {
    TlsFiles {
        ca: Some(folder.join("server.pem")),
        cert: Some(folder.join("client.pem")),
        key: Some(folder.join("client.key")),
    }
}

/// A primary, a replica of it, and a sentinel that fails over quickly.
pub(crate) struct Watched {
    pub(crate) primary: Engine,
    pub(crate) replica: Engine,
    pub(crate) sentinel: Engine,
}

pub(crate) async fn watched() -> Watched {
    let primary = engines::private(&Config::redis()).unwrap();
    let port = primary.address().port().to_string();
    let replica =
        engines::private(&Config::redis().argument("--replicaof").argument(format!("127.0.0.1 {port}")));
    let sentinel = Config::sentinel()
        .argument(format!("sentinel monitor main 127.0.0.1 {port} 1"))
        .argument("sentinel down-after-milliseconds main 500")
        .argument("sentinel failover-timeout main 3000");
    let (replica, sentinel) = (replica.unwrap(), engines::private(&sentinel).unwrap());
    let address = sentinel.address();
    until("the sentinel knows the replica", async || {
        cli(address, &["SENTINEL", "REPLICAS", "main"]).contains("master-link-status\nok")
    })
    .await;
    Watched { primary, replica, sentinel }
}

/// A server that can be part of a cluster, whose servers talk among themselves over ports of their own.
pub(crate) fn member(bus: &Port) -> Engine {
    let config = Config::redis().argument("--cluster-enabled").argument("yes");
    let config = config.argument("--cluster-node-timeout").argument("2000");
    engines::private(&config.argument("--cluster-port").argument(bus.number().to_string())).unwrap()
}

/// Three primaries that share the slots.
pub(crate) async fn cluster() -> (Vec<Engine>, [Port; 3]) {
    let buses = [(); 3].map(|()| engines::spare_port());
    let engines: Vec<Engine> = buses.iter().map(member).collect();
    let ranges = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
    for (engine, (first, last)) in engines.iter().zip(ranges) {
        cli(engine.address(), &["CLUSTER", "ADDSLOTSRANGE", first, last]);
        let (port, bus) = (engines[0].address().port().to_string(), buses[0].number().to_string());
        cli(engine.address(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    until("the cluster stands", async || {
        let stands = |engine: &Engine| cli(engine.address(), &["CLUSTER", "INFO"]);
        engines.iter().all(|engine| {
            stands(engine).contains("cluster_state:ok") && stands(engine).contains("cluster_known_nodes:3")
        })
    })
    .await;
    (engines, buses)
}
