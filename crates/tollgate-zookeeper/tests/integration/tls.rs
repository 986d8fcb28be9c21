//! Encrypted connections to a ZooKeeper that takes no others, and what is said when they fail.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{TICK, TTL, backend_of, claim, config, soon, until};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tollgate_core::tls::TlsFiles;
use tollgate_core::{Attempt, Backend, ErrorKind, Release};
use tollgate_testkit::engines::{self, Engine, Port};
use tollgate_zookeeper::ZooKeeperConfig;

/// Who signs certificates, and a folder for them.
struct Authority {
    folder: tempfile::TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder: tempfile::tempdir().unwrap(), ca };
        authority.file("ca.pem", &authority.ca.pem());
        authority
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// A certificate for `name` and its key, each in a file, and both in one as Java likes it.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.ca).unwrap();
        let both = self.file(&format!("{name}.both.pem"), &(key.serialize_pem() + &cert.pem()));
        (
            self.file(&format!("{name}.cert.pem"), &cert.pem()),
            self.file(&format!("{name}.key.pem"), &key.serialize_pem()),
            both,
        )
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { ca: Some(self.folder.path().join("ca.pem")), cert: None, key: None }
    }

    /// A ZooKeeper that takes encrypted connections at a port of its own, from clients that this authority has signed if
    /// `asks`.
    fn zookeeper(&self, asks: bool) -> (Engine, Port) {
        let (_, _, both) = self.sign("localhost");
        let port = engines::spare_port();
        let trusted = self.folder.path().join("ca.pem");
        let engine = config(1)
            .argument(format!("secureClientPort={}", port.number()))
            .argument("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
            .argument(format!("ssl.keyStore.location={}", both.display()))
            .argument("ssl.keyStore.type=PEM")
            .argument(format!("ssl.trustStore.location={}", trusted.display()))
            .argument("ssl.trustStore.type=PEM")
            .argument(format!("ssl.clientAuth={}", if asks { "need" } else { "none" }));
        let engine = engines::private(&engine).unwrap();
        // It opens this port a moment later than the other.
        let end = Instant::now() + crate::support::secs(20);
        while TcpStream::connect(port.address()).is_err() {
            assert!(Instant::now() < end, "it never listens for encrypted connections");
            std::thread::sleep(Duration::from_millis(20));
        }
        (engine, port)
    }
}

fn over_tls(host: &str, port: u16, tls: TlsFiles) -> ZooKeeperConfig {
    let mut config = ZooKeeperConfig::from_url(&format!("zookeepers://{host}:{port}/")).unwrap();
    (config.tick, config.tls) = (TICK, Some(tls));
    config
}

async fn takes_a_lock(config: ZooKeeperConfig) {
    let backend = backend_of(config).await.unwrap();
    let mut claim = claim("a");
    claim.ttl = TTL;
    let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else { panic!("it is free") };
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
}

/// What a connection that cannot be is refused with.
async fn refused(config: ZooKeeperConfig) -> String {
    let error = soon("it is refused", backend_of(config)).await.map(drop).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Config | ErrorKind::Denied),
        "{error}"
    );
    error.to_string()
}

#[tokio::test]
async fn locks_are_taken_over_encrypted_connections() {
    let authority = Authority::new();
    let (engine, port) = authority.zookeeper(false);
    takes_a_lock(over_tls("localhost", port.number(), authority.files())).await;
    let stranger = Authority::new();
    let says = refused(over_tls("localhost", port.number(), stranger.files())).await;
    assert!(says.contains("?ca=FILE"), "{says}");
    let says = refused(over_tls("127.0.0.1", port.number(), authority.files())).await;
    assert!(says.contains("not valid for that name"), "{says}");
    let says = refused(over_tls("localhost", engine.address().port(), authority.files())).await;
    assert!(says.contains("does it speak TLS on this port"), "{says}");
    let mut plain = ZooKeeperConfig::from_url(&format!("zookeeper://localhost:{}/", port.number())).unwrap();
    plain.tick = TICK;
    let says = refused(plain).await;
    assert!(says.contains("TLS"), "{says}");
    let missing = TlsFiles { ca: Some("/nowhere/ca.pem".into()), ..TlsFiles::default() };
    let says = refused(over_tls("localhost", port.number(), missing)).await;
    assert!(says.contains("/nowhere/ca.pem cannot be read"), "{says}");
}

#[tokio::test]
async fn an_examination_asks_over_encrypted_connections() {
    let authority = Authority::new();
    let (_engine, port) = authority.zookeeper(true);
    let (cert, key, _) = authority.sign("ann");
    let known = TlsFiles { cert: Some(cert), key: Some(key), ..authority.files() };
    let config = over_tls("localhost", port.number(), known);
    // Its first handshakes take a while.
    until("it gives sessions", async || backend_of(config.clone()).await.is_ok()).await;
    let checkup = tollgate_zookeeper::examine(config).await.unwrap();
    assert!(!checkup.has_problems(), "{checkup:#?}");
    assert!(
        checkup.findings.iter().any(|finding| finding.what.contains("tickTime is 200ms")),
        "{checkup:#?}"
    );
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_it_is_asked_for() {
    let authority = Authority::new();
    let (_engine, port) = authority.zookeeper(true);
    let (cert, key, _) = authority.sign("ann");
    let known = TlsFiles { cert: Some(cert), key: Some(key), ..authority.files() };
    takes_a_lock(over_tls("localhost", port.number(), known)).await;
    let says = refused(over_tls("localhost", port.number(), authority.files())).await;
    assert!(says.contains("?cert=FILE"), "{says}");
}
