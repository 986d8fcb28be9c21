//! Whether this user may do what locks need.

use tollgate_core::{ErrorKind, Finding};

use super::seen::Seen;
use crate::error::Denial;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let prefix = &seen.prefix;
    let error = match &seen.may_write {
        Ok(()) => {
            return findings.push(Finding::fine(format!("keys under {prefix} can be read and written")));
        }
        Err(error) => error,
    };
    let advice = match (error.kind(), Denial::of(error)) {
        (_, Some(Denial::Rights)) => {
            format!("etcdctl role grant-permission ROLE readwrite --prefix=true {prefix}")
        }
        (_, Some(Denial::Anonymous | Denial::Token)) => {
            "put a user and its password into the URL: etcd://USER:PASSWORD@HOST".to_owned()
        }
        (_, Some(Denial::Password)) => {
            "check the user and the password in the URL; etcdctl user list shows the users".to_owned()
        }
        (ErrorKind::Unavailable, None) => {
            "start the members that do not answer, and run the doctor again".to_owned()
        }
        _ => "see the other findings, and run the doctor again".to_owned(),
    };
    findings.push(Finding::problem(
        format!("keys under {prefix} cannot be written: {}", error.message()),
        "no lock can be taken",
        advice,
    ));
}
