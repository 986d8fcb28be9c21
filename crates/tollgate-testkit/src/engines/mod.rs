//! Real engines on free ports of the loopback, each in a temporary folder.
//!
//! [`private`] starts one that a test may kill. [`shared`] gives all tests of a program that ask for the same
//! configuration the same engine; they use names of their own in it. It lives as long as the program.
//!
//! None outlives the program, whether it ends, panics or is killed with -9: the kernel kills an engine's
//! process with ours, and a guardian process kills what that left running and removes the folders (see
//! `spawner.rs`). So a shared engine needs no end of its own, and statics that are never dropped leave nothing.
//!
//! Everything here blocks, for a moment or until an engine is up.

mod clock;
mod config;
mod home;
mod hosts;
mod launch;
mod node;
mod port;
mod ready;
mod spawner;
mod template;
mod trouble;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use clock::Clock;
pub use config::{Config, Kind};
use home::Home;
pub use hosts::Hosts;
use launch::Place;
pub use node::{Data, Node};
pub use port::Port;
pub use trouble::Trouble;

/// One more port for an engine that has several. It stays the test's own as long as this lives.
pub fn spare_port() -> Port {
    Port::reserve()
}

/// A running engine: a node, or several. Dropping it kills them and removes their folder.
pub struct Engine {
    // Nodes go before the folder they work in.
    nodes: Vec<Node>,
    clock: Option<Arc<Clock>>,
    home: Home,
}

/// Starts an engine that nobody else uses.
pub fn private(config: &Config) -> Result<Engine, Trouble> {
    start(config, None)
}

/// Starts an etcd that nobody else uses, each node on a host of its own.
pub fn private_on(hosts: &Arc<Hosts>, config: &Config) -> Result<Engine, Trouble> {
    assert_eq!(config.kind, Kind::Etcd, "the others listen on the loopback alone");
    start(config, Some(hosts))
}

fn start(config: &Config, hosts: Option<&Arc<Hosts>>) -> Result<Engine, Trouble> {
    let home = Home::new()?;
    let clock = if config.own_clock { Some(Arc::new(Clock::new(home.path())?)) } else { None };
    let ports: Vec<Vec<Port>> =
        (0..config.nodes).map(|_| (0..config.kind.ports()).map(|_| Port::reserve()).collect()).collect();
    let numbers: Vec<Vec<u16>> = ports.iter().map(|ports| ports.iter().map(Port::number).collect()).collect();
    let nodes = ports.into_iter().enumerate().map(|(n, ports)| {
        let folder = home.path().join(format!("node-{}", n + 1));
        Node::new(
            config,
            Place { number: n + 1, folder, ports: numbers.clone(), hosts: hosts.cloned() },
            clock.clone(),
            ports,
        )
    });
    let engine = Engine { nodes: nodes.collect(), clock, home };
    engine.restart(Data::Kept)?;
    Ok(engine)
}

/// The engine of this configuration that all tests of this program share, started at the first call. Panics
/// if it does not start: a missing engine is never a skip.
pub fn shared(config: &Config) -> &'static Engine {
    static SHARED: Mutex<Option<HashMap<Config, &'static OnceLock<Engine>>>> = Mutex::new(None);
    let place = {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let engines = shared.get_or_insert_default();
        *engines.entry(config.clone()).or_insert_with(|| Box::leak(Box::default()))
    };
    // Others that want another engine need not wait for this one.
    place.get_or_init(|| private(config).unwrap_or_else(|trouble| panic!("{trouble}")))
}

impl Engine {
    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Where clients find the first node.
    pub fn address(&self) -> SocketAddr {
        self.nodes[0].address()
    }

    /// The folder that everything of it is in.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// All its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().flat_map(Node::pids).collect()
    }

    /// Whether every node serves clients now.
    pub fn answers(&self) -> bool {
        self.nodes.iter().all(Node::answers)
    }

    /// Ends every node in order.
    pub fn stop(&self) {
        self.nodes.iter().for_each(Node::stop);
    }

    /// Kills every node.
    pub fn kill(&self) {
        self.nodes.iter().for_each(Node::kill);
    }

    /// Stops every node in its tracks.
    pub fn pause(&self) {
        self.nodes.iter().for_each(Node::pause);
    }

    /// Has every node go on.
    pub fn resume(&self) {
        self.nodes.iter().for_each(Node::resume);
    }

    /// Starts every node again on its port, and returns when all serve clients.
    pub fn restart(&self, data: Data) -> Result<(), Trouble> {
        // All before the first is waited for: they need each other.
        self.nodes.iter().try_for_each(|node| node.launch(data))?;
        self.nodes.iter().try_for_each(Node::wait_until_ready)
    }

    /// Puts its wall clock ahead of the real one, at once and for good.
    pub fn set_clock_ahead(&self, by: Duration) {
        self.set_clock(i64::try_from(by.as_nanos()).expect("a test jumps less than 292 years"));
    }

    /// Puts its wall clock behind the real one, at once and for good.
    pub fn set_clock_back(&self, by: Duration) {
        self.set_clock(-i64::try_from(by.as_nanos()).expect("a test jumps less than 292 years"));
    }

    fn set_clock(&self, nanoseconds: i64) {
        let clock = self.clock.as_ref().expect("only an engine with Config::own_clock has a clock to set");
        clock.set(nanoseconds).expect("the engine's folder can be written");
    }
}
