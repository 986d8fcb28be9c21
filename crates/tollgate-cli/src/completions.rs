//! `tollgate completions`: scripts with which shells complete commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use tollgate::Result;

use crate::args::Cli;
use crate::exit::Exit;
use crate::tell;

/// Print a script with which a shell completes tollgate's commands and options.
///
/// Put it where the shell looks for completion scripts, or source it in the start-up file of the
/// shell.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(tollgate completions bash)
  mkdir -p ~/.zfunc && tollgate completions zsh >~/.zfunc/_tollgate
  tollgate completions fish >tollgate.fish";

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tollgate", &mut script);
    tell::answer(&String::from_utf8_lossy(&script))?;
    Ok(Exit::OK)
}
