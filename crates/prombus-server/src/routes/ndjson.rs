//! Publishing a stream of lines, commit by commit.
//!
//! `count` is what is stored: if a line is invalid, the lines before it are committed first, so that a producer can fix
//! the line and continue from it.

use super::lines::{Line, Lines};
use super::publish::{Publisher, parse_event};
use crate::answers::json_of;
use crate::body::BodyReader;
use crate::error::ApiError;
use axum::http::StatusCode;
use axum::response::Response;
use prombus_core::{Append, Commit, TopicNumber};
use prombus_wire::Imported;
use std::sync::Arc;

/// Maximum number of lines per commit.
const MAX_COMMIT_LINES: usize = 1_000;
/// Maximum number of bytes per commit.
const MAX_COMMIT_BYTES: usize = 8 << 20;

/// Publishes every line of the body.
pub(crate) async fn import(publisher: &Publisher, mut intake: BodyReader) -> Result<Response, ApiError> {
    let mut import = Import::new(publisher)?;
    match import.run(&mut intake).await {
        Ok(()) => Ok(json_of(StatusCode::CREATED, &import.outcome())),
        Err(error) => Err(match import.duplicates {
            0 => error,
            duplicates => error.with("duplicates", duplicates),
        }),
    }
}

/// A running import.
struct Import<'a> {
    publisher: &'a Publisher,
    max_commit_bytes: usize,
    /// The events that are not committed yet, and which lines they came from.
    events: Vec<Append>,
    lines: Vec<u64>,
    bytes: usize,
    /// What their lines hold, whitespace and blank lines included.
    held: usize,
    /// How many events are stored.
    count: u64,
    /// How many of them are duplicates.
    duplicates: u64,
    /// The incarnation of the topic that they are in.
    topic: Option<TopicNumber>,
}

impl<'a> Import<'a> {
    fn new(publisher: &'a Publisher) -> Result<Self, ApiError> {
        let max_commit_bytes = publisher.app.hub()?.limits().commit_bytes.min(MAX_COMMIT_BYTES);
        let (events, lines) = (Vec::new(), Vec::new());
        Ok(Self {
            publisher,
            max_commit_bytes,
            events,
            lines,
            bytes: 0,
            held: 0,
            count: 0,
            duplicates: 0,
            topic: None,
        })
    }

    fn outcome(&self) -> Imported {
        Imported { count: self.count, duplicates: self.duplicates }
    }

    async fn run(&mut self, intake: &mut BodyReader) -> Result<(), ApiError> {
        let mut lines = Lines::new(self.publisher.app.options.max_body_bytes);
        loop {
            let part = tokio::select! {
                part = intake.next() => part,
                // What is in is answered, and what has come since is left out.
                () = self.publisher.app.closing() => Err(ApiError::unavailable("the hub is shutting down; import again from this line later")),
            };
            let first_left_out = self.lines.first().copied();
            let part = match part {
                Ok(Some(part)) => part,
                Ok(None) => break,
                Err(error) => {
                    let line = first_left_out.unwrap_or(lines.number() + 1);
                    return Err(error.after_lines(self.count, line));
                }
            };
            lines.feed(&part);
            // What it was received in is used for what comes next.
            drop(part);
            loop {
                match lines.next() {
                    Ok(Some(line)) => {
                        self.take(line).await?;
                        // Blank lines are no progress, and what the hub takes to commit is not the client's time.
                        intake.start_anew(self.held);
                    }
                    Ok(None) => break,
                    Err(error) => return Err(self.stop_at(lines.number(), error).await),
                }
            }
        }
        match lines.last() {
            Ok(Some(line)) => self.take(line).await?,
            Ok(None) => {}
            Err(error) => return Err(self.stop_at(lines.number(), error).await),
        }
        self.commit().await
    }

    async fn take(&mut self, line: Line) -> Result<(), ApiError> {
        let append = match parse_event(&self.publisher.topic, &line.text) {
            Ok(append) => append,
            Err(error) => return Err(self.stop_at(line.number, error).await),
        };
        let bytes = append.event.size();
        if self.bytes + bytes > self.max_commit_bytes {
            self.commit().await?;
        }
        self.bytes += bytes;
        self.held += line.held;
        self.events.push(append);
        self.lines.push(line.number);
        if self.events.len() >= MAX_COMMIT_LINES || self.held >= MAX_COMMIT_BYTES {
            self.commit().await?;
        }
        Ok(())
    }

    /// Commits what came before a bad line, and says what is wrong with that line, or with an earlier one.
    async fn stop_at(&mut self, line: u64, error: ApiError) -> ApiError {
        match self.commit().await {
            Ok(()) => error.of_line(self.count, line),
            Err(earlier) => earlier,
        }
    }

    /// Refuses to go on in another topic than the first events went to: one that was deleted is not made again for the
    /// rest, and one that was made since has nothing to do with it.
    async fn check_topic(&self) -> Result<(), ApiError> {
        let Some(pinned) = self.topic else { return Ok(()) };
        let topic = &self.publisher.topic;
        match self.publisher.app.hub()?.topic(topic).await? {
            Some(state) if state.number == pinned => Ok(()),
            _ => Err(ApiError::not_found(format!(
                "topic {topic} was deleted in the meantime, with the lines before this one"
            ))),
        }
    }

    /// Notes which topic the first events went to.
    async fn note_topic(&mut self) {
        if self.topic.is_none()
            && let Ok(hub) = self.publisher.app.hub()
        {
            self.topic = hub.topic(&self.publisher.topic).await.ok().flatten().map(|state| state.number);
        }
    }

    /// Commits the pending events. If one is refused, the events before it are committed without it.
    async fn commit(&mut self) -> Result<(), ApiError> {
        let events = std::mem::take(&mut self.events);
        let lines = std::mem::take(&mut self.lines);
        (self.bytes, self.held) = (0, 0);
        if let Some(line) = lines.first() {
            self.check_topic().await.map_err(|error| error.after_lines(self.count, *line))?;
        }
        let (mut good, mut refusal) = (events.len(), None);
        let mut commit = Arc::new(Commit::from(events));
        while good > 0 {
            match self.publisher.publish(&mut commit).await {
                Ok(receipt) => {
                    self.count += good as u64;
                    self.duplicates += receipt.events.iter().filter(|one| one.duplicate).count() as u64;
                    self.note_topic().await;
                    break;
                }
                Err(error) => {
                    // Without an event to blame, none of them can go in.
                    let culprit = error.index.filter(|index| *index < good);
                    good = culprit.unwrap_or(0);
                    // Nobody else has it any more, so nothing is copied.
                    Arc::make_mut(&mut commit).events.truncate(good);
                    refusal = Some((culprit.is_some(), lines[good], error.error));
                }
            }
        }
        match refusal {
            None => Ok(()),
            Some((true, line, error)) => Err(error.of_line(self.count, line)),
            Some((false, line, error)) => Err(error.after_lines(self.count, line)),
        }
    }
}
