//! `prombus import`: publishes events from stdin, in the format that export writes, in constant memory.
//!
//! Events keep their ids, so an interrupted import can simply be run again: events that are already stored are duplicates.

mod line;
mod source;

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use crate::progress;
use crate::say;
use bytes::Bytes;
use clap::Args;
use futures::Stream;
use indicatif::ProgressBar;
use prombus_client::{Client, ClientError};
use source::{Input, Piece};
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum size of one request. A hub that refuses a line reads the rest of the request before it answers, so the rest
/// must be bounded.
const REQUEST_BYTES: usize = 32 << 20;
/// How long a request waits for more input before it is ended, because a hub gives up on stalled bodies.
const IDLE: Duration = Duration::from_secs(1);
/// The number of pieces buffered between the input and the connection.
const PIECES_AHEAD: usize = 2;

const EXAMPLES: &str = "\
Examples:
  prombus import process.state < events.ndjson
  prombus export process.state | prombus import process.copy";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// Topic to publish to
    topic: String,
}

pub fn run(hub: &HubArgs, args: &ImportArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let progress = progress::counter("lines");
    let input = source::read(io::stdin());
    let mut import = Import {
        client: &client,
        topic: &args.topic,
        input,
        count: 0,
        duplicates: 0,
        is_unknown: false,
        progress,
    };
    let outcome = hub::block_on(import.run());
    import.progress.finish_and_clear();
    let mut new = output::counted(import.count.saturating_sub(import.duplicates), "event");
    if import.is_unknown {
        new.insert_str(0, "at least ");
    }
    match import.duplicates {
        0 => say!("{new} imported into {}", args.topic),
        1 => say!("{new} imported into {}; 1 already existed", args.topic),
        some => say!("{new} imported into {}; {some} already existed", args.topic),
    }
    outcome
}

/// An import in flight.
struct Import<'a> {
    client: &'a Client,
    topic: &'a str,
    input: mpsc::Receiver<Input>,
    /// How many events are stored.
    count: u64,
    /// How many of them are duplicates.
    duplicates: u64,
    /// Whether more may be stored, because an answer is missing.
    is_unknown: bool,
    progress: ProgressBar,
}

impl Import<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let mut next = self.input.recv().await;
        while let Some(input) = next {
            let first = match input {
                Input::Lines(piece) => piece,
                Input::Bad { line, why } => return Err(Failure::Failed(format!("line {line}: {why}"))),
            };
            let first_line = first.first_line;
            next = match self.request(first).await {
                Ok(Ended::Full) => self.input.recv().await,
                Ok(Ended::Bad(bad)) => Some(bad),
                Err(error) => return Err(self.refused(first_line, &error)),
            };
        }
        Ok(())
    }

    /// Sends one request, with as much of the input as fits into it.
    async fn request(&mut self, first: Piece) -> Result<Ended, ClientError> {
        let (body, pieces) = mpsc::channel(PIECES_AHEAD);
        let mut request = pin!(self.client.import(self.topic, stream(pieces)));
        let feed = Feed { input: &mut self.input, body, progress: &self.progress };
        let mut feed = pin!(feed.run(first));
        let ended = tokio::select! {
            outcome = &mut request => return Err(outcome.err().unwrap_or_else(too_early)),
            ended = &mut feed => ended,
        };
        let imported = request.await?;
        self.count += imported.count;
        self.duplicates += imported.duplicates;
        Ok(ended)
    }

    /// The hub's answer, with line numbers of the input.
    fn refused(&mut self, first_line: u64, error: &ClientError) -> Failure {
        let number = |name| error.hub().and_then(|hub| hub.number(name));
        self.count += number("count").unwrap_or(0);
        self.duplicates += number("duplicates").unwrap_or(0);
        Failure::Failed(match (error.hub(), number("line")) {
            (Some(hub), Some(line)) => {
                // The hub counts the lines of one request.
                let prefix = format!("line {line}: ");
                let message = hub.message.strip_prefix(&prefix).unwrap_or(&hub.message);
                format!("line {}: {message} ({})", first_line + line - 1, hub.code)
            }
            _ if !error.is_outcome_unknown() => error.to_string(),
            _ => {
                self.is_unknown = true;
                format!(
                    "{error}; more events may have been stored; run the import again: events with an id are not stored twice"
                )
            }
        })
    }
}

/// Before its body has ended, a request can only fail.
fn too_early() -> ClientError {
    ClientError::BadAnswer("it came before the import had ended".into())
}

/// Why a request has no more lines.
enum Ended {
    /// It has enough, or there is no more input for now.
    Full,
    /// The next line cannot be sent.
    Bad(Input),
}

/// Hands the input on to the body of a request.
struct Feed<'a> {
    input: &'a mut mpsc::Receiver<Input>,
    body: mpsc::Sender<Bytes>,
    progress: &'a ProgressBar,
}

impl Feed<'_> {
    /// Goes on until the request has enough, or there is nothing to send for a while. The body ends with it.
    async fn run(self, first: Piece) -> Ended {
        let (mut bytes, mut next) = (0, Some(Input::Lines(first)));
        loop {
            match next {
                Some(Input::Lines(piece)) => {
                    bytes += piece.text.len();
                    self.progress.set_position(piece.first_line);
                    // Whoever takes the pieces is gone when the request has failed.
                    if self.body.send(piece.text).await.is_err() || bytes >= REQUEST_BYTES {
                        return Ended::Full;
                    }
                }
                Some(bad @ Input::Bad { .. }) => return Ended::Bad(bad),
                None => return Ended::Full,
            }
            next = tokio::time::timeout(IDLE, self.input.recv()).await.unwrap_or(None);
        }
    }
}

fn stream(mut pieces: mpsc::Receiver<Bytes>) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    futures::stream::poll_fn(move |context| pieces.poll_recv(context).map(|piece| piece.map(Ok)))
}
