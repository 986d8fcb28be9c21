//! What each backend is expected to declare. Under-declaring to skip a case fails here.

use std::fmt::Write;

use tollgate_core::Capabilities;

/// The checked-in table: one file per subject.
fn table(subject: &str) -> Option<&'static str> {
    Some(match subject {
        "memory" => include_str!("../expected/memory.txt"),
        "file" => include_str!("../expected/file.txt"),
        "fake-session" => include_str!("../expected/fake-session.txt"),
        "fake-polling" => include_str!("../expected/fake-polling.txt"),
        _ => return None,
    })
}

/// Fails unless `capabilities` are those of the table.
pub fn check(subject: &str, capabilities: &Capabilities) -> Result<(), String> {
    let declared = render(capabilities);
    match table(subject) {
        Some(expected) if expected == declared => Ok(()),
        Some(expected) => Err(format!("it declares\n{declared}\nand the table expects\n{expected}")),
        None => Err(format!("the table of expected capabilities has no {subject}; it declares\n{declared}")),
    }
}

fn render(capabilities: &Capabilities) -> String {
    let Capabilities { backend, scope, modes, liveness, queue, ttl, adopt, revoke, lock_delay, guarantees } =
        capabilities;
    let mut text = format!(
        "backend {backend}\nscope {scope:?}\nshared {}\npermit {}\nliveness {liveness:?}\nqueue {queue:?}\nttl {ttl}\n\
         adopt {adopt:?}\nrevoke {revoke:?}\nlock_delay {lock_delay}\n",
        modes.shared, modes.permit
    );
    for row in guarantees.rows() {
        writeln!(text, "under {:?}: exclusion {:?}, tokens {:?}", row.fault, row.exclusion, row.tokens)
            .expect("writing to a string does not fail");
    }
    text
}
