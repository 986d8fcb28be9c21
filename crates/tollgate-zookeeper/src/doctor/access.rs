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
                format!("who may use the folder of the locks cannot be asked: {message}"),
                "who may not read it can take no lock",
                "if it is somebody else's, log in as who created it: zookeeper://USER:PASSWORD@HOST; or ask again",
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
            "log in as who owns it, or have its owner add us: setAcl with the right cdrwa",
        )
    } else if !(anybody | ours).has(Permission::READ) {
        Finding::note(
            format!("{path} cannot be read"),
            "locks can be taken, but `tollgate ls` does not find them",
            "have its owner add the right to read: setAcl with r",
        )
    } else if anybody.has(Permission::DELETE) || anybody.has(Permission::CREATE) {
        Finding::note(
            format!("everybody who reaches ZooKeeper may change {path}"),
            "locks there can be broken by anybody, also by mistake",
            "log in by zookeeper://USER:PASSWORD@HOST, so that what is created belongs to that user",
        )
    } else {
        Finding::fine(format!("{path} is not everybody's"))
    });
}

fn may(acl: &[Acl], is: impl Fn(&Acl) -> bool) -> Permission {
    acl.iter().filter(|entry| is(entry)).fold(Permission::NONE, |all, entry| all | entry.permission())
}
