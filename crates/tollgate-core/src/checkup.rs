//! What an examination of an engine found, as data.

use serde::Serialize;

use crate::guarantees::Guarantees;

/// What an examination found. Nothing was changed by it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let checkup = tollgate::doctor("memory:").await?;
/// for finding in &checkup.findings {
///     println!("{}", finding.what);
/// }
/// assert!(!checkup.has_problems());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Checkup {
    /// What was examined, for people: a folder, a server.
    pub subject: String,
    /// Everything that was looked at, in that order.
    pub findings: Vec<Finding>,
    /// What the locks' promises rest on.
    pub guarantees: Guarantees,
}

impl Checkup {
    /// Whether something must be changed.
    pub fn has_problems(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Problem)
    }
}

/// One thing that was looked at.
///
/// ```
/// use tollgate::{Finding, Severity};
///
/// let finding = Finding::note("the disk is nearly full", "new locks need room", "make room");
/// assert_eq!(finding.severity, Severity::Note);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// Why it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// How much a finding matters.
///
/// ```
/// use tollgate::{Finding, Severity};
///
/// assert_eq!(Finding::fine("all is well").severity, Severity::Fine);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It is as it should be.
    Fine,
    /// Worth knowing; nothing must be changed.
    Note,
    /// Something must be changed.
    Problem,
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(what: impl Into<String>) -> Self {
        Self { severity: Severity::Fine, what: what.into(), why: None, advice: None }
    }

    /// Something worth knowing.
    pub fn note(what: impl Into<String>, why: impl Into<String>, advice: impl Into<String>) -> Self {
        let (why, advice) = (Some(why.into()), Some(advice.into()));
        Self { severity: Severity::Note, what: what.into(), why, advice }
    }

    /// Something that must be changed.
    pub fn problem(what: impl Into<String>, why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, ..Self::note(what, why, advice) }
    }
}
