//! Looking at a PostgreSQL as it really is: what is wrong with it, why that matters, and what to do. Changes nothing.

mod access;
mod durability;
mod load;
mod seen;
mod server;

use tollgate_core::guarantees::Basis;
use tollgate_core::{BoxFuture, Checkup, Fault, Finding, Guarantees, Result};
use tollgate_sql::{Style, of_leases};

use crate::advisory::capabilities_of_advisory;
use crate::config::PostgresConfig;
use seen::Seen;

/// Examines the PostgreSQL that `config` names, for locks of this style. Asks over connections of its own and changes nothing.
///
/// # Errors
/// `Unavailable` if it cannot be reached, `Denied` if it does not let us in; what is wrong with it is a finding.
pub fn examine(config: PostgresConfig, style: Style) -> BoxFuture<'static, Result<Checkup>> {
    Box::pin(async move {
        config.check()?;
        let seen = Seen::look(&config, style).await?;
        let mut findings = judge(&seen);
        findings.extend(config.notes().iter().map(|note| {
            Finding::note(note.clone(), "this parameter of the URL has no effect", "remove it from the URL")
        }));
        let (declared, of) = match style {
            Style::Lease => (of_leases("postgres"), ""),
            Style::Session => (capabilities_of_advisory(), "advisory locks of "),
        };
        let guarantees = guarantees(&declared.guarantees, &seen);
        Ok(Checkup { subject: format!("{of}PostgreSQL at {}", config.address()), findings, guarantees })
    })
}

/// Everything there is to say.
fn judge(seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    server::look(seen, &mut findings);
    if seen.in_recovery {
        // What is set on a replica says nothing of the primary.
        return findings;
    }
    durability::look(seen, &mut findings);
    access::look(seen, &mut findings);
    findings.extend(seen.clock.findings(""));
    load::look(&seen.load, &mut findings);
    findings
}

/// What is declared for every PostgreSQL, less where this one forgets, and more where it does not.
fn guarantees(declared: &Guarantees, seen: &Seen) -> Guarantees {
    Guarantees::new(|fault| match fault {
        Fault::EngineRestarted if !durability::survives_a_crash(seen) => (Basis::Broken, Basis::Broken),
        // No replica knows of the locks of connections.
        Fault::FailedOver if seen.style == Style::Lease && durability::survives_a_fail_over(seen) => {
            (declared.under(Fault::EngineRestarted).exclusion, declared.under(Fault::EngineRestarted).tokens)
        }
        _ => (declared.under(fault).exclusion, declared.under(fault).tokens),
    })
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::*;

    #[test]
    fn of_a_healthy_server_there_is_nothing_to_change() {
        let findings = judge(&seen::tests::healthy());
        assert!(findings.iter().all(|finding| finding.severity == Severity::Fine), "{findings:#?}");
    }

    #[test]
    fn what_a_server_forgets_is_not_promised() {
        let declared = Guarantees::new(|fault| match fault {
            Fault::FailedOver => (Basis::Broken, Basis::Broken),
            _ => (Basis::Time, Basis::Kept),
        });
        let mut seen = seen::tests::healthy();
        let under = |seen: &Seen, fault| guarantees(&declared, seen).under(fault).tokens;
        assert_eq!(under(&seen, Fault::EngineRestarted), Basis::Kept);
        assert_eq!(under(&seen, Fault::FailedOver), Basis::Broken);
        seen.durability.synchronous_standbys = "one".to_owned();
        assert_eq!(under(&seen, Fault::FailedOver), Basis::Kept);
        seen.durability.synchronous_commit = "off".to_owned();
        assert_eq!(under(&seen, Fault::EngineRestarted), Basis::Broken);
        assert_eq!(under(&seen, Fault::FailedOver), Basis::Broken);
    }
}
