//! Looking at servers as they really are: what is wrong with them, why that matters, and what to do. Changes nothing.

mod access;
mod disk;
mod holes;
mod memory;
mod redlock;
mod replicas;
mod seen;
mod sentinels;
mod version;

use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_core::guarantees::Basis;
use tollgate_core::url::Host;
use tollgate_core::{BootClock, BoxFuture, Checkup, Fault, Finding, Guarantees, Keeper, Result, Severity};

use crate::capabilities::capabilities;
use crate::cluster::Cluster;
use crate::config::{RedisConfig, Servers};
use crate::endpoint::Endpoint;
use crate::sentinel::Sentinel;
pub use redlock::examine_redlock;
use seen::Seen;

/// What rests on a clock beside leases.
const TOKENS_TOO: &str = "; and after a loss of data, tokens continue from that clock";

/// Examines the Redis that `config` names, every server of it. Asks over connections of its own and changes nothing.
///
/// # Errors
/// `Unavailable` if it cannot be reached, `Denied` if it does not let us in; what is wrong with it is a finding.
pub fn examine(config: RedisConfig) -> BoxFuture<'static, Result<Checkup>> {
    Box::pin(async move {
        let speech = config.speech()?;
        let mut findings = Vec::new();
        let endpoints = match &config.servers {
            Servers::One(host) => vec![Endpoint::new(host.clone(), speech)],
            Servers::Sentinel { sentinels, service, login } => {
                let watched = Sentinel::new(sentinels, login, service, speech);
                sentinels::look(&watched, &mut findings).await;
                vec![watched.primary().await?]
            }
            Servers::Cluster(hosts) => {
                let clock = Arc::new(BootClock::new(Keeper::global()?));
                let cluster = Cluster::new(hosts.clone(), speech.clone(), None, clock);
                let primaries = cluster.primaries().await?;
                let hosts =
                    primaries.iter().map(|address| Host::parse(address, 6379)).collect::<Result<Vec<_>>>()?;
                findings
                    .push(Finding::fine(format!("{} servers share the slots of the cluster", hosts.len())));
                hosts.into_iter().map(|host| Endpoint::new(host, speech.clone())).collect()
            }
        };
        let looked = join_all(endpoints.iter().map(|endpoint| Seen::look(endpoint, &config))).await;
        let mut seen = Vec::new();
        for (endpoint, answer) in endpoints.iter().zip(looked) {
            match answer {
                Ok(server) => seen.push(server),
                // Of one that is alone there is nothing else to say.
                Err(error) if endpoints.len() == 1 => return Err(error),
                Err(error) => findings.push(Finding::problem(
                    format!("{} cannot be queried: {}", endpoint.address(), error.message()),
                    "no lock in its slots can be taken",
                    "start it, or promote one of its replicas",
                )),
            }
        }
        let judged = seen.iter().map(|server| (server.name.clone(), of_server(server))).collect::<Vec<_>>();
        findings.extend(together(judged));
        let names: Vec<_> = endpoints.iter().map(Endpoint::address).collect();
        let subject = format!("Redis at {}", names.join(", "));
        Ok(Checkup { subject, findings, guarantees: guarantees(&seen) })
    })
}

/// Everything there is to say of one server on which locks are.
fn of_server(seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    version::look(seen, &mut findings);
    access::look(seen, &mut findings);
    disk::look(seen, &mut findings);
    memory::look(seen, &mut findings);
    replicas::look(seen, &mut findings);
    findings.extend(seen.clock.iter().flat_map(|clock| clock.findings(TOKENS_TOO)));
    findings
}

/// One server's findings as they are. Of several, what must be known, once for all of whom it is true.
fn together(mut judged: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    if judged.len() == 1 {
        return judged.swap_remove(0).1;
    }
    let mut merged: Vec<(Finding, Vec<String>)> = Vec::new();
    for (name, findings) in judged {
        for finding in findings {
            match merged.iter_mut().find(|(other, _)| *other == finding) {
                Some((_, names)) => names.push(name.clone()),
                None => merged.push((finding, vec![name.clone()])),
            }
        }
    }
    let said = merged.into_iter().filter(|(finding, _)| finding.severity > Severity::Fine);
    let named = said.map(|(finding, names)| {
        let what = format!("{}: {}", names.join(", "), finding.what);
        Finding { what, ..finding }
    });
    named.collect()
}

/// What is declared for every Redis, and more for those that write to their disks before they answer.
fn guarantees(seen: &[Seen]) -> Guarantees {
    let declared = capabilities().guarantees;
    let durable = !seen.is_empty() && seen.iter().all(disk::is_durable);
    Guarantees::new(|fault| match fault {
        Fault::EngineRestarted if durable => (Basis::Kept, Basis::Kept),
        _ => (declared.under(fault).exclusion, declared.under(fault).tokens),
    })
}
