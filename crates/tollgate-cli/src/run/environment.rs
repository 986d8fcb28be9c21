//! The environment of the command, and what other clients see of the command.

use std::collections::BTreeMap;
use std::ffi::OsString;

use tollgate::{Error, Guards, Result, Token};

/// The environment variable with the tokens of all locks.
const TOKENS: &str = "TOLLGATE_TOKENS";
/// The longest environment variable that Linux accepts: name, `=`, value and a zero byte.
const LONGEST: usize = 32 * 4096;

/// Fails if the tokens of these locks may not fit into the environment: the command could not be
/// started.
pub(super) fn check(names: &[String]) -> Result<()> {
    let tokens = names.iter().map(|name| (name.as_str(), Token::MAX.get())).collect();
    let length = TOKENS.len() + 1 + json(&tokens).len() + 1;
    if length <= LONGEST {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the names of these {} locks are too long for one command: {TOKENS} would have {length} bytes, and no variable \
         can have more than {LONGEST}; take fewer locks, or shorter names",
        names.len()
    )))
}

fn json(tokens: &BTreeMap<&str, u64>) -> String {
    serde_json::json!(tokens).to_string()
}

/// The variables for the command: the name and the token if there is one lock, and always all
/// tokens.
pub(super) fn variables(guards: &Guards) -> Vec<(&'static str, String)> {
    let tokens: BTreeMap<&str, u64> =
        guards.iter().map(|guard| (guard.name().as_str(), guard.token().get())).collect();
    let mut variables = vec![(TOKENS, json(&tokens))];
    if let [(name, token)] = tokens.iter().collect::<Vec<_>>()[..] {
        variables.push(("TOLLGATE_NAME", (*name).to_owned()));
        variables.push(("TOLLGATE_TOKEN", token.to_string()));
    }
    variables
}

/// The program, as `tollgate ls` and `inspect` show it. Only the number of its arguments, not the
/// arguments: every client of the engine can read this, and arguments may contain passwords.
pub(super) fn summary(command: &[OsString]) -> String {
    const LONGEST: usize = 200;
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let program = program.to_string_lossy();
    let program = match program.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &program[..end]),
        None => program.into_owned(),
    };
    match arguments.len() {
        0 => program,
        1 => format!("{program} with 1 argument"),
        many => format!("{program} with {many} arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_clients_do_not_see_the_arguments() {
        let summary = |words: &[&str]| summary(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(summary(&["backup"]), "backup");
        assert_eq!(summary(&["backup", "--password=secret"]), "backup with 1 argument");
        assert_eq!(summary(&["mysql", "-p", "secret"]), "mysql with 2 arguments");
        assert!(summary(&[&"ä".repeat(300)]).ends_with("ä…"));
    }
}
