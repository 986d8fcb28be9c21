//! `tollgate completions`: what a shell needs to complete our commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use tollgate::Result;

use crate::args::Cli;
use crate::exit::Exit;
use crate::tell;

/// Print a script that makes a shell complete tollgate's commands and options.
///
/// Put it where the shell looks for such scripts, or source it in the shell's start-up file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// For which shell.
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
