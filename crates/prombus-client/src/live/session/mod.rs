//! The rules of a connection as a state machine: commands, frames and connection changes in, frames out. It never waits
//! and knows no socket.
//!
//! Invariants:
//! - A publish is kept until it is answered, and resent in order, over the next connection, or after a pause if the hub
//!   is busy. So is a commit, whose id makes it happen once.
//! - Leases end with their connection. An ack that was unanswered by then is remembered, and repeated if its event is
//!   redelivered. A handler's ack that the hub refuses temporarily is retried while its lease lasts.
//! - Subscriptions are renewed on every connection, until the hub refuses them permanently or their users are gone.

mod ack_retries;
mod committing;
mod feeding;
mod frames;
mod malformed;
mod publishing;
mod requests;
mod retry;
mod settling;

#[cfg(test)]
mod tests;

use super::command::{Command, Committing, Done, WindowSlot};
use super::failure::Failure;
use super::feed::{Feed, FeedEnd};
use super::settle::{Settle, SettleKind};
use crate::HubError;
use feeding::ActiveSubscription;
use retry::Delayed;

use prombus_wire::{ErrorCode, HubFrame};
use publishing::{MAX_BATCH_BYTES, Publish, Stream, TooLarge};
use requests::Requests;
pub(crate) use retry::RetryState;
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// Maximum number of requests and events that wait; beyond that, no more publishes are taken, and their senders wait.
const MAX_WAITING: usize = 16_384;
/// If the hub owes answers and sends none for this long, the connection is considered dead.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A request that waits for its answer.
enum Request {
    Publish(Publish),
    Commit(Committing),
    Subscribe(u64),
    Settle {
        feed: u64,
        settles: Vec<Settle>,
    },
    /// Ends this subscription. Deliveries of it may come until it is answered.
    Unsubscribe {
        feed: Arc<Feed>,
        done: Option<Done>,
    },
    /// Nothing depends on it but that it is done.
    Simple(Option<Done>),
    /// Asks whether a subscription is still there; if it is not, this is why.
    Probe {
        feed: u64,
        why: Failure,
    },
}

impl Request {
    /// Whether it survives a reconnect.
    fn is_kept(&self) -> bool {
        matches!(self, Self::Publish(_) | Self::Commit(_))
    }
}

/// An invalid frame, which ends the connection, with the reason.
#[derive(Debug)]
pub(crate) struct BadFrame(pub String);

/// The settings of a session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SessionOptions {
    /// Whether a reconnect may bring a new token: then a refused token is a reason to reconnect.
    pub renews_token: bool,
    /// How long temporarily refused requests are retried; forever if absent.
    pub give_up_after: Option<Duration>,
}

/// The state of a connection across all reconnects.
pub(crate) struct Session {
    /// Frames that are to be sent, with the numbers of their requests, which grow.
    pub outbox: VecDeque<(u64, Utf8Bytes)>,
    /// Whether it is connected.
    connected: bool,
    requests: Requests<Request>,
    /// When the hub answered last.
    answered: Option<Instant>,
    streams: HashMap<u64, Stream>,
    /// Streams that have something to send.
    ready: Vec<u64>,
    /// How many events wait in streams.
    queued: usize,
    /// Requests that the hub could not do just now, in the order in which it said so.
    delayed: Vec<Delayed>,
    feeds: HashMap<u64, ActiveSubscription>,
    names: HashMap<String, HashMap<String, u64>>,
    /// How often subscriptions were asked for.
    made: u64,
    /// Feeds that have acks to send.
    settling: Vec<u64>,
    options: SessionOptions,
    /// Places in windows that are free again. They are given back together: whoever waits for one is then woken once
    /// for many.
    freed: Vec<WindowSlot>,
    /// A frame takes no more events once it has so many bytes.
    batch_bytes: usize,
    /// Nobody will ask for anything more.
    closing: bool,
    /// Whether it was logged that the hub delivers what nobody here has subscribed to.
    stray_told: bool,
}

impl Session {
    /// A session before its first connection.
    pub fn new(options: SessionOptions) -> Self {
        Self {
            outbox: VecDeque::new(),
            connected: false,
            requests: Requests::default(),
            answered: None,
            streams: HashMap::new(),
            ready: Vec::new(),
            queued: 0,
            delayed: Vec::new(),
            feeds: HashMap::new(),
            names: HashMap::new(),
            made: 0,
            settling: Vec::new(),
            options,
            freed: Vec::new(),
            batch_bytes: MAX_BATCH_BYTES,
            closing: false,
            stray_told: false,
        }
    }

    /// Whether another publish may be taken.
    pub fn has_room(&self) -> bool {
        self.requests.span() + self.queued + self.delayed.len() < MAX_WAITING
    }

    /// Whether everything that was asked for is answered.
    pub fn is_idle(&self) -> bool {
        let waits = self.queued > 0 || !self.delayed.is_empty() || !self.settling.is_empty();
        self.requests.is_empty() && !waits
    }

    /// Whether the hub has been asked for something, and has not answered anything for too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        let since = self.requests.oldest().max(self.requests.oldest().and(self.answered));
        since.is_some_and(|since| now.duration_since(since) > ANSWER_TIME)
    }

    pub fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Publish { topic, entry } => self.publish(topic, vec![entry], false, now),
            Command::PublishAll { topic, entries } => self.publish(topic, entries, true, now),
            Command::Stream { producer, entry } => self.stream(producer, entry, now),
            Command::Commit(commit) => self.commit(commit, now),
            Command::Subscribe { feed, done } => self.subscribe(feed, done, now),
            Command::Unsubscribe { feed, done } => self.unsubscribe(feed, Some(done), now),
            Command::Settle { feed, settle } => self.settle(feed, settle, now),
            Command::Extend { feed, extensions } => self.extend(feed, extensions, now),
            Command::Drain { feed, done } => self.drain(feed, done, now),
            Command::Pause { feed, pause, done } => self.pause(feed, pause, done, now),
        }
    }

    /// Puts what has gathered into frames. To be called after commands and frames, before sending.
    pub fn gather(&mut self, now: Instant) {
        self.freed.clear();
        if !self.connected {
            return;
        }
        self.ask_delayed(now);
        self.gather_streams(now);
        self.gather_acks(now);
        self.gather_again(now);
        self.retry_subscriptions(now);
    }

    /// When to call [`Session::gather`] again even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.connected {
            return None;
        }
        let lingering = self.ready.iter().filter_map(|number| self.streams.get(number)?.deadline());
        let retries = self.feeds.values().filter_map(ActiveSubscription::retry_at);
        let delayed = self.delayed.iter().map(|delayed| delayed.at);
        let again = self.feeds.values().filter_map(|fed| fed.again.at());
        lingering.chain(retries).chain(delayed).chain(again).min()
    }

    /// Users may have left.
    pub fn sweep(&mut self, now: Instant) {
        self.sweep_streams();
        self.sweep_feeds(now);
    }

    /// A new connection: resends everything that is unanswered.
    pub fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.requests.renew(now);
        for (number, request) in self.requests.iter() {
            if let Some(frame) = self.kept_frame(number, request) {
                self.outbox.push_back((number, frame));
            }
        }
        self.ready = self.streams.keys().copied().collect();
        self.subscribe_all(now);
    }

    /// The connection broke.
    pub fn lost(&mut self, now: Instant) {
        self.connected = false;
        self.freed.clear();
        self.outbox.clear();
        let others = self.requests.iter().filter(|(_, request)| !request.is_kept());
        let numbers: Vec<u64> = others.map(|(number, _)| number).collect();
        for number in numbers {
            match self.requests.take(number) {
                Some(Request::Settle { feed, settles }) => self.settles_lost(feed, settles, now),
                // The subscription is gone with the connection, or paused when it is renewed, as requested.
                Some(Request::Simple(Some(done)) | Request::Unsubscribe { done: Some(done), .. }) => {
                    drop(done.send(Ok(())));
                }
                _ => {}
            }
        }
        self.feeds_lost(now);
    }

    /// Nobody will ask for anything more: what waits is sent, and subscriptions give back what they hold.
    pub fn close(&mut self, now: Instant) {
        self.closing = true;
        self.close_feeds(now);
    }

    /// The connection is about to break because a frame is too large. The largest that was sent is such a frame,
    /// whatever the hub's limit is.
    pub fn too_large(&mut self, now: Instant) {
        let unsent = self.outbox.front().map_or(u64::MAX, |(number, _)| *number);
        let sent = self.requests.iter().filter(|(number, _)| *number < unsent);
        let sized = sent.map(|(number, request)| (self.frame_bytes(number, request), number));
        let Some((bytes, number)) = sized.max() else { return };
        let message =
            "the hub does not accept a frame that large: make it smaller, or raise the hub's limits";
        let error = HubError::of_code(ErrorCode::TooLarge, message);
        match self.requests.get(number) {
            Some(Request::Publish(_)) => self.publish_too_large(TooLarge { number, bytes, error }, now),
            Some(Request::Commit(_)) => {
                if let Some(Request::Commit(commit)) = self.requests.take(number) {
                    self.committed(commit, Err(error.into()));
                }
            }
            Some(Request::Subscribe(feed)) => self.end_feed(*feed, FeedEnd::Failed(error.into())),
            // It is gone with the connection.
            _ => {}
        }
    }

    /// The frame of a request that survives a reconnect.
    fn kept_frame(&self, number: u64, request: &Request) -> Option<Utf8Bytes> {
        match request {
            Request::Publish(publish) => Some(publish.frame(number)),
            Request::Commit(commit) => Some(frames::commit(number, &commit.body)),
            _ => None,
        }
    }

    /// How long the frame of a request is.
    fn frame_bytes(&self, number: u64, request: &Request) -> usize {
        match request {
            Request::Publish(_) | Request::Commit(_) => {
                self.kept_frame(number, request).map_or(0, |frame| frame.len())
            }
            Request::Subscribe(feed) => {
                self.feeds.get(feed).map_or(0, |fed| frames::subscribe(number, &fed.feed).len())
            }
            Request::Settle { feed, settles } => {
                let (Some(fed), Some(first)) = (self.feeds.get(feed), settles.first()) else { return 0 };
                let leases = settles.iter().map(|settle| settle.token.text());
                frames::settle(number, &fed.feed, &first.kind, leases).len()
            }
            Request::Unsubscribe { .. } | Request::Simple(_) | Request::Probe { .. } => 0,
        }
    }

    /// There will be no more connections.
    pub fn end(&mut self, why: &Failure) {
        self.connected = false;
        self.freed.clear();
        let numbers: Vec<u64> = self.requests.iter().map(|(number, _)| number).collect();
        let mut open: Vec<Request> =
            numbers.into_iter().filter_map(|number| self.requests.take(number)).collect();
        open.extend(self.delayed.drain(..).map(|delayed| delayed.request));
        for request in open {
            match request {
                Request::Publish(publish) => publish.fail(why),
                Request::Commit(commit) => commit.answer(Err(why.clone())),
                Request::Settle { settles, .. } => {
                    settles.into_iter().for_each(|settle| settle.answer(Err(why.clone())));
                }
                Request::Simple(Some(done)) | Request::Unsubscribe { done: Some(done), .. } => {
                    drop(done.send(Ok(())));
                }
                _ => {}
            }
        }
        self.streams.drain().for_each(|(_, stream)| stream.fail(why));
        self.queued = 0;
        for (_, fed) in self.feeds.drain() {
            fed.end(why.clone().into());
        }
        self.names.clear();
        self.settling.clear();
    }

    /// Takes a frame of the hub.
    pub fn frame(&mut self, text: &str, now: Instant) -> Result<(), BadFrame> {
        let frame: HubFrame<'_> = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(_) => return self.odd_frame(text, now),
        };
        match &*frame.op {
            "OK" => self.ok(frame, text, now),
            "ERR" => self.error_frame(text, now),
            "EVENT" | "EVENTS" => {
                self.deliveries(frame, now);
                Ok(())
            }
            "ASSIGNED" => {
                self.assigned(frame);
                Ok(())
            }
            // A hub of a later version may have more to say.
            _ => Ok(()),
        }
    }

    fn request_of(&mut self, corr: Option<&str>, now: Instant) -> Option<Request> {
        let request = self.requests.take(corr?.parse().ok()?)?;
        self.answered = Some(now);
        Some(request)
    }

    /// Takes an answer, whose `text` may say more than the frame.
    fn ok(&mut self, frame: HubFrame<'_>, text: &str, now: Instant) -> Result<(), BadFrame> {
        match self.request_of(frame.corr.as_deref(), now) {
            Some(Request::Publish(publish)) => self.published(publish, frame),
            Some(Request::Commit(commit)) => self.commit_done(commit, text),
            Some(Request::Subscribe(feed)) => self.subscribed(feed, now),
            Some(Request::Settle { feed, settles }) => self.settles_done(feed, settles),
            Some(Request::Simple(done) | Request::Unsubscribe { done, .. }) => {
                done.into_iter().for_each(|done| drop(done.send(Ok(()))));
            }
            Some(Request::Probe { .. }) | None => {}
        }
        Ok(())
    }

    fn error_frame(&mut self, text: &str, now: Instant) -> Result<(), BadFrame> {
        let odd = || BadFrame("a malformed ERR".into());
        let mut details: Map<String, Value> = serde_json::from_str(text).map_err(|_| odd())?;
        let mut take = |name: &str| match details.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        if take("op").as_deref() != Some("ERR") {
            return Err(odd());
        }
        let corr = take("corr");
        let code = take("code").unwrap_or_else(|| ErrorCode::Internal.as_str().to_owned());
        let message = take("msg").unwrap_or_default();
        if self.options.renews_token && code == ErrorCode::Unauthorized.as_str() {
            // The request stays, and is made again with the next token.
            return Err(BadFrame(format!("the token is no longer valid: {message}")));
        }
        let status = ErrorCode::parse(&code).map_or(400, ErrorCode::status);
        let error = HubError { status, code, message, details };
        match self.request_of(corr.as_deref(), now) {
            Some(Request::Publish(publish)) => self.publish_refused(publish, error, now),
            Some(Request::Commit(commit)) => self.commit_refused(commit, error, now),
            Some(Request::Subscribe(feed)) => self.subscription_refused(feed, error, now),
            Some(Request::Settle { feed, settles }) => self.settles_refused(feed, settles, error, now),
            Some(Request::Simple(Some(done)) | Request::Unsubscribe { done: Some(done), .. }) => {
                drop(done.send(Err(error.into())));
            }
            Some(Request::Probe { feed, why }) if error.code == ErrorCode::NotSubscribed.as_str() => {
                self.feed_ended(feed, why, now);
            }
            Some(Request::Simple(None) | Request::Unsubscribe { .. } | Request::Probe { .. }) => {}
            None if corr.is_none() => self.subscription_ended(error, now),
            None => {}
        }
        Ok(())
    }

    /// Sends a request to the hub, if connected.
    fn ask(&mut self, request: Request, now: Instant, frame: impl FnOnce(u64) -> Utf8Bytes) {
        let number = self.requests.add(request, now);
        if self.connected {
            self.outbox.push_back((number, frame(number)));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nobody may be left waiting, however this came.
        self.end(&Failure::ended("its task ended unexpectedly"));
    }
}

/// An ack that is said without anybody waiting for it.
fn silent_ack(token: String, event: String, made: u64) -> Settle {
    Settle { kind: SettleKind::Ack, token: token.into(), made, event, kept: None, done: None }
}
