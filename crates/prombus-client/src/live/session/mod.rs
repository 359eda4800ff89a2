//! The rules of a connection as a state machine: commands, frames and the fate of lines in, frames out. It never waits
//! and knows no socket.
//!
//! What it keeps:
//! - A publish is kept until it is answered, and sent again, in its order, over the next line.
//! - Leases die with their line. An ack that was not answered by then is remembered, and said again if its event comes
//!   again.
//! - Subscriptions are made anew over every line, until the hub refuses for good or their users leave.

mod feeding;
mod frames;
mod publishing;
mod requests;
mod settling;

#[cfg(test)]
mod tests;

use super::command::{Command, Done, Place};
use super::failure::Failure;
use super::feed::FeedEnd;
use super::settle::{Settle, Verb};
use crate::HubError;
use feeding::Fed;
use prombus_wire::{ErrorCode, HubFrame};
use publishing::{Publish, Stream};
use requests::Requests;
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// So many requests and events wait at most; then no more commands are taken, and their senders wait.
const MAX_WAITING: usize = 16_384;
/// A request that is not answered for so long is a sign that the line is dead.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A request that waits for its answer.
enum Request {
    Publish(Publish),
    Subscribe(u64),
    Settle {
        feed: u64,
        settles: Vec<Settle>,
    },
    /// Nothing hangs on it but that it is done.
    Simple(Option<Done>),
    /// Asks whether a subscription is still there; if it is not, this is why.
    Probe {
        feed: u64,
        why: Failure,
    },
}

/// A frame after which the line is of no use, and why.
#[derive(Debug)]
pub(crate) struct BadFrame(pub String);

/// The state of a connection over all of its lines.
#[derive(Default)]
pub(crate) struct Session {
    /// Frames that are to be sent.
    pub outbox: VecDeque<Utf8Bytes>,
    /// Counts the lines; 0 before the first.
    line: u64,
    /// Whether there is a line now.
    connected: bool,
    requests: Requests<Request>,
    streams: HashMap<u64, Stream>,
    /// Streams that have something to send.
    ready: Vec<u64>,
    /// How many events wait in streams.
    queued: usize,
    feeds: HashMap<u64, Fed>,
    names: HashMap<String, HashMap<String, u64>>,
    /// Feeds that have acks to send.
    settling: Vec<u64>,
    /// Whether a new line may come with a better token.
    renews_token: bool,
    /// Places in windows that are free again. They are given back together: whoever waits for one is then woken once
    /// for many.
    freed: Vec<Place>,
}

impl Session {
    /// A session before its first line. Where lines may come with new tokens, a token that is no longer taken is a
    /// reason for a new line.
    pub fn new(renews_token: bool) -> Self {
        Self { renews_token, ..Self::default() }
    }

    /// Whether another command may be taken.
    pub fn has_room(&self) -> bool {
        self.requests.span() + self.queued < MAX_WAITING
    }

    /// Whether everything that was asked for is answered.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.queued == 0 && self.settling.is_empty()
    }

    /// Whether the hub has not answered for too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.requests.oldest().is_some_and(|asked| now.duration_since(asked) > ANSWER_TIME)
    }

    pub fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Publish { topic, entry } => self.publish(topic, vec![entry], false, now),
            Command::PublishAll { topic, entries } => self.publish(topic, entries, true, now),
            Command::Stream { producer, entry } => self.stream(producer, entry, now),
            Command::Subscribe { feed, done } => self.subscribe(feed, done, now),
            Command::Unsubscribe { feed, done } => self.unsubscribe(feed, Some(done), now),
            Command::Settle { feed, settle } => self.settle(feed, settle, now),
            Command::Extend { feed, extensions } => self.extend(feed, extensions, now),
            Command::Drain { feed, done } => self.drain(feed, done),
            Command::Pause { feed, pause, done } => self.pause(feed, pause, done, now),
        }
    }

    /// Puts what has gathered into frames. To be called after commands and frames, before sending.
    pub fn gather(&mut self, now: Instant) {
        self.freed.clear();
        if !self.connected {
            return;
        }
        self.gather_streams(now);
        self.gather_acks(now);
        self.retry_subscriptions(now);
    }

    /// When to call [`Session::gather`] again even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.connected {
            return None;
        }
        let lingering = self.ready.iter().filter_map(|number| self.streams.get(number)?.deadline());
        let retries = self.feeds.values().filter_map(Fed::retry_at);
        lingering.chain(retries).min()
    }

    /// Users may have left.
    pub fn sweep(&mut self, now: Instant) {
        self.sweep_streams();
        self.sweep_feeds(now);
    }

    /// There is a new line: everything that is not answered is asked again.
    pub fn connected(&mut self, now: Instant) {
        self.line += 1;
        self.connected = true;
        self.requests.renew(now);
        for (number, request) in self.requests.iter() {
            if let Request::Publish(publish) = request {
                self.outbox.push_back(publish.frame(number));
            }
        }
        self.ready = self.streams.keys().copied().collect();
        self.subscribe_all(now);
    }

    /// The line broke.
    pub fn lost(&mut self, why: &str, now: Instant) {
        self.connected = false;
        self.freed.clear();
        self.outbox.clear();
        let lost = Failure::Lost(why.into());
        let others = self.requests.iter().filter(|(_, request)| !matches!(request, Request::Publish(_)));
        let numbers: Vec<u64> = others.map(|(number, _)| number).collect();
        for number in numbers {
            match self.requests.take(number) {
                Some(Request::Settle { feed, settles }) => self.settles_lost(feed, settles, &lost, now),
                // The subscription is gone with the line, or paused when it is made again: as was asked.
                Some(Request::Simple(Some(done))) => drop(done.send(Ok(()))),
                _ => {}
            }
        }
        self.feeds_lost(&lost, now);
    }

    /// The line broke because a frame was too large: the largest event is the one to blame.
    pub fn refuse_largest(&mut self) {
        let size = |request: &Request| match request {
            Request::Publish(publish) => publish.size(),
            _ => 0,
        };
        let largest = self.requests.iter().max_by_key(|(_, request)| size(request));
        let Some(number) = largest.map(|(number, _)| number) else { return };
        if let Some(Request::Publish(publish)) = self.requests.take(number) {
            let message = "the hub takes no frame that large: make the event smaller, or raise its limits";
            self.publish_refused(publish, HubError::of_code(ErrorCode::TooLarge, message), Instant::now());
        }
    }

    /// There will be no more lines.
    pub fn end(&mut self, why: &Failure) {
        self.connected = false;
        self.freed.clear();
        let numbers: Vec<u64> = self.requests.iter().map(|(number, _)| number).collect();
        for number in numbers {
            match self.requests.take(number) {
                Some(Request::Publish(publish)) => publish.fail(why),
                Some(Request::Settle { settles, .. }) => {
                    settles.into_iter().for_each(|settle| settle.answer(Err(why.clone())));
                }
                Some(Request::Simple(Some(done))) => drop(done.send(Ok(()))),
                _ => {}
            }
        }
        self.streams.drain().for_each(|(_, stream)| stream.fail(why));
        self.queued = 0;
        for (_, fed) in self.feeds.drain() {
            fed.end(FeedEnd::Failed(why.clone()));
        }
    }

    /// Takes a frame of the hub.
    pub fn frame(&mut self, text: &str, now: Instant) -> Result<(), BadFrame> {
        let frame: HubFrame<'_> = match serde_json::from_str(text) {
            Ok(frame) => frame,
            // The details of an error may have names that mean something else in other frames.
            Err(_) => return self.error_frame(text, now),
        };
        match &*frame.op {
            "OK" => self.ok(frame, now),
            "ERR" => self.error_frame(text, now),
            "EVENT" | "EVENTS" => self.deliveries(frame, now),
            "ASSIGNED" => {
                self.assigned(frame);
                Ok(())
            }
            // A hub of a later version may have more to say.
            _ => Ok(()),
        }
    }

    fn request_of(&mut self, corr: Option<&str>) -> Option<Request> {
        self.requests.take(corr?.parse().ok()?)
    }

    fn ok(&mut self, frame: HubFrame<'_>, now: Instant) -> Result<(), BadFrame> {
        match self.request_of(frame.corr.as_deref()) {
            Some(Request::Publish(publish)) => self.published(publish, &frame),
            Some(Request::Subscribe(feed)) => self.subscribed(feed, now),
            Some(Request::Settle { feed, settles }) => {
                self.settled(feed, settles.len());
                settles.into_iter().for_each(|settle| settle.answer(Ok(())));
                self.drained(feed);
            }
            Some(Request::Simple(Some(done))) => drop(done.send(Ok(()))),
            Some(Request::Simple(None) | Request::Probe { .. }) | None => {}
        }
        Ok(())
    }

    fn error_frame(&mut self, text: &str, now: Instant) -> Result<(), BadFrame> {
        let odd = || BadFrame("an ERR that is none".into());
        let mut details: Map<String, Value> = serde_json::from_str(text).map_err(|_| odd())?;
        let mut take = |name: &str| match details.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        if take("op").as_deref() != Some("ERR") {
            return Err(odd());
        }
        let (corr, code) = (take("corr"), take("code").ok_or_else(odd)?);
        let message = take("msg").unwrap_or_default();
        if self.renews_token && code == ErrorCode::Unauthorized.as_str() {
            // The request stays, and is made again with the next token.
            return Err(BadFrame(format!("the token is no longer good: {message}")));
        }
        let status = ErrorCode::parse(&code).map_or(400, ErrorCode::status);
        let error = HubError { status, code, message, details };
        match self.request_of(corr.as_deref()) {
            Some(Request::Publish(publish)) => self.publish_refused(publish, error, now),
            Some(Request::Subscribe(feed)) => self.subscription_refused(feed, error, now),
            Some(Request::Settle { feed, settles }) => self.settles_refused(feed, settles, error, now),
            Some(Request::Simple(Some(done))) => drop(done.send(Err(error.into()))),
            Some(Request::Probe { feed, why }) if error.code == ErrorCode::NotSubscribed.as_str() => {
                self.end_feed(feed, FeedEnd::Failed(why));
            }
            Some(Request::Simple(None) | Request::Probe { .. }) => {}
            // It is about a subscription, and does not say which.
            None if corr.is_none() => self.probe_all(&error.into(), now),
            None => {}
        }
        Ok(())
    }

    /// Asks something of the hub. Without a line it is not sent.
    fn ask(&mut self, request: Request, now: Instant, frame: impl FnOnce(u64) -> Utf8Bytes) {
        let number = self.requests.add(request, now);
        if self.connected {
            self.outbox.push_back(frame(number));
        }
    }
}

/// An ack that is said without anybody waiting for it.
fn silent_ack(token: String, event: String, line: u64) -> Settle {
    Settle { verb: Verb::Ack, token, line, event, done: None }
}
