//! Ports that stay an engine's own, also while it is down.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use tollgate_core::OwnerId;

/// Below the ports that the kernel gives to outgoing connections: none of those can take an engine's port
/// while it restarts.
const PORTS: Range<u16> = 15_000..32_000;

/// A port of the loopback that no other test takes, in whatever process, until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Abstract names are unique on the host and go with their process.
    _reserved: UnixListener,
}

impl Port {
    pub(super) fn reserve() -> Self {
        loop {
            let random = OwnerId::random().to_hex();
            let random = u16::from_str_radix(&random[..4], 16).expect("an owner id is hexadecimal");
            let number = PORTS.start + random % (PORTS.end - PORTS.start);
            let name = UnixAddr::from_abstract_name(format!("tollgate-test-port-{number}"));
            let Ok(_reserved) = name.and_then(|name| UnixListener::bind_addr(&name)) else { continue };
            // A program that knows nothing of this may have it.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self { number, _reserved };
            }
        }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}
