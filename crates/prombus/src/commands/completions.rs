//! `prombus completions`: prints a completion script for a shell.

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  source <(prombus completions bash)
  prombus completions bash > ~/.local/share/bash-completion/completions/prombus
  prombus completions zsh > ~/.zfunc/_prombus
  prombus completions fish > ~/.config/fish/completions/prombus.fish";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Shell to generate the script for
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the script to stdout.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "prombus", &mut script);
    output::write_all(&script)
}
