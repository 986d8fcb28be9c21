//! Ways to an etcd: passwords, certificates, several endpoints; and everything that can be wrong with them.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{backend, backend_of, claim, ctl, etcdctl, locks, secs, soon, until, url};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio_rustls::TlsAcceptor;
use tollgate_core::tls::TlsFiles;
use tollgate_core::{Attempt, Backend, Error, ErrorKind, LockName, Release, Token};
use tollgate_etcd::EtcdConfig;
use tollgate_testkit::engines::{self, Config, Data};

/// What connecting to `url` fails with, within the time a person has.
async fn refusal(url: &str) -> Error {
    refusal_of(EtcdConfig::from_url(url).unwrap()).await
}

async fn refusal_of(config: EtcdConfig) -> Error {
    let connecting = tokio::time::timeout(secs(12), backend_of(config));
    connecting.await.expect("it does not hang").err().expect("it does not let us in")
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[tokio::test]
async fn nobody_at_the_port_is_said_with_the_address() {
    let port = engines::spare_port();
    let address = port.address().to_string();
    says(&refusal(&format!("etcd://{address}/")).await, ErrorKind::Unavailable, &[&address, "running"]);
    let nowhere = refusal("etcd://no-such-host.invalid/").await;
    says(&nowhere, ErrorKind::Unavailable, &["no-such-host.invalid", "address"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = refusal(&format!("etcd://{}/", silent.local_addr().unwrap())).await;
    says(&silent, ErrorKind::Unavailable, &["did not answer"]);
}

#[tokio::test]
async fn members_of_two_clusters_are_told_from_each_other() {
    let (one, other) = [(); 2].map(|()| engines::private(&Config::etcd()).unwrap()).into();
    let (one_at, other_at) = (one.address().to_string(), other.address().to_string());
    for hosts in [format!("{one_at},{other_at}"), format!("{other_at},{one_at}")] {
        let refused = refusal(&format!("etcd://{hosts}/")).await;
        says(&refused, ErrorKind::Config, &[&one_at, &other_at, "two clusters"]);
    }
    // Also if the other one was not there at first.
    other.kill();
    let locks = locks(&format!("etcd://{one_at},{other_at}/")).await.unwrap();
    locks.lock("a").ttl(secs(10)).acquire().await.unwrap().release().await.unwrap();
    other.restart(Data::Kept).unwrap();
    one.kill();
    let refused = async || locks.lock("a").ttl(secs(10)).try_acquire().await.expect_err("it is another's");
    // What was on its way when the connection ended is not known.
    until("it is asked", async || refused().await.kind() == ErrorKind::Config).await;
    says(&refused().await, ErrorKind::Config, &[&other_at, "another cluster"]);
}

#[tokio::test]
async fn locks_of_an_etcd_that_is_full_are_seen_and_given_back_and_none_is_taken() {
    let engine = engines::private(&Config::etcd().argument("--quota-backend-bytes=2000000")).unwrap();
    let before = locks(&url(&engine)).await.unwrap();
    let guard = before.lock("a").ttl(secs(60)).acquire().await.unwrap();
    let much = "x".repeat(100_000);
    let fill = || etcdctl(engine.address()).args(["put", "much", &much]).output().unwrap().status.success();
    assert!((0..200).any(|_| !fill()), "it is never full");
    let after = locks(&url(&engine)).await.unwrap();
    assert_eq!(after.inspect("a").await.unwrap().unwrap().holders.len(), 1);
    let refused = after.lock("b").ttl(secs(60)).try_acquire().await.unwrap_err();
    // etcd says so also of what it had begun to apply.
    says(&refused, ErrorKind::Indeterminate, &["full"]);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(after.inspect("a").await.unwrap(), None);
}

#[tokio::test]
async fn a_lock_that_nobody_renews_leaves_no_lease_behind() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    let request = || locks.lock("a").ttl(secs(3600)).no_renew();
    let leases = || ctl(engine.address(), &["lease", "list"]).lines().next().unwrap().to_owned();
    let before = leases();
    assert_eq!(request().acquire().await.unwrap().release().await.unwrap(), Release::Released);
    assert_eq!(leases(), before, "a release left one");
    let held = request().acquire().await.unwrap();
    let with_one = leases();
    assert!(request().try_acquire().await.unwrap().is_none());
    assert!(request().shared().try_acquire().await.unwrap().is_none());
    assert_eq!(leases(), with_one, "whoever found it busy left one");
    assert_eq!(held.release().await.unwrap(), Release::Released);
    // Also of clients that end at once.
    for _ in 0..20 {
        let brief = crate::support::locks(&url(&engine)).await.unwrap();
        let guard = brief.lock("a").ttl(secs(3600)).no_renew().acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        brief.close().await;
    }
    assert_eq!(leases(), before, "a client that ended after its release left one");
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_costs_a_moment_once() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let (silent, nobody) = (TcpListener::bind("127.0.0.1:0").unwrap(), engines::spare_port());
    let hosts = format!("etcd://{},{},{}/", silent.local_addr().unwrap(), nobody.address(), engine.address());
    let locks = locks(&hosts).await.unwrap();
    let began = Instant::now();
    for n in 0..20 {
        locks.lock(format!("a/{n}")).ttl(secs(10)).acquire().await.unwrap().release().await.unwrap();
    }
    assert!(began.elapsed() < secs(3), "each call paid for the silent one: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_password_is_needed_where_etcd_wants_one_and_is_renewed_when_it_forgets_us() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let address = engine.address();
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "add", "ann:hush"],
        &["role", "add", "locker"],
        &["role", "grant-permission", "locker", "readwrite", "--prefix=true", "/locks/"],
        &["user", "grant-role", "ann", "locker"],
        &["auth", "enable"],
    ] {
        ctl(address, words);
    }
    let with = |login: &str| format!("etcd://{login}@{address}/");
    says(&refusal(&url(&engine)).await, ErrorKind::Denied, &["USER:PASSWORD"]);
    let wrong = refusal(&with("ann:wrong")).await;
    says(&wrong, ErrorKind::Denied, &["password"]);
    assert!(!wrong.to_string().contains("wrong"), "nobody prints a password");
    let locks = locks(&with("ann:hush")).await.unwrap();
    let guard = locks.lock("a").ttl(secs(20)).acquire().await.unwrap();
    // The tokens it gave are in its memory alone.
    engine.restart(Data::Kept).unwrap();
    guard.ensure(secs(18)).await.expect("we say who we are again");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    // Beyond what the role allows.
    let mut elsewhere = EtcdConfig::from_url(&with("ann:hush")).unwrap();
    elsewhere.prefix = "/elsewhere/".to_owned();
    says(&refusal_of(elsewhere).await, ErrorKind::Denied, &["grant-permission"]);
    let checkup = tollgate::doctor(&format!("{}?prefix=/elsewhere/", with("ann:hush"))).await.unwrap();
    assert!(checkup.findings.iter().any(|finding| finding.what.contains("cannot be written")), "{checkup:?}");
    let status = etcdctl(address).args(["--user", "root:secret", "get", "--prefix", "/"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&status.stdout), "", "nothing is left");
}

/// A certificate authority, and files with what it signed.
struct Authority {
    folder: tempfile::TempDir,
    ca: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca"), ca.pem()).unwrap();
        Self { folder, ca }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.ca).unwrap(), key)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// What takes TLS from clients whom this authority has signed, and passes everything on to etcd.
    async fn guard(&self, etcd: SocketAddr) -> SocketAddr {
        let (cert, key) = self.sign("localhost");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.ca.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![CertificateDer::from(cert.der().to_vec())], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (acceptor, socket) = (
            TlsAcceptor::from(Arc::new(config)),
            tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await.ok()?;
                    let mut engine = tokio::net::TcpStream::connect(etcd).await.ok()?;
                    copy_bidirectional(&mut client, &mut engine).await.ok()
                });
            }
        });
        address
    }
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let (ours, others) = (Authority::new(), Authority::new());
    let port = ours.guard(engine.address()).await.port();
    let (cert, key) = ours.sign("client");
    let (cert, key) = (ours.file("cert", &cert.pem()), ours.file("key", &key.serialize_pem()));
    let with = |ca: Option<PathBuf>, own: bool| {
        let mut config = EtcdConfig::from_url(&format!("etcds://localhost:{port}/")).unwrap();
        let own = own.then(|| (cert.clone(), key.clone()));
        config.tls = Some(TlsFiles { ca, cert: own.clone().map(|own| own.0), key: own.map(|own| own.1) });
        config
    };
    let ca = ours.folder.path().join("ca");
    let backend = backend_of(with(Some(ca.clone()), true)).await.unwrap();
    let Attempt::Granted(grant) = backend.try_acquire(&claim("a")).await.unwrap() else {
        panic!("it is free")
    };
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    let stranger = refusal_of(with(Some(others.folder.path().join("ca")), true)).await;
    says(&stranger, ErrorKind::Config, &["?ca="]);
    let unknown = refusal_of(with(Some(ca), false)).await;
    assert!(unknown.to_string().contains("?cert="), "{unknown}");
    let plain = refusal(&format!("etcd://127.0.0.1:{port}/")).await;
    says(&plain, ErrorKind::Unavailable, &["etcds://"]);
    let tls = refusal(&format!("etcds://{}/", engine.address())).await;
    says(&tls, ErrorKind::Unavailable, &["does it speak TLS"]);
}

#[tokio::test]
async fn a_ttl_that_this_etcd_cannot_do_is_refused_with_the_range() {
    let slow = Config::etcd().argument("--heartbeat-interval=100").argument("--election-timeout=2000");
    let engine = engines::private(&slow).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    for ttl in [Duration::from_secs(2), Duration::from_millis(3500)] {
        let refused = locks.lock("a").ttl(ttl).try_acquire().await.unwrap_err();
        says(&refused, ErrorKind::InvalidArgument, &["3s to 86400s in steps of 1s"]);
    }
    locks.lock("a").ttl(secs(3)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_locks_cost_a_keep_alive_each_sixth_of_the_ttl_together() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = tollgate_testkit::proxy::Proxy::start(engine.address(), crate::support::wire::http2());
    let locks = locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let many = tollgate_testkit::scale::scale(2_000, 10_000);
    let mut guards = Vec::new();
    for chunk in 0..many / 100 {
        let some = (0..100).map(|n| locks.lock(format!("many/{chunk}/{n}")).ttl(secs(12)).acquire());
        guards.extend(futures_util::future::join_all(some).await.into_iter().map(Result::unwrap));
    }
    // Everybody is watched by now.
    tokio::time::sleep(secs(3)).await;
    let (before, began) = (proxy.take_counts(), Instant::now());
    tokio::time::sleep(secs(8)).await;
    let counts = proxy.take_counts();
    println!(
        "{many} locks: {} frames and {} bytes out in {:?}, after {} frames to take them",
        counts.requests,
        counts.bytes_out,
        began.elapsed(),
        before.requests
    );
    assert!(counts.requests < 100, "{} frames were sent for {many} locks in 8 s", counts.requests);
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    proxy.take_counts();
    let mut list = locks.list("many/");
    futures_util::StreamExt::next(&mut list).await.unwrap().unwrap();
    let first = proxy.take_counts().bytes_back;
    let rest = futures_util::StreamExt::count(list).await;
    assert_eq!(rest, many - 1);
    let after = proxy.take_counts().bytes_back;
    println!("the first of {many} was there after {first} bytes, the others after {after} more");
    assert!(first < after / 2, "{first} bytes were read before the first was there, {after} after it");
    futures_util::future::join_all(guards.into_iter().map(|guard| guard.release())).await;
}

#[tokio::test]
async fn tokens_go_on_above_a_floor_and_everybody_sees_the_same() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let backend = Arc::new(backend(&url(&engine)).await.unwrap());
    let locks = tollgate_core::Locks::new(backend.clone()).unwrap();
    let name = LockName::new("moved").unwrap();
    let before = locks.lock("moved").ttl(secs(10)).acquire().await.unwrap();
    let floor = Token::new(1 << 40).unwrap();
    backend.raise_floor(&name, floor).await.unwrap();
    backend.raise_floor(&name, Token::new(7).unwrap()).await.unwrap();
    let seen = async || locks.inspect("moved").await.unwrap().unwrap().holders[0].token;
    assert_eq!(seen().await, Some(before.token()), "a grant keeps its number");
    before.release().await.unwrap();
    let after = locks.lock("moved").ttl(secs(10)).acquire().await.unwrap();
    assert!(after.token() > floor);
    assert_eq!(seen().await, Some(after.token()));
    assert!(locks.lock("other").ttl(secs(10)).acquire().await.unwrap().token() < floor);
    let revoked = soon("it is broken", locks.revoke_by_force("moved", after.token())).await.unwrap();
    assert_eq!(revoked, tollgate_core::Revocation::Revoked);
}

#[tokio::test]
async fn a_session_that_nobody_uses_is_ended() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    let leases = || ctl(engine.address(), &["lease", "list"]).lines().count() - 1;
    let guard = locks.lock("a").ttl(secs(60)).acquire().await.unwrap();
    assert_eq!(leases(), 1);
    guard.release().await.unwrap();
    until("the lease is gone", async || leases() == 0).await;
    let guard = locks.lock("a").ttl(secs(60)).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    locks.close().await;
    assert_eq!(leases(), 0, "a client that closes leaves nothing behind");
}

#[tokio::test]
async fn an_examination_finds_what_is_wrong_and_changes_nothing() {
    let engine = engines::private(&Config::etcd().nodes(3)).unwrap();
    let revision = || {
        let status = ctl(engine.address(), &["get", "nothing", "-w", "fields"]);
        status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ").map(str::to_owned)).unwrap()
    };
    let before = revision();
    let checkup = tollgate::doctor(&url(&engine)).await.unwrap();
    let has = |checkup: &tollgate::Checkup, words: &str| {
        checkup.findings.iter().any(|finding| finding.what.contains(words))
    };
    assert!(has(&checkup, "3 of 3 members answer; 1 may fail"), "{checkup:?}");
    assert!(has(&checkup, "agree on a leader"), "{checkup:?}");
    assert!(has(&checkup, "can be read and written"), "{checkup:?}");
    assert_eq!(before, revision(), "it wrote something");
    engine.nodes()[2].kill();
    let checkup = tollgate::doctor(&url(&engine)).await.unwrap();
    assert!(has(&checkup, "n3 does not answer") && checkup.has_problems(), "{checkup:?}");
}
