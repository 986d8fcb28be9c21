//! What can be wrong on the way to an etcd: each is said in one sentence, with its exit code, and nothing hangs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Sandbox, text};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tollgate_testkit::engines::{self, Config};

/// What is wrong, the URL that has it wrong, the exit code, and what must be said of it.
type Case<'a> = (&'a str, String, i32, &'a [&'a str]);

/// Runs a command under a lock with each URL.
fn check(sandbox: &Sandbox, cases: &[Case<'_>]) {
    for (what, url, code, words) in cases {
        let began = Instant::now();
        let output = sandbox.output(&["run", "--url", url, "--try", "a", "--", "true"]);
        let said = text(&output.stderr);
        println!("{what}: {said}");
        assert_eq!(output.status.code(), Some(*code), "{what}: {said}");
        assert!(began.elapsed() < Duration::from_secs(12), "{what}: it took {:?}", began.elapsed());
        assert_eq!(said.trim_end().lines().count(), 1, "{what}: {said}");
        for word in *words {
            assert!(said.contains(word), "{what}: {word:?} is not in: {said}");
        }
        // What Rust prints for programmers, and secrets.
        for word in ["Error {", "Some(", "Status", "code:", "source:", "{ ", "\\\"", "hush", "wrong-one"] {
            assert!(!said.contains(word), "{what}: {word:?} is in: {said}");
        }
    }
}

/// A certificate authority, and files with what it signed.
struct Authority {
    folder: tempfile::TempDir,
    ca: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

/// What a server shows, and whether it wants to see something of its clients.
struct Server<'a> {
    name: &'a str,
    expired: bool,
    asks: bool,
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

    fn ca(&self) -> String {
        self.folder.path().join("ca").display().to_string()
    }

    fn sign(&self, name: &str, expired: bool) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        if expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        (params.signed_by(&key, &self.ca).unwrap(), key)
    }

    /// `cert=FILE&key=FILE` for a client.
    fn client(&self) -> String {
        let (cert, key) = self.sign("client", false);
        let [cert, key] = [("cert", cert.pem()), ("key", key.serialize_pem())].map(|(name, pem)| {
            let file: PathBuf = self.folder.path().join(name);
            std::fs::write(&file, pem).unwrap();
            file.display().to_string()
        });
        format!("cert={cert}&key={key}")
    }

    /// Takes TLS, and passes everything on to etcd. Answers its port.
    async fn guard(&self, etcd: SocketAddr, server: Server<'_>) -> u16 {
        let (cert, key) = self.sign(server.name, server.expired);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if server.asks {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(self.ca.der().to_vec())).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(clients.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config =
            builder.with_single_cert(vec![CertificateDer::from(cert.der().to_vec())], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await.ok()?;
                    let mut engine = tokio::net::TcpStream::connect(etcd).await.ok()?;
                    tokio::io::copy_bidirectional(&mut client, &mut engine).await.ok()
                });
            }
        });
        port
    }
}

#[test]
fn certificates_that_are_wrong_are_told_with_what_to_do() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let (ours, others, sandbox) = (Authority::new(), Authority::new(), Sandbox::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let guard =
        |name, expired, asks| runtime.block_on(ours.guard(engine.address(), Server { name, expired, asks }));
    let well = guard("localhost", false, false);
    let elsewhere = guard("etcd.example", false, false);
    let expired = guard("localhost", true, false);
    let asks = guard("localhost", false, true);
    let (ca, client) = (ours.ca(), ours.client());
    let absent = sandbox.path("absent").display().to_string();
    std::fs::write(sandbox.path("garbage"), "garbage").unwrap();
    let garbage = sandbox.path("garbage").display().to_string();
    let plain = engine.address();
    let tls = |port: u16, rest: &str| format!("etcds://localhost:{port}/?ca={ca}{rest}");
    check(
        &sandbox,
        &[
            ("TLS to a plain etcd", format!("etcds://{plain}/?ca={ca}"), 69, &["does it speak TLS"]),
            ("no TLS where it is wanted", format!("etcd://127.0.0.1:{well}/"), 69, &["write etcds://"]),
            (
                "an unknown authority",
                format!("etcds://localhost:{well}/?ca={}", others.ca()),
                78,
                &["not trusted", "?ca=FILE"],
            ),
            ("another name", tls(elsewhere, ""), 78, &["is not valid for that name"]),
            ("an old certificate", tls(expired, ""), 78, &["has expired"]),
            (
                "no certificate of ours",
                tls(asks, ""),
                77,
                &["requires a client certificate", "?cert=FILE&key=FILE"],
            ),
            (
                "one of another authority",
                tls(asks, &format!("&{}", others.client())),
                77,
                &["rejected the client certificate", "?cert=FILE&key=FILE"],
            ),
            (
                "no such file",
                format!("etcds://localhost:{well}/?ca={absent}"),
                78,
                &[&absent, "cannot be read"],
            ),
            (
                "no such certificate",
                tls(asks, &format!("&cert={absent}&key={absent}")),
                78,
                &[&absent, "cannot be read"],
            ),
            (
                "what is none",
                format!("etcds://localhost:{well}/?ca={garbage}"),
                2,
                &[&garbage, "no PEM certificate"],
            ),
            ("a certificate without TLS", format!("etcd://{plain}/?ca={ca}"), 2, &["etcds"]),
        ],
    );
    // And so it is right.
    for url in [tls(well, ""), tls(asks, &format!("&{client}"))] {
        let output = sandbox.output(&["run", "--url", &url, "--try", "a", "--", "true"]);
        assert!(output.status.success(), "{url}: {}", text(&output.stderr));
    }
}

#[test]
fn users_that_are_wrong_are_told_with_what_to_do() {
    let (engine, sandbox) = (engines::private(&Config::etcd()).unwrap(), Sandbox::new());
    let address = engine.address();
    for words in [
        "user add root:secret",
        "user grant-role root root",
        "user add ann:hush",
        "role add locker",
        "role grant-permission locker readwrite --prefix=true /mine/",
        "user grant-role ann locker",
        "auth enable",
    ] {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={address}")).args(words.split(' '));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    }
    let url = |login: &str, rest: &str| format!("etcd://{login}{address}/{rest}");
    check(
        &sandbox,
        &[
            ("nobody", url("", ""), 77, &["USER:PASSWORD"]),
            ("another password", url("ann:wrong-one@", ""), 77, &["user or password"]),
            ("a stranger", url("bob:wrong-one@", ""), 77, &["user or password"]),
            ("no rights", url("ann:hush@", ""), 77, &["--prefix=true /locks/"]),
            ("no rights there", url("ann:hush@", "?prefix=/theirs/"), 77, &["--prefix=true /theirs/"]),
        ],
    );
    let output = sandbox.output(&["run", "--url", &url("ann:hush@", "?prefix=/mine/"), "a", "--", "true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
