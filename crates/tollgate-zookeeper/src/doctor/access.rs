//! Who may use the nodes of locks.

use tollgate_core::Finding;

use super::seen::Inside;
use crate::config::ZooKeeperConfig;
use crate::wire::{Acl, Permission};

pub(super) fn look(inside: &Inside, config: &ZooKeeperConfig, findings: &mut Vec<Finding>) {
    let (path, acl) = match &inside.folder {
        Ok(folder) => folder,
        Err(message) => {
            return findings.push(Finding::problem(
                format!("the ACL of the locks' folder cannot be read: {message}"),
                "a client that may not read the folder can take no lock",
                "if the folder belongs to another user, log in as that user: \
                 zookeeper://USER:PASSWORD@HOST; or run the doctor again",
            ));
        }
    };
    let anybody = may(acl, |acl| acl.scheme() == "world");
    // Whether an entry of another kind is ours, only ZooKeeper can say.
    let ours = may(acl, |acl| acl.scheme() != "world" && config.login.is_some());
    findings.push(if !(anybody | ours).has(Permission::CREATE) {
        Finding::problem(
            format!("nodes cannot be created in {path}"),
            "no lock can be taken",
            "log in as the owner of the folder, or let the owner grant this user the rights cdrwa with \
             setAcl",
        )
    } else if !(anybody | ours).has(Permission::READ) {
        Finding::note(
            format!("{path} cannot be read"),
            "locks can be taken, but `tollgate ls` does not find them",
            "let the owner grant the right r (read) with setAcl",
        )
    } else if anybody.has(Permission::DELETE) || anybody.has(Permission::CREATE) {
        Finding::note(
            format!("every client that reaches ZooKeeper may change {path}"),
            "any client can break locks there, also by mistake",
            "log in with zookeeper://USER:PASSWORD@HOST, so that new nodes belong to that user",
        )
    } else {
        Finding::fine(format!("{path} is not open to all clients"))
    });
}

fn may(acl: &[Acl], is: impl Fn(&Acl) -> bool) -> Permission {
    acl.iter().filter(|entry| is(entry)).fold(Permission::NONE, |all, entry| all | entry.permission())
}
