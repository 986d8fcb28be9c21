//! A crowd of waiting processes on one name: the server bears it, the holder keeps its lock, and each gets its turn.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, eventually, text};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::scale::scale;

fn number(address: SocketAddr, sql: &str) -> usize {
    let mut command = Command::new("psql");
    command.args([
        "-X",
        "-h",
        "127.0.0.1",
        "-p",
        &address.port().to_string(),
        "-U",
        "postgres",
        "-Atqc",
        sql,
    ]);
    let output = command.output().unwrap();
    text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{sql}: {}", text(&output.stderr)))
}

/// Processor time of the server's processes so far, in hundredths of a second.
fn used_by(engine: u32) -> u64 {
    let used = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect();
        let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        (fields[1] == engine.to_string()).then_some(ticks)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| used(process.file_name().to_str()?)).sum()
}

#[test]
fn a_crowd_of_processes_that_wait_on_postgres_has_a_connection_each_and_costs_the_holder_nothing() {
    let engine =
        engines::private(&Config::postgres().argument("-c").argument("max_connections=1000")).unwrap();
    let (sandbox, address) = (Sandbox::new(), engine.address());
    let url = format!("postgres://postgres@{address}/postgres");
    let hold = "until test -e go; do sleep 0.02; done";
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "10s", "a", "--", "sh", "-c", hold]);
    let held = "select count(*) from pg_class where relname = 'locks'";
    eventually("the tables are there", || (number(address, held) == 1).then_some(()));
    eventually("it is held", || {
        (number(address, "select count(*) from tollgate.locks where owner is not null") == 1).then_some(())
    });
    let crowd = scale(40, 500);
    let start = |_| sandbox.start(&["run", "--url", &url, "--ttl", "10s", "a", "--", "true"]);
    let mut waits: Vec<Running> = (0..crowd).map(start).collect();
    let end = Instant::now() + Duration::from_secs(120);
    while number(address, "select count(*) from tollgate.claims") < crowd {
        assert!(Instant::now() < end, "not all are in the queue");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Every place was refreshed once, and what was opened to get there is closed.
    std::thread::sleep(Duration::from_secs(8));
    let postmaster: usize =
        number(address, "select trim(split_part(pg_read_file('postmaster.pid'), chr(10), 1))::integer");
    let (postmaster, time) = (u32::try_from(postmaster).unwrap(), Duration::from_secs(10));
    let (began, before) = (Instant::now(), used_by(postmaster));
    let mut most = 0;
    while began.elapsed() < time {
        let open = "select count(*) from pg_stat_activity where application_name like 'tollgate%'";
        most = most.max(number(address, open));
        std::thread::sleep(Duration::from_millis(500));
    }
    let share = (used_by(postmaster) - before) as f64 / began.elapsed().as_secs_f64();
    println!("{crowd} processes wait with {most} connections and {share:.1} % of a core");
    assert!(most <= crowd * 6 / 5 + 6, "{most} connections of {crowd} processes that wait");
    assert!(share <= 20.0, "{share:.1} % of a core");
    assert!(holder.0.try_wait().unwrap().is_none(), "the holder lost its lock: {}", holder.stderr());
    for process in &mut waits {
        assert!(process.0.try_wait().unwrap().is_none(), "it gave up: {}", process.stderr());
    }
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(holder.code(), 0, "{}", holder.stderr());
    let end = Instant::now() + Duration::from_secs(120);
    for process in &mut waits {
        while process.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "not all were served");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(process.code(), 0, "{}", process.stderr());
    }
}
