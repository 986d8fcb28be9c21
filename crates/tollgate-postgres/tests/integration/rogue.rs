//! Servers that are none: what they get from a client, and what it reads from them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::support::{backend, backend_of, psql};
use tollgate_core::{BootClock, ErrorKind, Keeper};
use tollgate_postgres::{AdvisoryBackend, PostgresConfig, PostgresGate, Style};
use tollgate_testkit::engines::{self, Config, Engine};

const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

fn url(address: SocketAddr) -> String {
    format!("postgres://ann:s3cret@{address}/shop")
}

/// Takes the first packet of a connection.
fn greeted(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut [0; 1024]).unwrap() > 0, "it says something first");
    stream
}

/// A server that accepts every login, answers their first request with what `parts` are, and says how much of that was taken.
fn flood(first: &'static [u8], part: Vec<u8>, most: usize) -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sending = std::thread::spawn(move || {
        let mut stream = greeted(&listener);
        stream.write_all(WELCOME).unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0, "it asks for something");
        stream.write_all(first).unwrap();
        let mut taken = 0;
        while taken < most && stream.write_all(&part).is_ok() {
            taken += part.len();
        }
        taken
    });
    (address, sending)
}

async fn assert_not_read(flood: (SocketAddr, JoinHandle<usize>), most: usize) {
    let (address, sending) = flood;
    let error = backend(&url(address)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("longer than any"), "{error}");
    let taken = tokio::task::spawn_blocking(|| sending.join().unwrap()).await.unwrap();
    assert!(taken < most, "{} MB of an answer were read", taken >> 20);
}

#[tokio::test]
async fn a_huge_message_is_refused_before_it_fills_the_memory() {
    // It says that it has 300 MB.
    let flood = flood(b"D\x11\xe1\xa3\x00", vec![b'x'; 1 << 20], 300_000_000);
    assert_not_read(flood, 40 << 20).await;
}

#[tokio::test]
async fn endless_small_rows_are_refused_before_they_fill_the_memory() {
    // One column, called a, and rows with one byte in it.
    let columns = b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    let row = b"D\0\0\0\x0b\0\x01\0\0\0\x01x";
    assert_not_read(flood(columns, row.repeat(10_000), 300_000_000), 40 << 20).await;
}

/// A server that asks for the password as it is, and tells what it was told.
fn rogue(address: IpAddr) -> (SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let mut stream = greeted(&listener);
            stream.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
            let mut said = vec![0; 1024];
            let count = stream.read(&mut said).unwrap_or(0);
            said.truncate(count);
            if sender.send(said).is_err() {
                return;
            }
        }
    });
    (address, told)
}

/// A PostgreSQL that asks for the password as it is.
fn asking() -> Engine {
    let engine = engines::private(&Config::postgres()).unwrap();
    psql(engine.address(), "create role ann superuser login password 's3cret'");
    let rules =
        "host all postgres 127.0.0.1/32 trust\nhost all all 0.0.0.0/0 password\nlocal all all password\n";
    std::fs::write(engine.folder().join("node-1/data/pg_hba.conf"), rules).unwrap();
    psql(engine.address(), "select pg_reload_conf()");
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_this_machine_is_told_the_password_as_it_is() {
    let engine = asking();
    let address = engine.address();
    let with = |password: &str| format!("postgres://ann:{password}@{address}/postgres");
    crate::support::until("it asks", async || backend(&with("wrong")).await.is_err()).await;
    backend(&with("s3cret")).await.unwrap();
    let (port, folder) = (address.port(), engine.folder().join("node-1"));
    let socket = format!("postgres://ann:s3cret@:{port}/postgres?host={}", folder.display());
    backend(&socket).await.unwrap();
    let (address, told) = rogue(Ipv4Addr::LOCALHOST.into());
    backend(&url(address)).await.err().unwrap();
    assert!(told.recv().unwrap().ends_with(b"s3cret\0"), "it is on this machine, too");
}

/// Only root may give this machine another address.
mod as_root {
    use tollgate_testkit::engines::Hosts;

    use super::*;

    /// An address of this machine that is not the loopback's, while the hosts are there.
    fn outside(hosts: &Hosts) -> IpAddr {
        let [a, b, c, _] = hosts.address(0).octets();
        Ipv4Addr::new(a, b, c, 1).into()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_elsewhere_is_not_told_the_password_as_it_is() {
        let hosts = Hosts::new(1).unwrap();
        let (address, told) = rogue(outside(&hosts));
        let config = || PostgresConfig::from_url(&url(address)).unwrap();
        let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
        let refusals = [
            backend_of(config()).await.err(),
            AdvisoryBackend::connect(config(), None, clock).await.err(),
            PostgresGate::connect(config()).await.err(),
            tollgate_postgres::examine(config(), Style::Lease).await.err(),
        ];
        for refused in refusals {
            let refused = refused.unwrap();
            assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
            for words in ["?sslmode=require", "?plain_password=allow"] {
                assert!(refused.to_string().contains(words), "{refused}");
            }
            assert_eq!(told.recv().unwrap(), b"", "it was told nothing");
        }
        let mut config = config();
        config.plain_password = true;
        backend_of(config).await.err().unwrap();
        assert!(told.recv().unwrap().ends_with(b"s3cret\0"), "as the URL says");
    }
}
