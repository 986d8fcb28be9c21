//! Command lines that are usual with other lock tools, and what to write instead.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use crate::args::Cli;

/// The sub-commands with which other tools run a command under a lock.
const RUN_ELSEWHERE: [&str; 5] = ["lock", "with", "exec", "flock", "with-lock"];

/// Moves `--url URL` from before the sub-command to after it, where it is declared.
pub(crate) fn url_behind_the_sub_command(mut words: Vec<OsString>) -> Vec<OsString> {
    let mut moved = Vec::new();
    while let Some(word) = words.get(1).and_then(|word| word.to_str()) {
        let taken = match word {
            "--url" => 2,
            word if word.starts_with("--url=") => 1,
            _ => break,
        };
        moved.extend(words.drain(1..(1 + taken).min(words.len())));
    }
    let behind = words.len().min(2);
    words.splice(behind..behind, moved);
    words
}

/// A more helpful error than clap's for a command line that is usual with other tools.
pub(crate) fn explained(words: &[OsString], error: &clap::Error) -> Option<clap::Error> {
    let sub_command = words.get(1)?.to_str()?;
    let message = match error.kind() {
        ErrorKind::InvalidSubcommand if RUN_ELSEWHERE.contains(&sub_command) => format!(
            "there is no sub-command {sub_command}; to run a command under a lock, write tollgate run NAME -- COMMAND"
        ),
        ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument
            if ["run", "elect"].contains(&sub_command) =>
        {
            let (before, command) = without_dashes(&words[2..], sub_command)?;
            format!(
                "write the command after --: tollgate {sub_command} {} -- {}",
                shell_words(&without_url(before)),
                shell_words(command)
            )
        }
        _ => return None,
    };
    let help = if sub_command == "elect" { sub_command } else { "run" };
    Some(clap::Error::raw(
        error.kind(),
        format!("{message}\n\nFor more information, try `tollgate {help} --help`.\n"),
    ))
}

/// Splits `NAME COMMAND…`, with options before, where `--` is missing; `None` if `--` is there, or
/// there is no command.
fn without_dashes<'a>(words: &'a [OsString], sub_command: &str) -> Option<(&'a [OsString], &'a [OsString])> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let cli = Cli::command();
    let command = cli.find_subcommand(sub_command)?;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let word = word.to_str()?;
        if !word.starts_with('-') {
            let (before, command) = words.split_at(at + 1);
            return (!command.is_empty()).then_some((before, command));
        }
        at += width(command, word)?;
    }
    None
}

/// How many words an option has, with its value; `None` if there is no such option.
fn width(command: &Command, word: &str) -> Option<usize> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let is_it = |argument: &&clap::Arg| {
        let mut longs = argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default());
        let short = argument.get_short().is_some_and(|short| name == format!("-{short}"));
        short || name.strip_prefix("--").is_some_and(|name| longs.any(|long| long == name))
    };
    let option = command.get_arguments().find(is_it)?;
    Some(if option.get_action().takes_values() && value.is_none() { 2 } else { 1 })
}

/// The same words with `URL` for the engine's URL, which may contain a password.
fn without_url(words: &[OsString]) -> Vec<OsString> {
    let mut is_next = false;
    let shown = |word: &OsString| {
        if std::mem::replace(&mut is_next, word == "--url") {
            return "URL".into();
        }
        let is_url = word.to_str().is_some_and(|word| word.starts_with("--url="));
        if is_url { "--url=URL".into() } else { word.clone() }
    };
    words.iter().map(shown).collect()
}

/// The words, quoted for a shell.
fn shell_words(words: &[OsString]) -> String {
    let quoted = |word: &OsString| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+{}".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_url_before_the_sub_command_goes_behind_it() {
        let moved = |line: &str| {
            let words: Vec<_> = url_behind_the_sub_command(words(line));
            words.iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(moved("tollgate --url file:x ls a"), "tollgate ls --url file:x a");
        assert_eq!(moved("tollgate --url=file:x doctor"), "tollgate doctor --url=file:x");
        assert_eq!(moved("tollgate run --url file:x a -- b"), "tollgate run --url file:x a -- b");
        assert_eq!(moved("tollgate --url"), "tollgate --url");
    }

    #[test]
    fn a_command_without_its_dashes_is_shown_with_them() {
        let advice = |line: &str| {
            let words = words(line);
            let error = crate::args::parse(words).err()?.to_string();
            error.split_once("after --: ").map(|(_, rest)| rest.lines().next().unwrap().to_owned())
        };
        assert_eq!(advice("tollgate run x echo hi").as_deref(), Some("tollgate run x -- echo hi"));
        assert_eq!(
            advice("tollgate run --ttl 5s -n x sh -c a;b").as_deref(),
            Some("tollgate run --ttl 5s -n x -- sh -c 'a;b'")
        );
        assert_eq!(advice("tollgate elect x date").as_deref(), Some("tollgate elect x -- date"));
        assert_eq!(advice("tollgate run x"), None);
        assert_eq!(advice("tollgate run --tll 5s x"), None, "clap knows a similar option");
        let secret = advice("tollgate --url redis://:s3cret@h run -n x date").unwrap();
        assert_eq!(secret, "tollgate run --url URL -n x -- date");
        let secret = advice("tollgate run --url=redis://:s3cret@h x date").unwrap();
        assert_eq!(secret, "tollgate run --url=URL x -- date");
    }
}
