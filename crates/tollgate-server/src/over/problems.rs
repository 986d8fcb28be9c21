//! An engine's errors in the words of the API.

use tollgate_core::{Error, ErrorKind};
use tollgate_proto::{LossCause, Problem, ProblemKind};

pub(super) fn problem(error: &Error) -> Problem {
    let kind = match error.kind() {
        ErrorKind::InvalidArgument => ProblemKind::Invalid,
        ErrorKind::Unsupported => ProblemKind::Unsupported,
        ErrorKind::Indeterminate => ProblemKind::Indeterminate,
        ErrorKind::Busy => ProblemKind::Busy,
        ErrorKind::Deadlock => ProblemKind::Deadlock,
        ErrorKind::Lost => return Problem::lost(LossCause::Gone, error.to_string()),
        // What is wrong with the engine is not the client's doing.
        _ => ProblemKind::Unavailable,
    };
    let mut problem = Problem::new(kind, error.to_string());
    if kind == ProblemKind::Unavailable {
        problem.retry_after_ms = Some(1000);
    }
    problem
}

/// 503: another server, or the next run of this one, answers.
pub(super) fn stopping() -> Problem {
    let detail = "the server is stopping; repeat the call with the same owner at another server";
    let mut problem = Problem::new(ProblemKind::Unavailable, detail);
    problem.retry_after_ms = Some(1000);
    problem
}

pub(super) fn unexpected(detail: &str) -> Problem {
    Problem::new(ProblemKind::Unavailable, detail)
}

pub(super) fn lost() -> Problem {
    let detail = "the lock is not held by this owner any more; stop the work, and take the lock again";
    Problem::lost(LossCause::Gone, detail)
}
