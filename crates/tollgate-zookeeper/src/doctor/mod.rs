//! Looking at a ZooKeeper as it really is: what is wrong with it, why that matters, and what to do. Changes nothing.

mod access;
mod ensemble;
mod seen;
mod time;
mod version;
mod word;

use std::time::Duration;

use tollgate_core::{BoxFuture, Checkup, Finding, Result};

use crate::capabilities::{capabilities, ttls};
use crate::config::ZooKeeperConfig;
use seen::Seen;

/// Examines the ZooKeeper that `config` names, every server of it. Asks over connections of its own and changes nothing.
///
/// # Errors
/// `Unavailable` if no server that is named says anything; what is wrong is a finding.
pub fn examine(config: ZooKeeperConfig) -> BoxFuture<'static, Result<Checkup>> {
    Box::pin(async move {
        let seen = Seen::look(&config).await?;
        let mut findings = Vec::new();
        ensemble::look(&seen, &mut findings);
        version::look(&seen, &mut findings);
        match &seen.inside {
            Ok(inside) => {
                time::look(&seen, inside, &config, &mut findings);
                access::look(inside, &config, &mut findings);
            }
            Err(error) => findings.push(Finding::problem(
                error.message(),
                "no lock can be taken, and held locks will be lost",
                "start enough servers for a majority, and check whether they reach each other",
            )),
        }
        let hosts: Vec<_> = config.hosts.iter().map(ToString::to_string).collect();
        let guarantees = capabilities(ttls(Duration::ZERO, Duration::ZERO, config.tick)).guarantees;
        Ok(Checkup { subject: format!("ZooKeeper at {}", hosts.join(", ")), findings, guarantees })
    })
}
