//! What each backend is expected to declare. Under-declaring to skip a case fails here.

use std::fmt::Write;

use tollgate_core::Capabilities;

/// The checked-in table: one file per subject. A layer, written after a `+`, declares what it is wrapped around
/// does, unless it has a file of its own.
fn table(subject: &str) -> Option<&'static str> {
    Some(match subject {
        "memory+namespace" => include_str!("../expected/memory+namespace.txt"),
        "fake-session+all" => include_str!("../expected/fake-session+all.txt"),
        "memory" => include_str!("../expected/memory.txt"),
        "redis" => include_str!("../expected/redis.txt"),
        "redlock3" | "redlock5" => include_str!("../expected/redlock.txt"),
        "etcd" | "etcd3" => include_str!("../expected/etcd.txt"),
        "zookeeper" | "zookeeper3" => include_str!("../expected/zookeeper.txt"),
        "mysql-session" => include_str!("../expected/mysql-session.txt"),
        "mysql" => include_str!("../expected/mysql.txt"),
        "postgres" => include_str!("../expected/postgres.txt"),
        "postgres-advisory" => include_str!("../expected/postgres-advisory.txt"),
        "server" | "server-grace" => include_str!("../expected/server.txt"),
        "file" => include_str!("../expected/file.txt"),
        "fake-session" => include_str!("../expected/fake-session.txt"),
        "fake-polling" => include_str!("../expected/fake-polling.txt"),
        layered => table(layered.split_once('+')?.0)?,
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
    let Capabilities {
        backend,
        scope,
        modes,
        liveness,
        queue,
        ttl,
        adopt,
        revoke,
        lock_delay,
        detect,
        longest_name,
        guarantees,
    } = capabilities;
    let mut text = format!(
        "backend {backend}\nscope {scope:?}\nshared {}\npermit {}\nliveness {liveness:?}\nqueue {queue:?}\nttl {ttl}\n\
         adopt {adopt:?}\nrevoke {revoke:?}\nlock_delay {lock_delay}\ndetect {detect}\nlongest_name {longest_name}\n",
        modes.shared, modes.permit
    );
    for row in guarantees.rows() {
        writeln!(text, "under {:?}: exclusion {:?}, tokens {:?}", row.fault, row.exclusion, row.tokens)
            .expect("writing to a string does not fail");
    }
    text
}
