//! What the command finds in its environment, and what others see of it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use tollgate::Guards;

/// The variables for the command: name and token if there is one lock, all tokens in any case.
pub(super) fn variables(guards: &Guards) -> Vec<(&'static str, String)> {
    let tokens: BTreeMap<&str, u64> =
        guards.iter().map(|guard| (guard.name().as_str(), guard.token().get())).collect();
    let mut variables = vec![("TOLLGATE_TOKENS", serde_json::json!(tokens).to_string())];
    if let [(name, token)] = tokens.iter().collect::<Vec<_>>()[..] {
        variables.push(("TOLLGATE_NAME", (*name).to_owned()));
        variables.push(("TOLLGATE_TOKEN", token.to_string()));
    }
    variables
}

/// The command in a line, for those who look at the lock.
pub(super) fn summary(command: &[OsString]) -> String {
    const LONGEST: usize = 200;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
