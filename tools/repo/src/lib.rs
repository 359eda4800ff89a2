//! Where the repository is, and how to run programs in it: for chores, chaos and benchmarks.

mod set;

pub use set::ReplicaSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The folder that builds go to.
pub fn target_dir() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A cargo command in the root of the repository.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end; one that fails is an error that names it.
pub fn run(mut command: Command) -> Result<(), String> {
    let shown = shown(&command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(error) => Err(format!("`{shown}` cannot be run: {error}")),
    }
}

/// What a command writes to stdout.
pub fn output(mut command: Command) -> Result<String, String> {
    let shown = shown(&command);
    let output = command.output().map_err(|error| format!("`{shown}` cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` ended with {}: {said}", output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|error| format!("`{shown}` wrote something else than text: {error}"))
}

/// What a command writes to stdout, and whether it went well. What it writes to stderr is shown.
pub fn stdout(mut command: Command) -> Result<(String, Result<(), String>), String> {
    let shown = shown(&command);
    let cannot = |error: &dyn std::fmt::Display| format!("`{shown}` cannot be run: {error}");
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| cannot(&error))?;
    let said = String::from_utf8(output.stdout).map_err(|error| cannot(&error))?;
    let ended = output.status;
    Ok((said, if ended.success() { Ok(()) } else { Err(format!("`{shown}` ended with {ended}")) }))
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Builds the hub as users get it, and says where it is.
pub fn build_hub() -> Result<PathBuf, String> {
    run(cargo(&["build", "--release", "--quiet", "--package", "prombus"]))?;
    Ok(target_dir().join("release").join("prombus"))
}
