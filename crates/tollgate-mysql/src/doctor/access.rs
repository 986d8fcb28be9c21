//! What this user may do, whether the tables are there, and who can listen.

use tollgate_core::Finding;

use super::seen::Seen;

/// What locks need in their database, once the tables are there.
const NEEDED: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE"];
/// What making the tables needs.
const TO_CREATE: [&str; 2] = ["CREATE", "CREATE ROUTINE"];

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let lacks = |wanted: &[&'static str]| -> Vec<&'static str> {
        wanted.iter().copied().filter(|right| !may(seen, right)).collect()
    };
    let (missing, to_create) = (lacks(&NEEDED), lacks(&TO_CREATE));
    if !missing.is_empty() {
        findings.push(Finding::problem(
            format!("this user lacks {} in the database {:?}", missing.join(", "), seen.database),
            "no lock can be taken, renewed or released",
            format!("grant this user {} on that database", NEEDED.join(", ").to_lowercase()),
        ));
    }
    findings.push(match (&seen.tables, to_create.is_empty(), &seen.stranger) {
        (_, _, Some((what, why, advice))) => Finding::problem(what.clone(), why.clone(), advice.clone()),
        (Some(dialect), ..) => Finding::fine(format!("the lock tables exist (dialect {dialect})")),
        (None, true, None) => {
            Finding::fine("the lock tables do not exist yet; the first client that connects creates them")
        }
        (None, false, None) => Finding::problem(
            format!(
                "the lock tables do not exist, and this user may not create them ({})",
                to_create.join(", ")
            ),
            "no lock can be taken",
            "let a user with that right run what `tollgate sql-schema URL` prints",
        ),
    });
    if seen.remote && !seen.encrypted {
        findings.push(Finding::note(
            "the connection is not encrypted",
            "an attacker that can read the traffic learns the owner ids of locks, and can release the locks",
            "add ?ssl-mode=required to the URL",
        ));
    }
}

/// Whether one of the grants is this right, everywhere or in the locks' database.
fn may(seen: &Seen, right: &str) -> bool {
    seen.grants.iter().any(|grant| {
        let Some((rights, scope)) = grant.strip_prefix("GRANT ").and_then(|grant| grant.split_once(" ON "))
        else {
            return false;
        };
        let place = scope.split(" TO ").next().unwrap_or_default().replace(['`', '\\'], "");
        let here = place == "*.*" || place == format!("{}.*", seen.database);
        here && rights.split(", ").any(|granted| granted == right || granted.starts_with("ALL PRIVILEGES"))
    })
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    fn severities(grants: &[&str], tables: bool) -> Vec<Severity> {
        let mut seen = healthy(&[]);
        seen.database = "shop_1".to_owned();
        seen.grants = grants.iter().map(|grant| (*grant).to_owned()).collect();
        seen.tables = tables.then(|| "mariadb".to_owned());
        let mut findings = Vec::new();
        look(&seen, &mut findings);
        findings.into_iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn rights_are_read_as_servers_write_them() {
        use Severity::{Fine, Problem};

        let usage = "GRANT USAGE ON *.* TO `ann`@`%`";
        let work = "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON `shop\\_1`.* TO `ann`@`%`";
        assert_eq!(severities(&[usage, work], true), [Fine]);
        assert_eq!(severities(&[usage, work], false), [Problem], "it may not make them");
        assert_eq!(severities(&[usage], true), [Problem, Fine]);
        assert_eq!(severities(&["GRANT ALL PRIVILEGES ON `shop_1`.* TO `ann`@`%`"], false), [Fine]);
        assert_eq!(severities(&["GRANT ALL PRIVILEGES ON `other`.* TO `ann`@`%`"], true), [Problem, Fine]);
    }
}
