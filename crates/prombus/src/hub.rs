//! Which hub a command talks to.

use crate::failure::Failure;
use clap::Args;
use prombus_client::{Client, ClientOptions, Token};
use std::ffi::OsString;
use std::future::Future;
use std::path::Path;

/// How many threads a command has for talking to the hub: one for the connection beside the one that works.
const CLIENT_THREADS: usize = 1;

/// Names the hub.
#[derive(Debug, Args)]
#[command(next_help_heading = "Hub")]
pub struct HubArgs {
    /// URL of the hub
    #[arg(
        long,
        global = true,
        env = "PROMBUS_URL",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL"
    )]
    pub url: String,
    /// Token for the hub
    #[arg(long, global = true, env = "PROMBUS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// CA certificate (PEM) to trust in addition to the system's, for https:// URLs
    #[arg(long, global = true, env = "PROMBUS_CA_CERT", value_name = "FILE", value_parser = clap::value_parser!(OsString))]
    pub ca_cert: Option<OsString>,
}

impl HubArgs {
    /// A client of that hub.
    pub fn client(&self) -> Result<Client, Failure> {
        let mut options = ClientOptions::default();
        if let Some(token) = self.token.as_deref().filter(|token| !token.is_empty()) {
            options = options.with_token(Token::fixed(token));
        }
        // A variable that is set to nothing is as good as unset.
        if let Some(file) = self.ca_cert.as_ref().filter(|file| !file.is_empty()).map(Path::new) {
            let read = std::fs::read(file);
            let pem =
                read.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
            options = options.with_extra_ca(pem);
        }
        Ok(Client::with_options(&self.url, options)?)
    }
}

/// Runs the work of a command to its end.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CLIENT_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A thread that waits for more input must not keep the command from ending.
    runtime.shutdown_background();
    outcome
}
