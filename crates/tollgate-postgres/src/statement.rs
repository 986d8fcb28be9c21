//! The statements that clients send: their texts, and what their values are.

use tokio_postgres::types::Type;

use crate::schema::Tables;

/// How many there are.
pub(crate) const COUNT: usize = 20;

/// One of them. What each does is told in `statements.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    Take,
    Leave,
    Renew,
    RenewTogether,
    Refresh,
    Keep,
    Acquire,
    ExtendBeside,
    Release,
    Revoke,
    IsRevoked,
    Floor,
    Sweep,
    Inspect,
    Page,
    Terminate,
    Probe,
    Now,
    Forget,
    Stands,
}

const ALL: [(Statement, &str); COUNT] = [
    (Statement::Take, "take"),
    (Statement::Leave, "leave"),
    (Statement::Renew, "renew"),
    (Statement::RenewTogether, "renew_together"),
    (Statement::Refresh, "refresh"),
    (Statement::Keep, "keep"),
    (Statement::Acquire, "acquire"),
    (Statement::ExtendBeside, "extend_beside"),
    (Statement::Release, "release"),
    (Statement::Revoke, "revoke"),
    (Statement::IsRevoked, "is_revoked"),
    (Statement::Floor, "floor"),
    (Statement::Sweep, "sweep"),
    (Statement::Inspect, "inspect"),
    (Statement::Page, "page"),
    (Statement::Terminate, "terminate"),
    (Statement::Probe, "probe"),
    (Statement::Now, "now"),
    (Statement::Forget, "forget"),
    (Statement::Stands, "stands"),
];

impl Statement {
    /// Whether it renews a lock: nothing else may keep that waiting.
    pub(crate) fn goes_first(self) -> bool {
        matches!(self, Self::Renew | Self::RenewTogether | Self::ExtendBeside)
    }

    /// What its values are: said, so that no pooler and no server has to guess.
    pub(crate) fn types(self) -> &'static [Type] {
        match self {
            Self::Take => &[Type::TEXT, Type::UUID, Type::INT8, Type::INT8, Type::TEXT],
            Self::Leave => &[Type::TEXT, Type::UUID],
            Self::Forget | Self::Stands => &[Type::UUID, Type::TEXT],
            Self::Release => &[Type::TEXT, Type::UUID, Type::BOOL],
            Self::Renew | Self::RenewTogether => &[Type::TEXT, Type::UUID, Type::INT8, Type::TEXT],
            Self::ExtendBeside => &[Type::TEXT, Type::UUID, Type::INT8],
            Self::Refresh => &[Type::TEXT, Type::INT8, Type::UUID, Type::INT8, Type::INT8],
            Self::Keep => {
                &[Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY]
            }
            Self::Acquire => &[
                Type::TEXT,
                Type::UUID,
                Type::CHAR,
                Type::INT8,
                Type::INT8,
                Type::INT8,
                Type::TEXT,
                Type::TEXT,
                Type::BOOL,
                Type::INT8,
            ],
            Self::Revoke => &[Type::TEXT, Type::INT8, Type::BOOL],
            Self::IsRevoked => &[Type::UUID],
            Self::Floor => &[Type::INT8],
            Self::Sweep | Self::Now => &[],
            Self::Inspect | Self::Probe => &[Type::TEXT],
            Self::Page => &[Type::TEXT, Type::TEXT, Type::TEXT],
            Self::Terminate => &[Type::INT4, Type::TEXT],
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

/// The text under a name in the file.
fn section<'a>(file: &'a str, name: &str) -> &'a str {
    let mut sections = file.split("\n-- :").skip(1).filter_map(|section| section.split_once('\n'));
    sections
        .find_map(|(title, text)| (title == name).then_some(text))
        .expect("a test holds every name to being there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_in_the_file_and_has_as_many_values_as_it_says() {
        let texts = Texts::new(&Tables::new("tollgate", ""));
        for (at, (statement, name)) in ALL.into_iter().enumerate() {
            assert_eq!(statement as usize, at, "{name} is at its place");
            let text = texts.of(statement);
            let most = (1..20).filter(|number| text.contains(&format!("${number}"))).count();
            assert_eq!(most, statement.types().len(), "{text}");
        }
    }
}
