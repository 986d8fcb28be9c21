//! The holder processes of this user, for `tollgate doctor`.

use std::os::unix::net::UnixStream;
use std::path::Path;

use tollgate::Finding;

use super::rendezvous::folders;

/// Findings about the sockets of this user's holders.
pub(crate) fn survey() -> Vec<Finding> {
    let (mut alive, mut dead) = (0, Vec::new());
    for folder in folders() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| is_socket_name(path)) {
            match UnixStream::connect(&path) {
                Ok(_) => alive += 1,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => dead.push(path),
                // The holder has just ended, or belongs to another user.
                Err(_) => {}
            }
        }
    }
    let mut findings =
        vec![Finding::fine(format!("holder processes of this user that keep locks for scripts: {alive}"))];
    if let Some(first) = dead.first() {
        let count = dead.len();
        findings.push(Finding::note(
            format!(
                "sockets left behind by holder processes that were killed: {count} (first {})",
                first.display()
            ),
            "they hold no lock: the kernel freed the locks of those processes",
            "delete them if they are in your way",
        ));
    }
    findings
}

fn is_socket_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sock")
}
