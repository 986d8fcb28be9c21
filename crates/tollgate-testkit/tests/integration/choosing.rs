//! The table in `docs/choosing.md` is what the backends declare: their suites hold them to the same files.
use std::path::Path;

/// Who has a column, and the file of what it declares.
const COLUMNS: [(&str, &str); 11] = [
    ("`file:`", "file"),
    ("`memory:`", "memory"),
    ("Redis", "redis"),
    ("Redlock", "redlock"),
    ("etcd", "etcd"),
    ("ZooKeeper", "zookeeper"),
    ("PostgreSQL", "postgres"),
    ("… advisory", "postgres-advisory"),
    ("MySQL", "mysql"),
    ("… session", "mysql-session"),
    ("server", "server"),
];

const ROWS: [(&str, &str); 13] = [
    ("HolderKilled", "the holder is killed"),
    ("HolderPaused", "the holder is stopped past its ttl, and goes on"),
    ("RenewalsFail", "renewals do not get through"),
    ("ClockForward", "the engine's wall clock jumps forward"),
    ("ClockBack", "the engine's wall clock jumps back"),
    ("ClockDrift", "clocks run at slightly different speeds"),
    ("ReplyLost", "a reply is lost, the network is cut"),
    ("RequestRepeated", "a request arrives twice, or late"),
    ("EngineRestarted", "the engine is killed, and comes back with its data"),
    ("EngineEmptied", "the engine comes back empty"),
    ("FailedOver", "a replica takes over that may lag"),
    ("Restored", "the engine is restored from a backup"),
    ("MachinePaused", "the holder's virtual machine is paused"),
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sign(basis: &str) -> &'static str {
    match basis {
        "Kept" => "✓",
        "Time" => "T",
        "Broken" => "✗",
        "Absent" => "–",
        other => panic!("what is {other:?}?"),
    }
}

/// Exclusion and tokens under one fault, as a backend's file says.
fn cell(declared: &str, fault: &str) -> String {
    let line =
        declared.lines().find_map(|line| line.strip_prefix(&format!("under {fault}: exclusion "))).unwrap();
    let (exclusion, tokens) = line.split_once(", tokens ").unwrap();
    format!("{} {}", sign(exclusion), sign(tokens))
}

#[test]
fn what_each_engine_survives_is_told_as_it_is_declared() {
    let declared = COLUMNS.map(|(_, file)| read(&format!("expected/{file}.txt")));
    let heads: Vec<&str> = COLUMNS.iter().map(|(head, _)| *head).collect();
    let mut table =
        format!("| what happens | {} |\n|{}\n", heads.join(" | "), " --- |".repeat(heads.len() + 1));
    for (fault, told) in ROWS {
        let cells: Vec<String> = declared.iter().map(|declared| cell(declared, fault)).collect();
        table += &format!("| {told} | {} |\n", cells.join(" | "));
    }
    let faults = declared[0].lines().filter(|line| line.starts_with("under ")).count();
    assert_eq!(faults, ROWS.len(), "there is a fault that has no row");
    assert!(read("../../docs/choosing.md").contains(&table), "docs/choosing.md has to say\n\n{table}");
}
