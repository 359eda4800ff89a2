//! `cargo xtask chaos` and `cargo xtask bench`.
//!
//! They are built on the hub's own crates and, to put load on a hub, for release. The chores that are needed more often
//! shall not wait for that: `cargo xtask` is compiled without the feature `trials`, and has cargo run one with it.

use clap::Subcommand;

#[cfg(feature = "trials")]
#[derive(Debug, Subcommand)]
pub enum Trial {
    /// Kill a hub under load again and again, and check that nothing answered is lost
    Chaos(crate::chaos::Args),
    /// Measure the engine and the hub
    Bench(crate::bench::Args),
}

#[cfg(feature = "trials")]
pub fn run(trial: Trial) -> Result<(), String> {
    match trial {
        Trial::Chaos(args) => crate::chaos::run(args),
        Trial::Bench(args) => crate::bench::run(args),
    }
}

#[cfg(not(feature = "trials"))]
#[derive(Debug, Subcommand)]
pub enum Trial {
    /// Kill a hub under load again and again, and check that nothing answered is lost
    #[command(disable_help_flag = true)]
    Chaos(Words),
    /// Measure the engine and the hub
    #[command(disable_help_flag = true)]
    Bench(Words),
}

/// Arguments that are not looked at here.
#[cfg(not(feature = "trials"))]
#[derive(Debug, clap::Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "trials"))]
pub fn run(trial: Trial) -> Result<(), String> {
    let (name, Words { words }) = match trial {
        Trial::Chaos(words) => ("chaos", words),
        Trial::Bench(words) => ("bench", words),
    };
    let mut command = crate::repo::cargo(&["run", "--quiet", "--release", "--package", "xtask", "--", name]);
    command.args(words);
    crate::repo::run(command)
}
