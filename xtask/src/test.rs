//! `cargo xtask test`: every part's test programs, their time, and one count at the end.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::programs::{self, Program};
use crate::{clients, needs};

/// A part of the house and the packages it is tested by.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) packages: &'static [&'static str],
}

/// Every part, in the order of the floors.
pub(crate) const PARTS: &[Part] = &[
    Part { name: "core", packages: &["tollgate-types", "tollgate-core", "tollgate"] },
    Part { name: "engine", packages: &["tollgate-engine"] },
    Part { name: "memory", packages: &["tollgate-embedded"] },
    Part { name: "file", packages: &["tollgate-local"] },
    Part { name: "redis", packages: &["tollgate-redis"] },
    Part { name: "etcd", packages: &["tollgate-etcd"] },
    Part { name: "zookeeper", packages: &["tollgate-zookeeper"] },
    Part { name: "mysql", packages: &["tollgate-mysql"] },
    Part { name: "postgres", packages: &["tollgate-sql", "tollgate-postgres"] },
    Part { name: "fence", packages: &["tollgate-fence"] },
    Part { name: "testkit", packages: &["tollgate-testkit"] },
    Part { name: "bench", packages: &["tollgate-bench"] },
    Part { name: "cli", packages: &["tollgate-cli"] },
    Part { name: "xtask", packages: &["xtask"] },
];

/// How long a part may take: several times what it needs.
const CI_LIMIT: Duration = Duration::from_secs(20 * 60);
/// The same in a soak.
pub(crate) const SOAK_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// How a part is run.
#[derive(Default)]
pub(crate) struct How<'a> {
    pub(crate) environment: &'a [(&'a str, &'a str)],
    pub(crate) limit: Option<Duration>,
}

/// What a run of tests came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// The parts called `names`, or all.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Part>, String> {
    if names.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let find = |name: &String| PARTS.iter().find(|part| part.name == name);
    names
        .iter()
        .map(|name| find(name).ok_or_else(|| format!("there is no part {name:?}; there are {}", all())))
        .collect()
}

fn all() -> String {
    PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")
}

pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let parts = chosen(names)?;
    let started = Instant::now();
    needs::install()?;
    clients::install(parts.iter().map(|part| part.name))?;
    println!("building the tests");
    let programs = programs::build(&[], &["--quiet"])?;
    let built = started.elapsed();
    let mut summary = vec![("building".to_owned(), built, Count::default())];
    let mut mutants = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        println!(
            "\n== {} ({}/{}, {:.0} s so far)",
            part.name,
            number + 1,
            parts.len(),
            started.elapsed().as_secs_f64()
        );
        let began = Instant::now();
        let count = run_part(part, &programs, &How::default(), &mut mutants)?;
        summary.push((part.name.to_owned(), began.elapsed(), count));
    }
    mutants.sort();
    print_mutants(&mutants);
    finish(&summary)
}

/// Runs one part, shows what it prints, and counts. A program that fails does not keep the next one from running.
pub(crate) fn run_part(
    part: &Part,
    programs: &[Program],
    how: &How<'_>,
    mutants: &mut Vec<String>,
) -> Result<Count, String> {
    let ends = Instant::now() + how.limit.unwrap_or(CI_LIMIT);
    let mut count = Count::default();
    for program in programs.iter().filter(|program| program.is_of(part.packages)) {
        println!("\n-- {}", program.title());
        let failed_before = count.failed;
        let mut command = program.command();
        command.envs(how.environment.iter().copied());
        let left = ends.saturating_duration_since(Instant::now());
        let status = run_program(command, left, |line| {
            count.add(line);
            match line.strip_prefix("mutant | ") {
                Some(mutant) => mutants.push(mutant.to_owned()),
                None => println!("{line}"),
            }
        });
        let status = status.map_err(|error| format!("{}: {error}", program.title()))?;
        if !status.success() && count.failed == failed_before {
            println!("{} ended with {status} before its verdict", program.title());
            count.failed += 1;
        }
    }
    Ok(count)
}

/// Runs one program, for `limit` at most, and shows `each` line that it prints.
fn run_program(mut command: Command, limit: Duration, mut each: impl FnMut(&str)) -> io::Result<ExitStatus> {
    // In a group of its own, so that everything it started can be ended with it.
    let mut child = command.stdout(Stdio::piped()).process_group(0).spawn()?;
    let _alarm = Alarm::set(child.id(), limit);
    let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    lines.map_while(Result::ok).for_each(|line| each(&line));
    child.wait()
}

/// Ends a part that hangs.
struct Alarm {
    _ends_when_dropped: mpsc::Sender<()>,
}

impl Alarm {
    fn set(group: u32, limit: Duration) -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            if receiver.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("xtask: the part has used up its time and is ended");
                let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).status();
            }
        });
        Self { _ends_when_dropped: sender }
    }
}

impl Count {
    /// Adds what the closing line of a test program says.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let before = result.split(word).next().unwrap_or_default();
            before.trim_end().rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        self.passed += number(" passed");
        self.failed += number(" failed");
        self.skipped += number(" ignored");
    }
}

fn print_mutants(mutants: &[String]) {
    if !mutants.is_empty() {
        println!("\npromise | what was broken | the case that caught it");
    }
    for mutant in mutants {
        println!("{mutant}");
    }
}

/// The time and count of each part, and one count of all.
pub(crate) fn finish(summary: &[(String, Duration, Count)]) -> Result<(), String> {
    println!("\n{:12} {:>8} {:>7} {:>7} {:>15}", "part", "seconds", "passed", "failed", "not applicable");
    let mut total = Count::default();
    for (name, took, count) in summary {
        let seconds = took.as_secs_f64();
        println!("{name:12} {seconds:>8.1} {:>7} {:>7} {:>15}", count.passed, count.failed, count.skipped);
        total.passed += count.passed;
        total.failed += count.failed;
        total.skipped += count.skipped;
    }
    println!("total: {} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if total.failed > 0 {
        return Err("tests failed".to_owned());
    }
    if total.passed == 0 {
        return Err("no test ran".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_is_part_of_something() {
        let crates = std::fs::read_dir(crate::cargo::root().join("crates")).unwrap();
        for name in crates.map(|folder| folder.unwrap().file_name().into_string().unwrap()) {
            let tested = PARTS.iter().any(|part| part.packages.contains(&name.as_str()));
            assert!(tested, "{name} is in no part, so nobody tests it");
        }
    }

    #[test]
    fn closing_lines_are_counted() {
        let mut count = Count::default();
        count.add("test result: ok. 70 passed; 0 failed; 12 ignored; 0 measured; 0 filtered out; finished in 14.28s");
        count.add(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s",
        );
        count.add("test a ... ok");
        assert_eq!(count, Count { passed: 73, failed: 2, skipped: 12 });
    }
}
