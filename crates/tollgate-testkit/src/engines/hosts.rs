//! Hosts of their own for an engine's nodes, each a network namespace, so that a test can cut the network between them.
//!
//! Needs root, `ip` and `iptables`. The namespaces have no names: each lives as long as one process that sleeps in it, which
//! the kernel kills with the test program, and their cables go with them.

use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use super::spawner;
use super::trouble::Trouble;

/// How long a namespace may take to exist.
const PATIENCE: Duration = Duration::from_secs(20);

/// Hosts on one switch, which this process reaches, too.
pub struct Hosts {
    hosts: Vec<Host>,
    _switch: Namespace,
    subnet: Subnet,
}

/// One host.
#[derive(Debug)]
struct Host {
    namespace: Namespace,
    address: Ipv4Addr,
}

impl Hosts {
    /// So many hosts, with a network between them and this process.
    pub fn new(count: u8) -> Result<Self, Trouble> {
        let subnet = Subnet::reserve();
        let switch = Namespace::new()?;
        switch.run("ip link add switch type bridge && ip link set switch up")?;
        // The cable's own end goes with the other one, in the switch.
        let cable = format!("tgt{}", subnet.number);
        run(&format!("ip link add {cable} type veth peer name uplink netns {}", switch.pid()))?;
        run(&format!("ip addr add {}/24 dev {cable} && ip link set {cable} up", subnet.address(1)))?;
        switch.run("ip link set uplink master switch && ip link set uplink up")?;
        let hosts = (0..count).map(|number| {
            let (namespace, address) = (Namespace::new()?, subnet.address(number + 10));
            switch.run(&format!(
                "ip link add h{number} type veth peer name eth0 netns {} && \
                 ip link set h{number} master switch && ip link set h{number} up",
                namespace.pid()
            ))?;
            namespace.run(&format!(
                "ip addr add {address}/24 dev eth0 && ip link set eth0 up && ip link set lo up"
            ))?;
            Ok(Host { namespace, address })
        });
        Ok(Self { hosts: hosts.collect::<Result<_, Trouble>>()?, _switch: switch, subnet })
    }

    /// The address of a host, counted from 0.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        self.hosts[host].address
    }

    /// The command that runs `command` on a host: the same process, in another namespace.
    pub(super) fn on(&self, host: usize, command: &Command) -> Command {
        let mut entered = self.hosts[host].namespace.enter();
        entered.arg(command.get_program()).args(command.get_args());
        entered
    }

    /// Has `to` drop what `from` sends, until [`heal`](Self::heal).
    pub fn cut(&self, from: usize, to: usize) {
        let rule = format!("iptables -w -A INPUT -s {} -j DROP", self.address(from));
        self.hosts[to].namespace.run(&rule).expect("root may filter packets in its own namespace");
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        for host in &self.hosts {
            host.namespace.run("iptables -w -F").expect("root may filter packets in its own namespace");
        }
    }
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts").field("subnet", &self.subnet.number).finish_non_exhaustive()
    }
}

/// A network namespace that ends with this.
#[derive(Debug)]
struct Namespace(Child);

impl Namespace {
    fn new() -> Result<Self, Trouble> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]);
        let namespace = Self(spawner::spawn(command)?);
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let until = Instant::now() + PATIENCE;
        while std::fs::read_link(format!("/proc/{}/ns/net", namespace.pid()))? == own {
            if Instant::now() >= until {
                return Err(Trouble::new(
                    "no network namespace came to be; only root may make them".to_owned(),
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(namespace)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid()));
        command
    }

    fn run(&self, script: &str) -> Result<(), Trouble> {
        let mut command = self.enter();
        succeed(command.args(["sh", "-c", script]), script)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network that no other test uses, in whatever process, until this is dropped.
struct Subnet {
    number: u8,
    /// Abstract names are unique on the host and go with their process.
    _reserved: UnixListener,
}

impl Subnet {
    fn reserve() -> Self {
        loop {
            let random = tollgate_core::OwnerId::random().to_hex();
            let number = u8::from_str_radix(&random[..2], 16).expect("an owner id is hexadecimal");
            let name = UnixAddr::from_abstract_name(format!("tollgate-test-subnet-{number}"));
            if let Ok(_reserved) = name.and_then(|name| UnixListener::bind_addr(&name)) {
                return Self { number, _reserved };
            }
        }
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.number, host)
    }
}

fn run(script: &str) -> Result<(), Trouble> {
    succeed(Command::new("sh").args(["-c", script]), script)
}

fn succeed(command: &mut Command, script: &str) -> Result<(), Trouble> {
    let Output { status, stderr, .. } = command.output()?;
    if status.success() {
        return Ok(());
    }
    Err(Trouble::new(format!("{script}: {}", String::from_utf8_lossy(&stderr))))
}
