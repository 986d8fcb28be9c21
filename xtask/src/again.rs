//! Tests that failed right after the machine stood still are run again, by themselves.
//!
//! Many tests keep leases of a second or two alive, and a machine that stands still for longer ends them: such a failure says
//! nothing about the code. It is excused only if a stall was measured shortly before the test said that it had failed, its
//! program gave a verdict on every test, and the test passes by itself. Excused failures are named and counted apart.

use std::time::Duration;

use crate::pool::Job;
use crate::report::{PartReport, ProgramReport};
use crate::runner::{self, End, Line};
use crate::stall::Stalls;

/// So many failures may be excused; more are a failure of something else.
const MOST: usize = 4;
/// How long before its end a test may have met the stall. Most tests take less.
const SHORTLY: Duration = Duration::from_secs(15);
/// How long a test by itself may take.
const LIMIT: Duration = Duration::from_secs(2 * 60);

/// Runs failed tests again where `stalls` excuse them, and notes those that pass.
pub(crate) fn run(reports: &mut [PartReport], jobs: &[Job<'_>], stalls: &Stalls) {
    let failed: usize = reports.iter().map(|report| report.row().failed()).sum();
    if failed == 0 || failed > MOST {
        return;
    }
    for program in reports.iter_mut().flat_map(PartReport::programs) {
        for test in failed_tests(program) {
            let Some(stall) = stalls.longest_between(test.at - SHORTLY, test.at) else { continue };
            println!(
                "\n== {} failed soon after the machine stood still for {:.2} s, and is run again by itself",
                test.name,
                stall.as_secs_f64()
            );
            let mut command = jobs[program.job].alone(&test.name);
            let Ok(outcome) = runner::run(&mut command, LIMIT, |line| println!("{line}")) else { continue };
            if outcome.end == End::Complete && outcome.count.failed == 0 && outcome.count.passed == 1 {
                program.outcome.count.failed -= 1;
                program.outcome.count.passed += 1;
                program.passed_again.push(test.name);
            }
        }
    }
}

/// A test that failed, and when its program said so.
struct FailedTest {
    name: String,
    at: std::time::Instant,
}

/// The tests that a program said failed; none if that does not explain all that is wrong with it.
fn failed_tests(program: &ProgramReport) -> Vec<FailedTest> {
    let name = |line: &Line| {
        let name = line.text.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(FailedTest { name: name.trim_end().to_owned(), at: line.at })
    };
    let failed: Vec<_> = program.outcome.lines.iter().filter_map(name).collect();
    let explains_all = program.outcome.end == End::Complete && failed.len() == program.outcome.count.failed;
    if explains_all { failed } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Count;
    use crate::runner::Outcome;

    fn names(lines: &[&str], failed: usize, end: End) -> Vec<String> {
        let lines = lines.iter().map(|line| Line::now(line.to_string())).collect();
        let count = Count { failed, ..Count::default() };
        let program = ProgramReport::new("it", 0, Ok(Outcome { lines, count, took: Duration::ZERO, end }));
        failed_tests(&program).into_iter().map(|test| test.name).collect()
    }

    #[test]
    fn failed_tests_are_found_by_their_names() {
        let lines = ["test a::b ... ok", "test redis::c_d            ... FAILED", "test e ... FAILED"];
        assert_eq!(names(&lines, 2, End::Complete), ["redis::c_d", "e"]);
    }

    #[test]
    fn a_program_that_hung_died_or_left_a_process_behind_is_not_excused() {
        for end in [End::Hung, End::Broken] {
            assert_eq!(names(&["test a ... FAILED"], 1, end), [""; 0]);
        }
        assert_eq!(names(&["test a ... FAILED"], 2, End::Complete), [""; 0], "a failure without a name");
    }
}
