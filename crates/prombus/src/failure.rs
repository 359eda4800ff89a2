//! How a command fails: the message, and the exit code.

use crate::say;
use prombus_client::{ClientError, ErrorCode};
use std::io;
use std::process::ExitCode;

/// The exit code of something that failed.
const FAILED: u8 = 1;
/// The exit code of something that was asked wrongly.
const USAGE: u8 = 2;

/// Says what is wrong with the arguments, which it quotes, or gives the help that they ask for.
pub fn misused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    say!("{}", error.render().to_string().trim_end());
    ExitCode::from(USAGE)
}

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It was asked wrongly; the message says what to change.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work; the message says what to do.
    #[error("{0}")]
    Failed(String),
    /// A call to the hub did not work.
    #[error("{0}{hint}", hint = hint(.0))]
    Client(#[from] ClientError),
    /// Whoever read our output has enough.
    #[error("the output was closed by its reader")]
    OutputClosed,
}

/// What to do about an error of the hub, in terms of the command line.
fn hint(error: &ClientError) -> &'static str {
    let is_unauthorized = error.is_code(ErrorCode::Unauthorized);
    if is_unauthorized { "; with this command, pass a token with --token or PROMBUS_TOKEN" } else { "" }
}

impl Failure {
    /// A failure of writing to stdout.
    pub fn of_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write to stdout: {error}")),
        }
    }

    /// Says what happened on stderr, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::OutputClosed => ExitCode::SUCCESS,
            Self::Usage(_) => self.say(USAGE),
            // A bad address is a matter of the command line.
            Self::Client(ClientError::BadUrl { .. }) => self.say(USAGE),
            Self::Failed(_) | Self::Client(_) => self.say(FAILED),
        }
    }

    fn say(&self, code: u8) -> ExitCode {
        say!("error: {self}");
        ExitCode::from(code)
    }
}
