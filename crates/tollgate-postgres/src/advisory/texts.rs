//! The statements of this style, with the names of one client's tables.

use crate::names::Names;

/// What a lock is taken and given back by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Try,
    TryShared,
    Wait,
    WaitShared,
    Release,
}

/// How many there are.
pub(super) const STEPS: usize = 5;

/// Their texts, and those of everything else.
#[derive(Debug)]
pub(super) struct Texts {
    steps: [String; STEPS],
    pub(super) install: String,
    pub(super) introduce: &'static str,
    pub(super) wake: String,
    pub(super) note: String,
    pub(super) forget: String,
    pub(super) seen: String,
    pub(super) standing: String,
    pub(super) floor: String,
    pub(super) mark: String,
    pub(super) marked: String,
    pub(super) cancel: &'static str,
    pub(super) end: &'static str,
}

impl Texts {
    /// Locks are told apart by a number that is made of their name, or all have the number `key`.
    pub(super) fn new(names: &Names, key: Option<i64>) -> Self {
        let keyed = |sql: &str| {
            let sql = names.written_into(sql);
            let Some(key) = key else { return sql };
            let fixed = |name: &str| format!("case when {name}::text is not null then ({key})::bigint end");
            sql.replace("hashtextextended($1, 0)", &fixed("$1"))
                .replace("hashtextextended(noted.name, 0)", &fixed("noted.name"))
        };
        let shared = |sql: &str| sql.replace("advisory_lock(", "advisory_lock_shared(");
        let (at_once, wait) = (keyed(include_str!("sql/try.sql")), keyed(include_str!("sql/wait.sql")));
        Self {
            steps: [
                at_once.clone(),
                shared(&at_once),
                wait.clone(),
                shared(&wait),
                include_str!("sql/release.sql").to_owned(),
            ],
            install: names.written_into(include_str!("sql/install.sql")),
            introduce: include_str!("sql/introduce.sql"),
            wake: names.written_into("select tollgate.wake()"),
            note: keyed(include_str!("sql/note.sql")),
            forget: names.written_into(include_str!("sql/forget.sql")),
            seen: keyed(include_str!("sql/seen.sql")),
            standing: names.written_into(include_str!("sql/standing.sql")),
            floor: names.written_into(include_str!("sql/floor.sql")),
            mark: names.written_into(include_str!("sql/mark.sql")),
            marked: names.written_into(include_str!("sql/marked.sql")),
            cancel: include_str!("sql/cancel.sql"),
            end: include_str!("sql/end.sql"),
        }
    }

    pub(super) fn of(&self, step: Step) -> &str {
        &self.steps[step as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_a_key_of_ones_own_is_the_only_one() {
        let texts = Texts::new(&Names::default(), Some(-7));
        assert!(texts.of(Step::TryShared).contains("pg_try_advisory_lock_shared("));
        assert!(!texts.of(Step::WaitShared).contains("advisory_lock("), "{}", texts.of(Step::WaitShared));
        for text in [texts.of(Step::Try), texts.of(Step::Wait), &texts.note, &texts.seen] {
            assert!(text.contains("(-7)::bigint") && !text.contains("hashtextextended"), "{text}");
        }
        let texts = Texts::new(&Names::of("locks", "a_"), None);
        assert!(texts.of(Step::Try).contains("\"locks\".\"a_tokens\""), "{}", texts.of(Step::Try));
    }
}
