//! A value that is put into an engine and found again, or not: through the clients that come with it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use tollgate_testkit::engines::Kind;

/// Writes `value`, and returns when the engine has it.
pub(crate) fn put(kind: Kind, address: SocketAddr, value: &str) {
    let found = match kind {
        Kind::Redis | Kind::Sentinel => ask(redis(address).args(["SET", "key", value])),
        Kind::Etcd => ask(etcd(address).args(["put", "key", value])),
        Kind::ZooKeeper => ZooKeeper::connect(address).create(value),
        Kind::Postgres | Kind::PgBouncer | Kind::MariaDb => {
            let statement =
                format!("CREATE TABLE the_values (value text); INSERT INTO the_values VALUES ('{value}')");
            ask(&mut sql(kind, address, &statement))
        }
    };
    assert!(found.is_some(), "{kind:?} did not take the value");
}

/// Reads it back; `None` if there is none.
pub(crate) fn get(kind: Kind, address: SocketAddr) -> Option<String> {
    let found = match kind {
        Kind::Redis | Kind::Sentinel => ask(redis(address).args(["GET", "key"])),
        Kind::Etcd => ask(etcd(address).args(["get", "key", "--print-value-only"])),
        Kind::ZooKeeper => ZooKeeper::connect(address).get(),
        Kind::Postgres | Kind::PgBouncer | Kind::MariaDb => {
            ask(&mut sql(kind, address, "SELECT value FROM the_values"))
        }
    };
    found.filter(|value| !value.is_empty())
}

pub(crate) fn redis(address: SocketAddr) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &address.port().to_string()]);
    command
}

fn etcd(address: SocketAddr) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &address.to_string()]);
    command
}

pub(crate) fn sql(kind: Kind, address: SocketAddr, statement: &str) -> Command {
    let port = address.port().to_string();
    let mut command = Command::new(if kind == Kind::MariaDb { "mariadb" } else { "psql" });
    match kind {
        Kind::Postgres | Kind::PgBouncer => {
            command.args(["-X", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-Atc", statement])
        }
        _ => command.args([
            "--no-defaults",
            "-h127.0.0.1",
            "-uroot",
            "-N",
            "-P",
            &port,
            "test",
            "-e",
            statement,
        ]),
    };
    command
}

/// What a client says; `None` if what it was asked about does not exist.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.output().expect("the engine's client is installed");
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Some(said.trim_end().to_owned());
    }
    let nothing = ["does not exist", "doesn't exist"].iter().any(|words| complained.contains(words));
    assert!(nothing, "{command:?}: {said}{complained}");
    None
}

/// As much of ZooKeeper's protocol as a value needs; its own client takes seconds to start.
struct ZooKeeper(TcpStream);

impl ZooKeeper {
    fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut zookeeper = Self(socket);
        let new_session = [&[0; 4][..], &[0; 8], &4000_i32.to_be_bytes(), &[0; 8], &text(&[0; 16])].concat();
        zookeeper.call(&new_session);
        zookeeper
    }

    fn call(&mut self, content: &[u8]) -> Vec<u8> {
        self.0.write_all(&text(content)).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("ZooKeeper answers");
        let mut reply = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut reply).unwrap();
        reply
    }

    /// A request, and its reply without the header; `None` if there is no such node.
    fn request(&mut self, kind: i32, content: &[u8]) -> Option<Vec<u8>> {
        let reply = self.call(&[&1_i32.to_be_bytes()[..], &kind.to_be_bytes(), content].concat());
        match i32::from_be_bytes(reply[12..16].try_into().unwrap()) {
            0 => Some(reply[16..].to_vec()),
            -101 => None,
            error => panic!("ZooKeeper answers {error}"),
        }
    }

    fn create(&mut self, value: &str) -> Option<String> {
        let anybody = [&1_i32.to_be_bytes()[..], &31_i32.to_be_bytes(), &text(b"world"), &text(b"anyone")];
        let content = [&text(b"/key")[..], &text(value.as_bytes()), &anybody.concat(), &[0; 4]].concat();
        self.request(1, &content).map(|_| value.to_owned())
    }

    fn get(&mut self) -> Option<String> {
        let reply = self.request(4, &[&text(b"/key")[..], &[0]].concat())?;
        let length = u32::from_be_bytes(reply[..4].try_into().unwrap()) as usize;
        Some(String::from_utf8(reply[4..4 + length].to_vec()).unwrap())
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
