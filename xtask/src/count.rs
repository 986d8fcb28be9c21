//! How many tests passed, failed, do not apply, or were left out.

use std::ops::AddAssign;

/// The sums of what test programs said at their ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Printed as ignored: a case that says nothing about a backend, or a helper of another test.
    pub(crate) not_applicable: usize,
    /// Filtered out, because they take a right that this run does not have.
    pub(crate) left_out: usize,
}

/// The start of the closing line of a test program, of libtest and libtest-mimic alike.
const VERDICT: &str = "test result: ";

impl Count {
    /// Whether a line is the closing line of a test program.
    pub(crate) fn is_verdict(line: &str) -> bool {
        line.starts_with(VERDICT)
    }

    /// Adds what the closing line of a test program says; any other line adds nothing.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix(VERDICT) else { return };
        let number = |word: &str| {
            let before = result.split(word).next().unwrap_or_default();
            before.trim_end().rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        *self += Self {
            passed: number(" passed"),
            failed: number(" failed"),
            not_applicable: number(" ignored"),
            left_out: number(" filtered out"),
        };
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.not_applicable += other.not_applicable;
        self.left_out += other.left_out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let mut count = Count::default();
        count.add_line(
            "test result: ok. 70 passed; 0 failed; 12 ignored; 0 measured; 0 filtered out; finished in 14.28s",
        );
        count.add_line(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1s",
        );
        count.add_line("test a ... ok");
        assert_eq!(count, Count { passed: 73, failed: 2, not_applicable: 12, left_out: 4 });
    }
}
