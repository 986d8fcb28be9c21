//! `tollgate man`: the manual pages, made from the texts of `--help`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgAction, Args, Command, CommandFactory};
use clap_mangen::Man;
use tollgate::{Error, ErrorKind, Result};

use crate::args::{Cli, EXIT_CODES};
use crate::engine_url::{URL, URL_FILE};
use crate::exit::Exit;
use crate::tell;

/// Print a manual page, or write all manual pages into a folder.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write every page into this folder, which is created if it does not exist; man finds pages in
    /// folders called man1.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,

    /// The sub-command; without it, the page of tollgate itself.
    #[arg(value_name = "COMMAND", value_parser = page_names())]
    command: Option<String>,
}

/// Every sub-command and its page. They are listed here because a command cannot ask clap for its
/// siblings.
const PAGES: [(&str, &str); 19] = [
    ("run", "tollgate-run"),
    ("acquire", "tollgate-acquire"),
    ("extend", "tollgate-extend"),
    ("release", "tollgate-release"),
    ("ls", "tollgate-ls"),
    ("inspect", "tollgate-inspect"),
    ("watch", "tollgate-watch"),
    ("break", "tollgate-break"),
    ("elect", "tollgate-elect"),
    ("leader", "tollgate-leader"),
    ("doctor", "tollgate-doctor"),
    ("bench", "tollgate-bench"),
    ("ttl", "tollgate-ttl"),
    ("redlock-init", "tollgate-redlock-init"),
    ("fence-proxy", "tollgate-fence-proxy"),
    ("serve", "tollgate-serve"),
    ("sql-schema", "tollgate-sql-schema"),
    ("completions", "tollgate-completions"),
    ("man", "tollgate-man"),
];

fn page_names() -> PossibleValuesParser {
    PAGES.map(|(command, page)| PossibleValue::new(command).alias(page)).into()
}

const EXAMPLES: &str = "\
Examples:
  tollgate man run | cat
  tollgate man --out man/man1 && ls man/man1/tollgate-run.1
  tollgate man >tollgate.1";

pub(crate) fn run(args: &ManArgs) -> Result<Exit> {
    let pages = pages();
    if let Some(folder) = &args.out {
        for (name, page) in &pages {
            write(folder, name, page)?;
        }
        return Ok(Exit::OK);
    }
    let wanted = args.command.as_deref().map_or("tollgate".to_owned(), |name| {
        format!("tollgate-{}", name.strip_prefix("tollgate-").unwrap_or(name))
    });
    let page = pages.iter().find(|(name, _)| *name == wanted);
    let (_, page) = page.ok_or_else(|| Error::invalid(format!("there is no page for {wanted:?}")))?;
    tell::answer(page)?;
    Ok(Exit::OK)
}

fn write(folder: &Path, name: &str, page: &str) -> Result<()> {
    let path = folder.join(format!("{name}.1"));
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, page)).map_err(|error| {
        let kind = if error.kind() == std::io::ErrorKind::PermissionDenied {
            ErrorKind::Denied
        } else {
            ErrorKind::Config
        };
        Error::new(kind, format!("{} cannot be written", path.display()))
            .caused_by(error)
            .during("write the manual")
    })
}

/// The name and the text of every page.
fn pages() -> Vec<(String, String)> {
    // `tollgate help run` prints the same as `tollgate run --help`.
    let mut tollgate = Cli::command().disable_help_subcommand(true);
    tollgate.build();
    let parts = tollgate.get_subcommands().filter(|part| !part.is_hide_set()).map(|part| {
        let name = format!("tollgate-{}", part.get_name());
        let page = page(part.clone().version(env!("CARGO_PKG_VERSION")), &name);
        (name, page)
    });
    let parts: Vec<_> = parts.collect();
    [("tollgate".to_owned(), page(tollgate, "tollgate"))].into_iter().chain(parts).collect()
}

fn page(command: Command, name: &str) -> String {
    let man = Man::new(command.clone()).title(name).source(concat!("tollgate ", env!("CARGO_PKG_VERSION")));
    let mut page = section(|page| man.render_title(page));
    page += &section(|page| man.render_name_section(page));
    page += &synopsis(&command, section(|page| man.render_synopsis_section(page)));
    page += &section(|page| man.render_description_section(page));
    page += &section(|page| man.render_options_section(page));
    if command.has_subcommands() {
        page += &section(|page| man.render_subcommands_section(page));
    }
    page += &environment(&command);
    page += &format!(".SH \"EXIT CODES\"\n{}\n", escaped(EXIT_CODES));
    page += &examples(&command);
    page += &section(|page| man.render_version_section(page));
    page
}

fn section(render: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> String {
    let mut section = Vec::new();
    render(&mut section).expect("a vector takes everything");
    let section = String::from_utf8_lossy(&section).into_owned();
    // Each section begins with the same definitions, which the title already has.
    section.find(".SH").map_or(section.clone(), |heading| section[heading..].to_owned())
}

/// Adds what the generator leaves out: which arguments may be repeated, and which come after `--`.
fn synopsis(command: &Command, mut section: String) -> String {
    for argument in command.get_positionals() {
        let names = argument.get_value_names().unwrap_or_default().join(" ");
        let shown = format!("\\fI{names}\\fR");
        let (open, close) = if argument.is_required_set() { ('<', '>') } else { ('[', ']') };
        let last = if argument.is_last_set() { "\\-\\- " } else { "" };
        let dots = if matches!(argument.get_action(), ArgAction::Append) { "..." } else { "" };
        section =
            section.replace(&format!("{open}{shown}{close}"), &format!("{last}{open}{shown}{close}{dots}"));
    }
    section
}

fn environment(command: &Command) -> String {
    if !command.get_arguments().any(|argument| argument.get_long() == Some("url")) {
        return String::new();
    }
    format!(
        ".SH ENVIRONMENT\n.TP\n\\fB{URL}\\fR\nThe URL of the engine, if \\-\\-url is not given.\n.TP\n\\fB{URL_FILE}\\fR\nA \
         file whose first line is the URL, if neither \\-\\-url nor {URL} is given.\n"
    )
}

/// The examples of the help, line by line and unchanged, so that they can be pasted.
fn examples(command: &Command) -> String {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some(examples) = help.strip_prefix("Examples:\n") else { return String::new() };
    format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", escaped(examples))
}

/// Text with escapes, so that roff prints it unchanged.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let characters = line.trim().chars().map(|character| match character {
            '\\' => "\\e".to_owned(),
            '-' => "\\-".to_owned(),
            '\'' => "\\(aq".to_owned(),
            '`' => "\\(ga".to_owned(),
            '^' => "\\(ha".to_owned(),
            '~' => "\\(ti".to_owned(),
            other => other.to_string(),
        });
        // A dot at the beginning of a line would be a roff request.
        format!("\\&{}", characters.collect::<String>())
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sub_command_has_a_page_and_is_offered() {
        let offered = PAGES.map(|(command, page)| {
            assert_eq!(format!("tollgate-{command}"), page);
            page.to_owned()
        });
        let made: Vec<_> = pages().into_iter().skip(1).map(|(name, _)| name).collect();
        assert_eq!(made, offered);
    }
}
