//! `prombus serve`: runs a hub.

pub mod address;
pub mod dev;
mod files;
mod lifecycle;
pub mod logging;
mod schemas;
mod settings;
pub mod signals;

use crate::failure::Failure;
use clap::Args;
pub use logging::{LogFormat, LogLevel};
use settings::Environment;
pub use settings::{LOG_VARIABLE, SchemaFolder, Settings, StoreChoice};
use std::path::PathBuf;
use std::time::Duration;

/// How long threads that are still at work are waited for at the end, such as one that opens the store.
const THREADS_GRACE: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  prombus serve --data ./data
  prombus serve --config prombus.toml --listen 127.0.0.1:7171
  prombus serve --store memory --log-format json
  prombus serve --store 'mongodb://host1,host2,host3/prom?replicaSet=rs0'
  prombus serve --config prombus.toml --listen :7070 --tls-cert hub.pem --tls-key hub.key

Environment variables, which override the configuration file; flags override both:
  PROMBUS_CONFIG, PROMBUS_LISTEN, PROMBUS_DATA, PROMBUS_STORE, PROMBUS_LOG_FORMAT,
  PROMBUS_TLS_CERT, PROMBUS_TLS_KEY
  PROMBUS_LOG: the same as --log-level";

// Not read from the environment by clap: a flag --store must win over PROMBUS_DATA, which to clap are two options.
#[derive(Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file [default: ./prombus.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:7070]; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Data folder [default: ./data]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// Store to use instead of a data folder: memory, which loses everything when the hub stops, or the URL of a database
    /// on a MongoDB replica set
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Log format [default: text]
    #[arg(long, value_name = "json|text")]
    log_format: Option<String>,
    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// TLS certificate chain (PEM); reloaded when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow listening on a non-loopback address without authentication: anyone who can connect may do anything
    #[arg(long)]
    insecure: bool,
}

/// Runs a hub until it is told to end.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let settings = Settings::resolve(args, &Environment::real())?;
    logging::start(settings.log_format, &settings.log_level);
    block_on(lifecycle::serve(settings, |_| async {}))
}

/// More than block at once: those who do take turns, by the number of processors or a few at a time. Each thread takes a few
/// megabytes for as long as it is there.
fn max_blocking_threads() -> usize {
    64 + 4 * std::thread::available_parallelism().map_or(1, usize::from)
}

fn block_on(life: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(max_blocking_threads())
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(life);
    runtime.shutdown_timeout(THREADS_GRACE);
    outcome
}
