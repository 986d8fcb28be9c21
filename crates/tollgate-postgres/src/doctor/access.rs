//! What this user may do, and who else may listen.

use tollgate_core::Finding;

use super::seen::{Rights, Seen};

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    findings.push(rights(&seen.rights));
    if let Some((what, why, advice)) = &seen.stranger {
        findings.push(Finding::problem(what.clone(), why.clone(), advice.clone()));
    }
    if !seen.private {
        findings.push(Finding::note(
            "the connection is not encrypted",
            "an attacker that can read the traffic learns the names of locks, and owner ids with which \
             locks can be released",
            "write sslmode=require in the URL, and name the certificate authority with ca= if the system \
             does not trust it",
        ));
    }
}

fn rights(rights: &Rights) -> Finding {
    let Rights { user, database, schema, .. } = rights;
    if !rights.has_tables {
        let may = if rights.has_schema { rights.may_create_tables } else { rights.may_create_schema };
        return if may {
            Finding::fine(format!(
                "there are no locks in this database yet, and {user} may create the tables for them"
            ))
        } else {
            Finding::problem(
                format!(
                    "there are no tables for locks in the schema {schema}, and {user} may not create them"
                ),
                "no lock can be taken",
                format!(
                    "grant create on database {database} to {user}, or let a user with that right run what \
                     `tollgate sql-schema URL` prints"
                ),
            )
        };
    }
    if rights.may_use_schema && rights.may_use_tables {
        return Finding::fine(format!("{user} has all rights that locks need"));
    }
    Finding::problem(
        format!("{user} may not use the tables of the locks"),
        "no lock can be taken",
        format!(
            "grant usage on schema {schema} to {user}; grant select, insert, update, delete on all tables in schema {schema} \
             to {user}; grant usage, select, update on all sequences in schema {schema} to {user}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    type Case = (fn(&mut Rights), Severity, &'static str);

    #[test]
    fn who_may_not_is_told_which_right_is_missing() {
        let cases: [Case; 5] = [
            (|_| {}, Severity::Fine, ""),
            (|r| r.may_use_tables = false, Severity::Problem, "grant usage on schema tollgate to app"),
            (|r| r.has_tables = false, Severity::Problem, "sql-schema"),
            (
                |r| {
                    r.has_tables = false;
                    r.may_create_tables = true;
                },
                Severity::Fine,
                "",
            ),
            (
                |r| {
                    (r.has_tables, r.has_schema) = (false, false);
                    r.may_create_schema = true;
                },
                Severity::Fine,
                "",
            ),
        ];
        for (change, severity, words) in cases {
            let mut seen = healthy();
            change(&mut seen.rights);
            let found = rights(&seen.rights);
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.advice.unwrap_or_default().contains(words));
        }
    }
}
