//! Looking at an etcd as it really is: what is wrong with it, why that matters, and what to do. Changes nothing.

mod access;
mod health;
mod seen;
mod space;
mod version;

use tollgate_core::{BoxFuture, Checkup, Result};

use crate::capabilities::{capabilities, ttl_from};
use crate::config::EtcdConfig;
use seen::Seen;

/// Examines the etcd that `config` names, every member of it. Asks over connections of its own and changes nothing.
///
/// # Errors
/// `Unavailable` if no member that is named can be reached, `Denied` if none lets us in; what is wrong is a finding.
pub fn examine(config: EtcdConfig) -> BoxFuture<'static, Result<Checkup>> {
    Box::pin(async move {
        let seen = Seen::look(&config).await?;
        let mut findings = Vec::new();
        health::look(&seen, &mut findings);
        version::look(&seen, &mut findings);
        space::look(&seen, &mut findings);
        access::look(&seen, &mut findings);
        let hosts: Vec<_> = config.endpoints.iter().map(ToString::to_string).collect();
        let guarantees = capabilities(ttl_from(std::time::Duration::from_secs(1))).guarantees;
        Ok(Checkup { subject: format!("etcd at {}", hosts.join(", ")), findings, guarantees })
    })
}
