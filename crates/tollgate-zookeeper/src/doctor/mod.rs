//! Looking at a ZooKeeper as it really is: what is wrong with it, why that matters, and what to do. Changes nothing.

mod access;
mod ensemble;
mod seen;
mod time;
mod version;
mod word;

use std::time::Duration;

use tollgate_core::{Checkup, Result};

use crate::capabilities::{capabilities, ttls};
use crate::config::ZooKeeperConfig;
use seen::Seen;

/// Examines the ZooKeeper that `config` names, every server of it. Asks over connections of its own and changes nothing.
///
/// # Errors
/// `Unavailable` if no server that is named gives us a session; what is wrong is a finding.
pub async fn examine(config: ZooKeeperConfig) -> Result<Checkup> {
    let seen = Seen::look(&config).await?;
    let mut findings = Vec::new();
    ensemble::look(&seen, &mut findings);
    version::look(&seen, &mut findings);
    time::look(&seen, &config, &mut findings);
    access::look(&seen, &config, &mut findings);
    let hosts: Vec<_> = config.hosts.iter().map(ToString::to_string).collect();
    let guarantees = capabilities(ttls(Duration::ZERO, seen.longest, config.tick)).guarantees;
    Ok(Checkup { subject: format!("ZooKeeper at {}", hosts.join(", ")), findings, guarantees })
}
