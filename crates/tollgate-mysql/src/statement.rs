//! The statements that clients send: their texts.

use crate::config::Dialect;
use crate::schema::Tables;

/// How many there are.
pub(crate) const COUNT: usize = 22;

/// One of them. What each does is told in `statements.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    Take,
    Leave,
    Renew,
    Refresh,
    Look,
    Acquire,
    Extend,
    Release,
    Revoke,
    IsRevoked,
    Floor,
    Sweep,
    Now,
    Inspect,
    Page,
    IsThere,
    TakeCounted,
    Kill,
    RenewClaim,
    ExtendBeside,
    Forget,
    Stands,
}

const ALL: [(Statement, &str); COUNT] = [
    (Statement::Take, "take"),
    (Statement::Leave, "leave"),
    (Statement::Renew, "renew"),
    (Statement::Refresh, "refresh"),
    (Statement::Look, "look"),
    (Statement::Acquire, "acquire"),
    (Statement::Extend, "extend"),
    (Statement::Release, "release"),
    (Statement::Revoke, "revoke"),
    (Statement::IsRevoked, "is_revoked"),
    (Statement::Floor, "floor"),
    (Statement::Sweep, "sweep"),
    (Statement::Now, "now"),
    (Statement::Inspect, "inspect"),
    (Statement::Page, "page"),
    (Statement::IsThere, "is_there"),
    (Statement::TakeCounted, "take_counted"),
    (Statement::Kill, "kill"),
    (Statement::RenewClaim, "renew_claim"),
    (Statement::ExtendBeside, "extend_beside"),
    (Statement::Forget, "forget"),
    (Statement::Stands, "stands"),
];

impl Statement {
    /// Whether it renews a lock: nothing else may keep that waiting.
    pub(crate) fn goes_first(self) -> bool {
        matches!(self, Self::Renew | Self::RenewClaim | Self::Extend | Self::ExtendBeside)
    }

    /// How a lock is taken that nobody else wants.
    pub(crate) fn take(dialect: Dialect) -> Self {
        match dialect {
            Dialect::MariaDb => Self::Take,
            Dialect::MySql => Self::TakeCounted,
        }
    }

    /// What it is to whoever asked for it.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Take | Self::TakeCounted | Self::Acquire | Self::Refresh | Self::Look => "the acquire",
            Self::Leave | Self::Release => "the release",
            Self::Renew | Self::RenewClaim | Self::Extend | Self::ExtendBeside => "the renewal",
            Self::Revoke | Self::IsRevoked => "breaking the lock",
            Self::Floor => "raising the floor",
            _ => "the request",
        }
    }
}

/// Their texts, with the names of one client's tables.
#[derive(Debug)]
pub(crate) struct Texts([String; COUNT]);

impl Texts {
    pub(crate) fn new(tables: &Tables) -> Self {
        let file = include_str!("statements.sql");
        Self(ALL.map(|(_, name)| tables.named(section(file, name))))
    }

    pub(crate) fn of(&self, statement: Statement) -> &str {
        &self.0[statement as usize]
    }
}

/// The text under a name in the file, without what is said about it.
pub(crate) fn section<'a>(file: &'a str, name: &str) -> &'a str {
    let mut sections = file.split("\n-- :").skip(1).filter_map(|section| section.split_once('\n'));
    sections
        .find_map(|(title, text)| (title == name).then_some(text.trim_end()))
        .expect("a test holds every name to being there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_in_the_file() {
        let texts = Texts::new(&Tables::new("p_"));
        for (at, (statement, name)) in ALL.into_iter().enumerate() {
            assert_eq!(statement as usize, at, "{name} is at its place");
            let text = texts.of(statement);
            assert!(!text.is_empty() && !text.contains("tollgate_"), "{text}");
        }
    }
}
