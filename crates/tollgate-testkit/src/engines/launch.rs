//! How each engine is prepared and started: its programs, its files and its command line.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;

use super::config::{Config, Kind};
use super::hosts::Hosts;
use super::spawner;
use super::template;
use super::trouble::Trouble;

/// What one node needs to know.
pub(super) struct Place {
    /// Its number, from 1.
    pub(super) number: usize,
    /// Where it works and logs.
    pub(super) folder: PathBuf,
    /// The ports of all nodes, each with the clients' first.
    pub(super) ports: Vec<Vec<u16>>,
    /// Where the nodes are, if not all on the loopback.
    pub(super) hosts: Option<Arc<Hosts>>,
}

impl Place {
    /// What it would lose with its disk.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The address of a node, counted from 1.
    pub(super) fn host(&self, number: usize) -> Ipv4Addr {
        self.hosts.as_ref().map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.address(number - 1))
    }

    fn port(&self) -> String {
        self.ports[self.number - 1][0].to_string()
    }
}

impl Kind {
    /// How many ports a node has.
    pub(super) fn ports(self) -> usize {
        match self {
            Self::Redis | Self::Sentinel | Self::Postgres | Self::MariaDb | Self::PgBouncer => 1,
            Self::Etcd => 2,
            Self::ZooKeeper => 3,
        }
    }

    /// The signal that has it end in order, whoever is connected.
    pub(super) fn end_signal(self) -> Signal {
        match self {
            // TERM would wait until the last client leaves.
            Self::Postgres => Signal::INT,
            _ => Signal::TERM,
        }
    }

    /// The user it runs as when the tests are root's: PostgreSQL and PgBouncer refuse to be, and MariaDB
    /// would change users itself, and with that shake off the signal that ties it to the test program.
    fn user(self) -> Option<&'static str> {
        match self {
            Self::Postgres | Self::PgBouncer => Some("postgres"),
            Self::MariaDb => Some("mysql"),
            _ => None,
        }
    }
}

/// Makes the data of a node that has none.
pub(super) fn prepare(config: &Config, place: &Place) -> Result<(), Trouble> {
    let data = place.data();
    fs::create_dir_all(&data)?;
    let owner = Owner::of(config.kind)?;
    for folder in [&place.folder, &data] {
        owner.give(folder)?;
    }
    match config.kind {
        Kind::Redis | Kind::Etcd => Ok(()),
        Kind::Sentinel => Ok(fs::write(place.folder.join("sentinel.conf"), sentinel_conf(config, place))?),
        Kind::PgBouncer => Ok(fs::write(place.folder.join("pgbouncer.ini"), pgbouncer_ini(config, place))?),
        Kind::ZooKeeper => {
            fs::write(data.join("myid"), place.number.to_string())?;
            Ok(fs::write(place.folder.join("zoo.cfg"), zoo_cfg(config, place))?)
        }
        Kind::Postgres | Kind::MariaDb => template::copy(config.kind, place),
    }
}

/// The command line of a node.
pub(super) fn command(config: &Config, place: &Place) -> Result<Command, Trouble> {
    let (data, port) = (place.data(), place.port());
    let mut command = match config.kind {
        Kind::Redis => {
            let mut command = program("redis-server", "redis-server")?;
            command.args(["--port", &port, "--bind", "127.0.0.1", "--dir"]).arg(&data);
            command
        }
        Kind::Sentinel => {
            let mut command = program("redis-server", "redis-server")?;
            command.args(["sentinel.conf", "--sentinel"]);
            command
        }
        Kind::Etcd => {
            let mut command = program("etcd", "etcd-server")?;
            let url = |number: usize, port: usize| {
                format!("http://{}:{}", place.host(number), place.ports[number - 1][port])
            };
            let own = |port: usize| url(place.number, port);
            let peers: Vec<_> = (1..=place.ports.len()).map(|n| format!("n{n}={}", url(n, 1))).collect();
            command.args(["--name", &format!("n{}", place.number), "--initial-cluster", &peers.join(",")]);
            command.args(["--listen-client-urls", &own(0), "--advertise-client-urls", &own(0)]);
            command.args(["--listen-peer-urls", &own(1), "--initial-advertise-peer-urls", &own(1)]);
            command
                .args(["--heartbeat-interval", "20", "--election-timeout", "200", "--data-dir"])
                .arg(&data);
            command
        }
        Kind::ZooKeeper => {
            // The last is for encrypted connections, and Debian's ZooKeeper forgets to name it.
            let jars =
                ["zookeeper", "slf4j-simple", "netty-codec"].map(|jar| format!("/usr/share/java/{jar}.jar"));
            for jar in &jars {
                find(jar, "zookeeper")?;
            }
            let mut command = program("java", "default-jre-headless")?;
            if !config.long_lived {
                // Neither the optimising compiler nor a collector with threads is worth its start in seconds.
                command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]);
            }
            command.args(["-Xmx512m", "-cp", &jars.join(":")]);
            command.args(["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]);
            command
        }
        Kind::Postgres => {
            let mut command = program("/usr/lib/postgresql/15/bin/postgres", "postgresql-15")?;
            command.args(["-p", &port, "-c", "listen_addresses=127.0.0.1", "-D"]).arg(&data);
            command.arg("-c").arg(format!("unix_socket_directories={}", place.folder.display()));
            command
        }
        Kind::MariaDb => {
            let mut command = program("/usr/sbin/mariadbd", "mariadb-server")?;
            command.args(["--no-defaults", "--bind-address=127.0.0.1"]).arg(format!("--port={port}"));
            command.arg(format!("--datadir={}", data.display()));
            command.arg(format!("--socket={}", place.folder.join("m.sock").display()));
            command
        }
        Kind::PgBouncer => {
            let mut command = program("/usr/sbin/pgbouncer", "pgbouncer")?;
            command.arg("pgbouncer.ini");
            command
        }
    };
    if !matches!(config.kind, Kind::ZooKeeper | Kind::Sentinel | Kind::PgBouncer) {
        command.args(&config.arguments);
    }
    if let Some(hosts) = &place.hosts {
        command = hosts.on(place.number - 1, &command);
    }
    let mut command = Owner::of(config.kind)?.become_it(command);
    settle(&mut command, place);
    Ok(command)
}

fn sentinel_conf(config: &Config, place: &Place) -> String {
    let own = format!("port {}\nbind 127.0.0.1\ndir {}\n", place.port(), place.data().display());
    own + &config.arguments.join("\n") + "\n"
}

/// Three lines say which databases there are, and where the rest begins.
fn pgbouncer_ini(config: &Config, place: &Place) -> String {
    let own = [
        "auth_type = any".to_owned(),
        "listen_addr = 127.0.0.1".to_owned(),
        format!("listen_port = {}", place.port()),
        format!("unix_socket_dir = {}", place.folder.display()),
        "max_client_conn = 1000".to_owned(),
    ];
    // The last word counts, and that is the test's.
    let (sections, wishes) = config.arguments.split_at(3);
    [sections, &own, wishes].concat().join("\n") + "\n"
}

fn zoo_cfg(config: &Config, place: &Place) -> String {
    let mut lines = vec![
        "tickTime=200".to_owned(),
        "initLimit=25".to_owned(),
        "syncLimit=10".to_owned(),
        "admin.enableServer=false".to_owned(),
        "maxClientCnxns=0".to_owned(),
        "4lw.commands.whitelist=*".to_owned(),
        "clientPortAddress=127.0.0.1".to_owned(),
        format!("clientPort={}", place.port()),
        format!("dataDir={}", place.data().display()),
    ];
    if place.ports.len() > 1 {
        let servers = place.ports.iter().enumerate();
        lines.extend(servers.map(|(n, p)| format!("server.{}=127.0.0.1:{}:{}", n + 1, p[1], p[2])));
    }
    lines.extend(config.arguments.iter().cloned());
    lines.join("\n") + "\n"
}

/// Has a command keep to the node's folder, with temporary files too: a MariaDB that starts removes those of
/// any other that has the same place for them.
fn settle(command: &mut Command, place: &Place) {
    command.current_dir(&place.folder).env("TMPDIR", &place.folder).stdin(Stdio::null());
}

/// Runs a command to its end, in the node's folder.
pub(super) fn run(mut command: Command, place: &Place) -> Result<(), Trouble> {
    settle(&mut command, place);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = format!("{command:?}");
    let output = spawner::spawn(command)?.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = [output.stdout, output.stderr].concat();
    Err(Trouble::new(format!("{said} failed:\n{}", String::from_utf8_lossy(&words))))
}

/// A command for a program that is there.
pub(super) fn program(name: &str, package: &str) -> Result<Command, Trouble> {
    Ok(Command::new(find(name, package)?))
}

/// Where a program or file is; it comes with the Debian package `package`.
pub(super) fn find(name: &str, package: &str) -> Result<PathBuf, Trouble> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Joining an absolute path gives that path.
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Trouble::missing(Path::new(name), package))
}

/// Whom a node's files belong to.
pub(super) enum Owner {
    /// Whoever runs the tests.
    Us,
    User {
        uid: u32,
        gid: u32,
    },
}

impl Owner {
    pub(super) fn of(kind: Kind) -> Result<Self, Trouble> {
        let Some(user) = kind.user().filter(|_| rustix::process::geteuid().is_root()) else {
            return Ok(Self::Us);
        };
        let users = fs::read_to_string("/etc/passwd")?;
        let found = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(user)).then_some(())?;
            Some(Self::User { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        });
        found.ok_or_else(|| Trouble::new(format!("there is no user {user}; its package makes it")))
    }

    pub(super) fn give(&self, folder: &Path) -> Result<(), Trouble> {
        if let Self::User { uid, gid } = self {
            chown(folder, Some(*uid), Some(*gid))?;
        }
        Ok(())
    }

    pub(super) fn become_it(&self, mut command: Command) -> Command {
        if let Self::User { uid, gid } = self {
            command.uid(*uid).gid(*gid);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_which_package_brings_it() {
        let sentence = find("no-such-engine", "some-package").unwrap_err().to_string();
        for word in ["no-such-engine", "Debian package some-package", "cargo xtask test"] {
            assert!(sentence.contains(word), "{sentence}");
        }
    }
}
