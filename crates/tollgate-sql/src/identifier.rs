//! Names of tables: what a URL may call them, and how they get into the SQL that is written with the usual ones.

use tollgate_core::{Error, Result};

/// The most characters that a part of a table's name may have: all databases take 63 in all.
const LONGEST: usize = 32;

/// Refuses what would have to be quoted in ways that differ from place to place.
///
/// # Errors
/// If `value`, which the URL's `parameter` gave, is not made of letters, digits and underscores.
pub fn check_identifier(parameter: &str, value: &str) -> Result<()> {
    let plain = value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if plain && value.len() <= LONGEST {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{parameter}={value:?}: use at most {LONGEST} letters, digits and underscores, which table names \
         are made of"
    )))
}

/// `sql` with every `word` and the name that follows it replaced by what `quoted` makes of that name.
pub fn named(sql: &str, word: &str, quoted: impl Fn(&str) -> String) -> String {
    let mut text = String::with_capacity(sql.len() + sql.len() / 4);
    let mut rest = sql;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let end =
            after.find(|letter: char| !(letter.is_ascii_lowercase() || letter == '_')).unwrap_or(after.len());
        text.push_str(before);
        text.push_str(&quoted(&after[..end]));
        rest = &after[end..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_get_the_names_that_were_asked_for() {
        let sql = "select * from tollgate.locks l, tollgate.claims where nextval('tollgate.tokens') > 1";
        assert_eq!(
            named(sql, "tollgate.", |name| format!("\"s\".\"p_{name}\"")),
            "select * from \"s\".\"p_locks\" l, \"s\".\"p_claims\" where nextval('\"s\".\"p_tokens\"') > 1"
        );
    }

    #[test]
    fn names_that_need_quoting_are_refused() {
        check_identifier("schema", "locks_2").expect("it is plain");
        for name in ["a\"b", "a.b", "a b", "ä", &"x".repeat(33)] {
            let error = check_identifier("schema", name).expect_err("it is not plain").to_string();
            assert!(error.contains("letters, digits"), "{error}");
        }
    }
}
