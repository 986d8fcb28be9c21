//! Looking at a database server as it really is: what is wrong with it, why that matters, and what to do. Changes nothing.

mod access;
mod cluster;
mod disk;
mod seen;
mod version;

use tollgate_core::guarantees::Basis;
use tollgate_core::{BoxFuture, Checkup, Fault, Finding, Guarantees, Result};
use tollgate_sql::{Style, of_leases};

use crate::config::MySqlConfig;
use crate::session::capabilities_of_sessions;
use seen::Seen;

/// Examines the server that `config` names, for locks of this style. Asks over a connection of its own and changes nothing.
///
/// # Errors
/// `Unavailable` if it cannot be reached, `Denied` if it does not let us in; what is wrong with it is a finding.
pub fn examine(config: MySqlConfig, style: Style) -> BoxFuture<'static, Result<Checkup>> {
    Box::pin(async move {
        config.check()?;
        let seen = Seen::look(&config).await?;
        let mut findings = Vec::new();
        version::look(&seen, &mut findings);
        access::look(&seen, &mut findings);
        disk::look(&seen, &mut findings);
        cluster::look(&seen, style, &mut findings);
        findings.extend(config.notes().iter().map(|note| {
            Finding::note(note.clone(), "this parameter of the URL has no effect", "remove it from the URL")
        }));
        findings.extend(seen.clock.iter().flat_map(|clock| clock.findings("")));
        let (declared, of) = match style {
            Style::Lease => (of_leases("mysql"), ""),
            Style::Session => (capabilities_of_sessions(), "GET_LOCK of "),
        };
        let subject = format!("{of}{} at {}", seen.kind(), config.host);
        Ok(Checkup { subject, findings, guarantees: guarantees(&declared.guarantees, &seen) })
    })
}

/// What is declared for every server, and less for those that answer before they write to their disks.
fn guarantees(declared: &Guarantees, seen: &Seen) -> Guarantees {
    let durable = disk::is_durable(seen);
    Guarantees::new(|fault| match fault {
        Fault::EngineRestarted if !durable => (Basis::Broken, Basis::Broken),
        _ => (declared.under(fault).exclusion, declared.under(fault).tokens),
    })
}
