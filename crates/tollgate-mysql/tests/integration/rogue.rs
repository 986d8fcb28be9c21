//! Servers that are none: what they get from a client, and what it reads from them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate_core::{BootClock, Error, ErrorKind, Keeper};
use tollgate_mysql::{MySqlConfig, MySqlGate, SessionBackend, Style};
use tollgate_testkit::engines;

/// What the driver takes for MySQL 8: its way to log in asks for the password itself, if the server wants that.
fn greeting() -> Vec<u8> {
    let (low, high): (u32, u32) = (0xa28f, 0x0008);
    let mut content = b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0".to_vec();
    content.extend_from_slice(&low.to_le_bytes()[..2]);
    content.extend_from_slice(b"\x2d\x02\0");
    content.extend_from_slice(&high.to_le_bytes()[..2]);
    content.extend_from_slice(b"\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0caching_sha2_password\0");
    content
}

const OK: &[u8] = b"\0\0\0\x02\0\0\0";

fn packet(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], content].concat()
}

/// A packet that the client sent; none if it is gone.
fn taken(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let mut content = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut content).ok()?;
    Some(content)
}

/// A server that accepts every login, answers the first question about `which` with rows without end, and says how much of that
/// was taken.
fn flood(which: &'static str) -> (SocketAddr, JoinHandle<usize>) {
    const MOST: usize = 300 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&packet(0, &greeting())).unwrap();
        taken(&mut stream).expect("it logs in");
        stream.write_all(&packet(2, OK)).unwrap();
        loop {
            let asked = taken(&mut stream).expect("it asks");
            if String::from_utf8_lossy(&asked).contains(which) {
                break;
            }
            stream.write_all(&packet(1, OK)).unwrap();
        }
        let column = |name: &[u8]| {
            let name = [&[u8::try_from(name.len()).unwrap()], name].concat();
            [b"\x03def\0\0\0", &name[..], b"\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0"].concat()
        };
        let head = [
            packet(1, b"\x02"),
            packet(2, &column(b"a")),
            packet(3, &column(b"b")),
            packet(4, b"\xfe\0\0\x02\0"),
        ];
        stream.write_all(&head.concat()).unwrap();
        let (mut number, mut sent) = (4_u8, 0);
        loop {
            let mut part = Vec::new();
            for _ in 0..10_000 {
                number = number.wrapping_add(1);
                part.extend(packet(number, b"\x011\x01y"));
            }
            if sent > MOST || stream.write_all(&part).is_err() {
                return sent;
            }
            sent += part.len();
        }
    });
    (address, sending)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_rows_are_refused_before_they_fill_the_memory() {
    for which in ["processlist", "global variables"] {
        let (address, sending) = flood(which);
        let config = MySqlConfig::from_url(&format!("mysql://root@{address}/test")).unwrap();
        let error = match which {
            "processlist" => refusal_of_leases(config).await,
            _ => tollgate_mysql::examine(config, Style::Lease).await.err().unwrap(),
        };
        assert!(error.to_string().contains("64 MiB"), "{which}: {error}");
        let sent = tokio::task::spawn_blocking(|| sending.join().unwrap()).await.unwrap();
        assert!(sent < 40 << 20, "{which}: {} MB of an answer were read", sent >> 20);
    }
}

/// A server that notes what it was told before anything else.
fn listening(address: IpAddr) -> (SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&packet(0, &greeting())).unwrap();
            let Some(login) = taken(&mut stream) else { continue };
            if sender.send(login).is_err() {
                return;
            }
        }
    });
    (address, told)
}

async fn refusal_of_leases(config: MySqlConfig) -> Error {
    let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
    tollgate_mysql::connect(config, clock).await.err().unwrap()
}

fn with_password(address: SocketAddr) -> MySqlConfig {
    MySqlConfig::from_url(&format!("mysql://ann:s3cret@{address}/test")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_this_machine_is_logged_in_to_without_encryption() {
    let (address, told) = listening(Ipv4Addr::LOCALHOST.into());
    refusal_of_leases(with_password(address)).await;
    assert!(!told.recv().unwrap().is_empty(), "it is logged in to");
    let engine = engines::private(&engines::Config::mariadb()).unwrap();
    let rights = "create user ann@localhost identified by 's3cret'; grant all on test.* to ann@localhost";
    crate::support::apply(engine.address(), "test", rights);
    let locks = crate::support::locks(with_password(engine.address())).await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let mut named = with_password(engine.address());
    named.host.name = "localhost".to_owned();
    let locks = crate::support::locks(named).await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

/// Only root may give this machine another address.
mod as_root {
    use tollgate_testkit::engines::Hosts;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_elsewhere_hears_nothing_of_a_password_without_encryption() {
        let hosts = Hosts::new(1).unwrap();
        let [a, b, c, _] = hosts.address(0).octets();
        let (address, told) = listening(Ipv4Addr::new(a, b, c, 1).into());
        let config = || with_password(address);
        let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
        let refusals = [
            refusal_of_leases(config()).await,
            SessionBackend::connect(config(), clock).await.err().unwrap(),
            MySqlGate::connect(config()).await.err().unwrap(),
            tollgate_mysql::examine(config(), Style::Lease).await.err().unwrap(),
        ];
        for refused in refusals {
            assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
            for words in ["?ssl-mode=required", "?plain_password=allow"] {
                assert!(refused.to_string().contains(words), "{refused}");
            }
        }
        assert!(told.recv_timeout(Duration::from_millis(300)).is_err(), "no client has connected");
        let mut allowed = config();
        allowed.plain_password = true;
        refusal_of_leases(allowed).await;
        assert!(!told.recv().unwrap().is_empty(), "as the URL says");
        let without = MySqlConfig::from_url(&format!("mysql://ann@{address}/test")).unwrap();
        refusal_of_leases(without).await;
        assert!(!told.recv().unwrap().is_empty(), "there is nothing to hide");
    }
}
