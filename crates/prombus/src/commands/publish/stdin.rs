//! Publishing the lines of stdin, in batches of whatever is available, so that no line waits for others.
//!
//! Each line has an id from the start, so a batch whose answer was lost, or that a busy hub refused, is resent without
//! publishing a line twice.

use super::{COLUMNS, PubArgs, parse_payload, record};
use crate::commands::retry::Retry;
use crate::failure::Failure;
use crate::lines::{Lines, without_line};
use crate::output;
use crate::progress;
use crate::say;
use prombus_client::{Client, ClientError, NewEvent};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::io;
use tokio::sync::mpsc;
use uuid::Uuid;

/// The most events of a batch.
const BATCH_EVENTS: usize = 1_000;
/// The size from which on a batch takes no more.
const BATCH_BYTES: usize = 1 << 20;
/// How many lines are read ahead of the hub.
const LINES_AHEAD: usize = 2 * BATCH_EVENTS;

/// Publishes stdin to its end, or to the first line that cannot be published.
pub async fn publish(client: &Client, args: &PubArgs) -> Result<(), Failure> {
    let mut batches = Batches { args, lines: read_stdin(), held: None };
    let mut publisher = Publisher { client, args, retry: Retry::new(), was_reached: false };
    let progress = progress::counter("events");
    let mut total = 0;
    let outcome = loop {
        let Some(batch) = batches.next().await else { break Ok(()) };
        match publisher.publish(&batch).await {
            Ok(()) => total += batch.events.len() as u64,
            Err(failure) => break Err(failure),
        }
        progress.set_position(total);
        if let Some((number, why)) = batch.bad {
            break Err(Failure::Failed(format!("line {number}: {why}")));
        }
    };
    progress.finish_and_clear();
    say!("{} published to {}", output::counted(total, "event"), args.topic);
    outcome
}

/// A line of stdin: its number, and its payload or what is wrong with it.
type Line = (u64, Result<Box<RawValue>, String>);

/// Reads stdin on its own thread, so that waiting for input blocks nothing else.
fn read_stdin() -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut lines = Lines::new(io::stdin().lock());
        loop {
            let line = match lines.next() {
                Ok(None) => break,
                Ok(Some(line)) if line.text.is_empty() => continue,
                Ok(Some(line)) => {
                    parse_payload(line.text).map_err(|error| format!("not JSON: {}", without_line(&error)))
                }
                Err(error) => Err(error.to_string()),
            };
            let is_last = line.is_err();
            // The receiver is gone when publishing has failed.
            if sender.blocking_send((lines.number(), line)).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

/// Lines that are sent together.
struct Batch {
    events: Vec<NewEvent>,
    /// The numbers of the first and the last line.
    lines: (u64, u64),
    /// The line after them, if it is not JSON.
    bad: Option<(u64, String)>,
}

/// Gathers lines into batches.
struct Batches<'a> {
    args: &'a PubArgs,
    lines: mpsc::Receiver<Line>,
    /// A line that would have made the last batch too large.
    held: Option<Line>,
}

impl Batches<'_> {
    /// Waits for a line, and gathers with it those that are there already; `None` at the end.
    async fn next(&mut self) -> Option<Batch> {
        let first = match self.held.take() {
            Some(line) => line,
            None => self.lines.recv().await?,
        };
        let mut batch = Batch { events: Vec::new(), lines: (first.0, first.0), bad: None };
        let (mut bytes, mut next) = (0, Some(first));
        while let Some((number, line)) = next.take() {
            match line {
                Err(why) => batch.bad = Some((number, why)),
                Ok(payload) if bytes > 0 && bytes + payload.get().len() > BATCH_BYTES => {
                    self.held = Some((number, Ok(payload)));
                }
                Ok(payload) => {
                    bytes += payload.get().len();
                    batch.lines.1 = number;
                    let id = Some(Uuid::now_v7().to_string());
                    batch.events.push(NewEvent { id, ..self.args.event(payload) });
                    next = (batch.events.len() < BATCH_EVENTS).then(|| self.lines.try_recv().ok()).flatten();
                }
            }
        }
        Some(batch)
    }
}

/// Sends batches, each until it is stored or refused.
struct Publisher<'a> {
    client: &'a Client,
    args: &'a PubArgs,
    retry: Retry,
    /// Whether the hub was ever reached: waiting does not help if the address is wrong.
    was_reached: bool,
}

impl Publisher<'_> {
    async fn publish(&mut self, batch: &Batch) -> Result<(), Failure> {
        if batch.events.is_empty() {
            return Ok(());
        }
        let Self { client, args, retry, was_reached } = self;
        let (reached, unknown) = (Cell::new(*was_reached), Cell::new(false));
        let call = async || {
            let outcome = client.publish_batch(&args.topic, &batch.events).await;
            if let Err(error) = &outcome {
                unknown.set(unknown.get() || error.is_outcome_unknown());
            }
            reached.set(reached.get() || !matches!(outcome, Err(ClientError::Unreachable { .. })));
            outcome
        };
        let published = retry.while_passing(call, |error| reached.get() && error.is_retryable()).await;
        *was_reached = reached.get();
        let published = published.map_err(|failure| {
            let outcome = match unknown.get() {
                true => "may or may not have been published",
                false => "were not published",
            };
            let (first, last) = batch.lines;
            Failure::Failed(format!(
                "lines {first} to {last} {outcome} (a batch is stored as a whole or not at all): {failure}"
            ))
        })?;
        // Nobody wants to read thousands of rows.
        if output::is_terminal() {
            return Ok(());
        }
        let records = published.events.iter().map(record).collect::<Result<Vec<_>, _>>()?;
        output::write_records(&COLUMNS, &records)
    }
}
