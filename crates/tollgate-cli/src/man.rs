//! `tollgate man`: the manual, made from what `--help` says.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use tollgate::{Error, ErrorKind, Result};

use crate::args::Cli;
use crate::exit::Exit;
use crate::tell;

/// Print a manual page, or write all of them into a folder.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write every page into this folder, which is made if need be: man finds them in folders called man1.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,

    /// The sub-command; the page of tollgate itself, if it is left out.
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
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
    let wanted =
        args.command.as_ref().map_or_else(|| "tollgate".to_owned(), |name| format!("tollgate-{name}"));
    let Some((_, page)) = pages.iter().find(|(name, _)| *name == wanted) else {
        let known: Vec<_> = pages.iter().filter_map(|(name, _)| name.strip_prefix("tollgate-")).collect();
        return Err(Error::invalid(format!(
            "there is no page for {wanted:?}; there are {}",
            known.join(", ")
        )));
    };
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

/// Every page and its name.
fn pages() -> Vec<(String, String)> {
    // `tollgate help run` says what `tollgate run --help` does.
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
    let mut page = Vec::new();
    let source = concat!("tollgate ", env!("CARGO_PKG_VERSION"));
    Man::new(command).title(name).source(source).render(&mut page).expect("a vector takes everything");
    // What help says at its end has a name of its own in a manual.
    String::from_utf8_lossy(&page)
        .replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n")
        .replace(".SH EXTRA\nExit codes: ", ".SH \"EXIT CODES\"\n")
}
