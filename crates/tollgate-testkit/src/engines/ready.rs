//! Whether an engine answers, asked in its own protocol.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::config::Kind;

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the engine at `address` serves clients now: listening is not enough.
pub(super) fn answers(kind: Kind, address: SocketAddr) -> bool {
    let asked = match kind {
        Kind::Redis | Kind::Sentinel => ask(address, b"PING\r\n", |reply| reply.starts_with(b"+PONG\r\n")),
        Kind::Etcd => {
            ask(address, b"GET /health HTTP/1.0\r\n\r\n", |reply| contains(reply, b"\"health\":\"true\""))
        }
        // `ruok` is answered also by a node that has no leader.
        Kind::ZooKeeper => ask(address, b"srvr", |reply| contains(reply, b"\nMode: ")),
        Kind::Postgres | Kind::PgBouncer => {
            ask(address, &postgres_greeting(), |reply| reply.starts_with(b"R"))
        }
        // It greets first: a length, a number, and the protocol's version, or an error.
        Kind::MariaDb => ask(address, b"", |reply| reply.get(4) == Some(&10)),
    };
    asked.unwrap_or(false)
}

/// Sends `question` and reads until `satisfied`; `false` if the engine hangs up before.
fn ask(address: SocketAddr, question: &[u8], satisfied: fn(&[u8]) -> bool) -> io::Result<bool> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(question)?;
    let (mut reply, mut chunk) = (Vec::new(), [0; 4096]);
    while !satisfied(&reply) {
        match socket.read(&mut chunk)? {
            0 => return Ok(false),
            read => reply.extend_from_slice(&chunk[..read]),
        }
    }
    Ok(true)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A start-up packet of protocol 3.0 for the user and database that `initdb` makes.
fn postgres_greeting() -> Vec<u8> {
    let content = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(content.len() + 4).expect("it is short");
    [&length.to_be_bytes()[..], content].concat()
}
