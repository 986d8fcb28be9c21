//! What is printed of a run: each part as one block, then a table and one count.

use std::io;
use std::time::Duration;

use crate::count::Count;
use crate::runner::{End, Line, Outcome};
use crate::stall::Stalls;

/// How many last lines of a program are printed again if it failed and did not list its failures.
const UNEXPLAINED: usize = 20;

/// How test programs start the lines of the mutants' table, which is printed as one at the end.
const MUTANT: &str = "mutant | ";

/// Prints a line of a test program, unless it belongs into the table of mutants.
pub(crate) fn print_line(line: &str) {
    if !line.starts_with(MUTANT) {
        println!("{line}");
    }
}

/// A program that has ended.
pub(crate) struct ProgramReport {
    title: String,
    /// Which of the jobs it was.
    pub(crate) job: usize,
    pub(crate) outcome: Outcome,
    /// Tests that failed and passed when they were run again.
    pub(crate) passed_again: Vec<String>,
}

impl ProgramReport {
    /// A program that could not be run counts as a failure.
    pub(crate) fn new(title: &str, job: usize, outcome: io::Result<Outcome>) -> Self {
        let outcome = outcome.unwrap_or_else(|error| Outcome {
            lines: vec![Line::now(format!("FAILED: it cannot be run: {error}"))],
            count: Count { failed: 1, ..Count::default() },
            took: Duration::ZERO,
            end: End::Broken,
        });
        Self { title: title.to_owned(), job, outcome, passed_again: Vec::new() }
    }
}

impl ProgramReport {
    /// What a failed program printed of its failures.
    fn failures(&self) -> &[Line] {
        let lines = &self.outcome.lines;
        if self.outcome.count.failed == 0 {
            return &[];
        }
        // Its first list of failures has their output; the second, without it, is only their names.
        let from = lines.iter().position(|line| line.text == "failures:");
        &lines[from.unwrap_or(lines.len().saturating_sub(UNEXPLAINED))..]
    }
}

/// A part, and those of its programs that have ended.
pub(crate) struct PartReport {
    pub(crate) name: &'static str,
    programs: usize,
    ended: Vec<ProgramReport>,
}

impl PartReport {
    /// A report for each part, given the part of each program.
    pub(crate) fn of_all(parts: impl Iterator<Item = &'static str>) -> Vec<Self> {
        let mut reports: Vec<Self> = Vec::new();
        for name in parts {
            match reports.iter_mut().find(|report| report.name == name) {
                Some(report) => report.programs += 1,
                None => reports.push(Self { name, programs: 1, ended: Vec::new() }),
            }
        }
        reports
    }

    pub(crate) fn add(&mut self, program: ProgramReport) {
        self.ended.push(program);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ended.len() == self.programs
    }

    pub(crate) fn print(&self) {
        let Row { seconds, count, .. } = self.row();
        println!("\n== {}: {} passed, {} failed, {seconds:.0} s", self.name, count.passed, count.failed);
        for program in &self.ended {
            println!("\n-- {} ({:.1} s)", program.title, program.outcome.took.as_secs_f64());
            program.outcome.lines.iter().for_each(|line| print_line(&line.text));
        }
        println!();
    }

    /// Its programs that have ended.
    pub(crate) fn programs(&mut self) -> impl Iterator<Item = &mut ProgramReport> {
        self.ended.iter_mut()
    }

    /// The table lines of the mutants that its programs caught.
    pub(crate) fn mutants(&self) -> impl Iterator<Item = String> {
        let lines = self.ended.iter().flat_map(|program| &program.outcome.lines);
        lines.filter_map(|line| line.text.strip_prefix(MUTANT)).map(str::to_owned)
    }

    /// Its line in the table. Programs run side by side, so their times add up to more than passed.
    pub(crate) fn row(&self) -> Row {
        let mut row = Row::without_tests(self.name, Duration::ZERO);
        for program in &self.ended {
            row.seconds += program.outcome.took.as_secs_f64();
            row.count += program.outcome.count;
        }
        row
    }
}

/// Prints the failures of all parts again, because the blocks they stand in are far above.
pub(crate) fn print_failures(reports: &[PartReport]) {
    for report in reports {
        for program in report.ended.iter().filter(|program| program.outcome.count.failed > 0) {
            println!("\n== failed in {}: {}", report.name, program.title);
            program.failures().iter().for_each(|line| print_line(&line.text));
        }
    }
}

/// A line of the closing table.
pub(crate) struct Row {
    name: &'static str,
    seconds: f64,
    count: Count,
}

impl Row {
    pub(crate) fn failed(&self) -> usize {
        self.count.failed
    }

    pub(crate) fn without_tests(name: &'static str, took: Duration) -> Self {
        Self { name, seconds: took.as_secs_f64(), count: Count::default() }
    }
}

pub(crate) fn print_mutants(mutants: &[String]) {
    if !mutants.is_empty() {
        println!("\npromise | what was broken | the case that caught it");
    }
    for mutant in mutants {
        println!("{mutant}");
    }
}

/// Prints whether the machine stood still, and which tests passed only when they were run again because of that.
pub(crate) fn print_passed_again(reports: &[PartReport], stalls: &Stalls) {
    let programs = reports.iter().flat_map(|report| &report.ended);
    let names: Vec<&str> = programs.flat_map(|program| &program.passed_again).map(String::as_str).collect();
    if let Some((number, longest)) = stalls.summary() {
        println!("\nthe machine stood still {number} times, for {:.2} s at most", longest.as_secs_f64());
    }
    if !names.is_empty() {
        println!("UNSTABLE: {} passed only when run again, by themselves: {}", names.len(), names.join(", "));
    }
}

/// Prints the table and the count of all; an error if a test failed or none ran.
pub(crate) fn finish(rows: &[Row], took: Duration) -> Result<(), String> {
    println!("\n{:12} {:>8} {:>7} {:>7} {:>15}", "part", "seconds", "passed", "failed", "not applicable");
    let mut total = Count::default();
    for Row { name, seconds, count } in rows {
        println!(
            "{name:12} {seconds:>8.1} {:>7} {:>7} {:>15}",
            count.passed, count.failed, count.not_applicable
        );
        total += *count;
    }
    println!("(a part's seconds are those of its programs, which run side by side)");
    let Count { passed, failed, not_applicable, left_out } = total;
    let took = took.as_secs();
    println!(
        "total: {passed} passed, {failed} failed, {not_applicable} not applicable, in {} min {:02} s",
        took / 60,
        took % 60
    );
    if left_out > 0 {
        let parts = rows.iter().filter(|row| row.count.left_out > 0);
        let parts: Vec<_> = parts.map(|row| format!("{} {}", row.name, row.count.left_out)).collect();
        println!(
            "left out: {left_out} tests that mount file systems or change users ({}). They need root: \
             sudo -E env \"PATH=$PATH\" CARGO_TARGET_DIR=target/as-root cargo xtask test {}",
            parts.join(", "),
            parts.iter().map(|part| part.split(' ').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
        );
    }
    match (failed, passed) {
        (0, 0) => Err("no test ran".to_owned()),
        (0, _) => Ok(()),
        _ => Err("tests failed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(lines: &[&str], failed: usize) -> ProgramReport {
        let lines = lines.iter().map(|line| Line::now(line.to_string())).collect();
        let count = Count { failed, ..Count::default() };
        let outcome = Outcome { lines, count, took: Duration::ZERO, end: End::Complete };
        ProgramReport::new("it", 0, Ok(outcome))
    }

    #[test]
    fn of_a_failed_program_its_failures_are_printed_again() {
        let lines = ["test a ... ok", "test b ... FAILED", "failures:", "---- b stdout ----", "panicked"];
        let failures = |lines: &[&str], failed| {
            let program = program(lines, failed);
            program.failures().iter().map(|line| line.text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(failures(&lines, 1), ["failures:", "---- b stdout ----", "panicked"]);
        assert!(failures(&lines, 0).is_empty());
        assert_eq!(failures(&["a", "FAILED: it hung"], 1), ["a", "FAILED: it hung"]);
    }
}
