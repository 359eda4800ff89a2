//! The loop of one connection: incoming frames go to the session, its effects are executed, and outgoing frames are sent
//! in batches.
//!
//! While the socket is blocked, nothing new is started for it. Calls in flight continue all the same: one that stopped
//! might hold what others wait for. Everything counts as connection memory, and while that is short, a connection with
//! much in flight accepts no more frames.

use super::calls::{self, Calls, Done, MAX_LEFT_AT_ONCE};
use super::session::{Effect, Session};
use super::{End, MAX_AT_ONCE};
use crate::memory::{Memory, Received, Reservation};
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::stream::SplitSink;
use futures::{FutureExt, SinkExt};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

/// Maximum number of requests of a connection that wait for their answers; then no more frames are taken.
const MAX_UNANSWERED: usize = 4_096;
/// And at most so many bytes of them, about.
const MAX_UNANSWERED_BYTES: usize = 64 << 20;

/// What a connection may have in flight while memory is short.
const FREE_BYTES: usize = 64 << 10;
/// What was given to the socket is waited for once it is so much.
const MAX_UNSENT_BYTES: usize = 1 << 20;
/// What a control frame takes beside its payload, at most.
const CONTROL_BYTES: usize = 14;

type Sink = SplitSink<WebSocket, Message>;

/// What the connection holds of the memory that all share.
pub(super) struct Buffers {
    memory: Memory,
    /// What has come of the next frame.
    received: Received,
    room: Reservation,
    /// What was given to the socket and may not have left.
    unsent: usize,
}

impl Buffers {
    pub fn new(memory: &Memory, received: Received) -> Self {
        Self { memory: memory.clone(), received, room: memory.charge(0), unsent: 0 }
    }

    /// Counts what is there now: what waits, and what was given to the socket.
    fn weigh(&mut self, waiting: usize) {
        self.room.resize(waiting + self.unsent);
    }

    /// Whether others wait for what is held here.
    fn are_too_large(&self) -> bool {
        self.room.bytes() > FREE_BYTES && self.memory.is_short()
    }
}

pub(super) struct ConnectionLoop<'a> {
    pub session: &'a mut Session,
    pub calls: &'a mut Calls,
    pub sink: &'a mut Sink,
    /// What is to be done.
    effects: Vec<Effect>,
    /// About how much memory waits in it.
    waiting: usize,
    buffers: Buffers,
    /// Whether a ping came whose answer may not have left.
    owes_pong: bool,
    /// Whether the connection ends, and nothing new is begun.
    ending: bool,
}

impl<'a> ConnectionLoop<'a> {
    pub fn new(session: &'a mut Session, calls: &'a mut Calls, sink: &'a mut Sink, buffers: Buffers) -> Self {
        Self {
            session,
            calls,
            sink,
            effects: Vec::new(),
            waiting: 0,
            buffers,
            owes_pong: false,
            ending: false,
        }
    }

    /// Whether there is room for more requests. One who pings and reads nothing is not read from: answers would pile up.
    pub fn takes_more(&self) -> bool {
        !self.owes_pong
            && self.calls.unanswered() + self.effects.len() < MAX_UNANSWERED
            && self.calls.unanswered_bytes() + self.waiting < MAX_UNANSWERED_BYTES
            && !self.buffers.are_too_large()
    }

    /// Whether there is something to do already: calls end while a slow socket is waited for.
    pub fn has_more_to_do(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Tells the session the outcome of a call.
    pub fn report(&mut self, done: Option<Done>) {
        let before = self.effects.len();
        calls::report(done, self.session, &mut self.effects);
        self.weigh_from(before, 0);
    }

    /// Counts what was added to the effects, at least as much as the frame takes that it comes from.
    fn weigh_from(&mut self, before: usize, frame: usize) {
        let bytes = self.effects[before..].iter().map(Effect::bytes).sum::<usize>();
        self.waiting += bytes.max(frame);
        self.buffers.weigh(self.waiting + self.calls.unanswered_bytes());
    }

    /// Takes what came over the socket; says whether that ends the connection.
    pub fn take(&mut self, message: Option<Result<Message, axum::Error>>) -> Option<End> {
        match message {
            Some(Ok(Message::Text(text))) => {
                let before = self.effects.len();
                let bytes = text.len();
                self.session.frame(&Bytes::from(text), &mut self.effects);
                self.buffers.received.is_dealt_with();
                self.weigh_from(before, bytes);
                None
            }
            Some(Ok(Message::Binary(_))) => Some(End::BINARY),
            // Pings are answered by the library. They may come in the middle of a frame, which is still to be dealt with.
            Some(Ok(Message::Ping(bytes))) => {
                self.buffers.received.subtract(bytes.len() + CONTROL_BYTES);
                self.owes_pong = true;
                None
            }
            Some(Ok(Message::Pong(bytes))) => {
                self.buffers.received.subtract(bytes.len() + CONTROL_BYTES);
                None
            }
            Some(Ok(Message::Close(_))) | None => Some(End::CLOSED),
            Some(Err(error)) => {
                tracing::debug!(%error, "a WebSocket broke");
                Some(match error.into_inner().downcast_ref::<tungstenite::Error>() {
                    Some(tungstenite::Error::Capacity(_)) => End::TOO_LARGE,
                    Some(tungstenite::Error::Utf8(_)) => End::NOT_TEXT,
                    _ => End::BROKEN,
                })
            }
        }
    }

    /// Does what there is to do, and sends what there is to send; at the end only the former matters.
    pub async fn go_on(&mut self, ask: bool, at_end: bool) -> Result<(), End> {
        for _ in 0..MAX_AT_ONCE {
            self.perform().await?;
            if self.buffers.unsent > MAX_UNSENT_BYTES {
                break;
            }
            // Asking for what is done also gets what was just started under way, in its order.
            let Some(done) = self.calls.next().now_or_never().flatten() else { break };
            self.report(Some(done));
        }
        self.perform().await?;
        if ask {
            self.send(Message::Ping(Bytes::new())).await?;
        }
        if at_end {
            return Ok(());
        }
        self.until(|sink, cx| sink.poll_flush_unpin(cx)).await?;
        (self.buffers.unsent, self.owes_pong) = (0, false);
        self.weigh_from(self.effects.len(), 0);
        Ok(())
    }

    /// Lets what was begun come to its end, and answers it. What was not begun is refused, so that the client knows that
    /// it did not happen. Where the socket is broken, calls still end.
    pub async fn finish(&mut self) {
        self.ending = true;
        self.calls.stop_pulls();
        let mut listens = true;
        loop {
            // Pulls end here, too, of which there may be thousands.
            tokio::task::yield_now().await;
            // Of those that are done, many leave together.
            for _ in 0..MAX_LEFT_AT_ONCE {
                let Some(done) = self.calls.next().now_or_never().flatten() else { break };
                self.report_last(done);
                if self.waiting > MAX_UNSENT_BYTES {
                    break;
                }
            }
            listens &= self.perform().await.is_ok();
            if listens && self.effects.is_empty() {
                listens = self.until(|sink, cx| sink.poll_flush_unpin(cx)).await.is_ok();
                self.buffers.unsent = 0;
            }
            if self.effects.is_empty() {
                let Some(done) = self.calls.next().await else { return };
                self.report_last(done);
            }
        }
    }

    /// Tells the session the outcome of a call at the end, when nothing is delivered any more.
    fn report_last(&mut self, done: Done) {
        let before = self.effects.len();
        let delivered = matches!(done, Done::Delivered { .. } | Done::Assigned { .. } | Done::Appeared(_));
        calls::report(Some(done), self.session, &mut self.effects);
        if delivered {
            self.effects.truncate(before);
        }
        self.weigh_from(before, 0);
    }

    /// Does what the session asks for. Frames are only put together; they leave in one piece. Where the socket is
    /// broken, everything else still happens.
    async fn perform(&mut self) -> Result<(), End> {
        let mut sent = Ok(());
        let (mut effects, waiting) = (std::mem::take(&mut self.effects), self.waiting);
        for mut effect in effects.drain(..) {
            if self.ending {
                self.session.not_begun(&mut effect);
                effect = effect.at_the_end();
            }
            match effect {
                Effect::Send(frame) if sent.is_ok() => {
                    // Frames are made of JSON, which is UTF-8.
                    if let Ok(text) = Utf8Bytes::try_from(frame) {
                        sent = self.send(Message::Text(text)).await;
                    }
                }
                Effect::Send(_) => {}
                effect => {
                    let is_one_of_many = matches!(effect, Effect::Pull(..) | Effect::Leave(..));
                    self.calls.start(effect, self.session);
                    if is_one_of_many {
                        // A pattern may stand for thousands.
                        tokio::task::consume_budget().await;
                    }
                }
            }
        }
        self.calls.submit();
        // Now it counts as unsent, or as unanswered.
        self.waiting -= waiting;
        // Its room is used again, behind what has come meanwhile.
        effects.append(&mut self.effects);
        self.effects = effects;
        sent
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        self.until(|sink, cx| sink.poll_ready_unpin(cx)).await?;
        if let Message::Text(text) = &message {
            self.buffers.unsent += text.len();
        }
        self.sink.start_send_unpin(message).map_err(|_| End::BROKEN)
    }

    /// Waits for the socket, while calls that are in flight go on.
    async fn until(
        &mut self,
        mut poll: impl FnMut(&mut Sink, &mut Context<'_>) -> Poll<Result<(), axum::Error>>,
    ) -> Result<(), End> {
        let Self { session, calls, sink, effects, waiting, buffers, .. } = self;
        if let Some(ready) = poll_fn(|cx| poll(sink, cx)).now_or_never() {
            return ready.map_err(|_| End::BROKEN);
        }
        let mut ready = pin!(poll_fn(|cx| poll(sink, cx)));
        loop {
            buffers.weigh(*waiting + calls.unanswered_bytes());
            tokio::select! {
                biased;
                // A client that reads nothing breaks the socket in the end.
                ready = &mut ready => return ready.map_err(|_| End::BROKEN),
                done = calls.next(), if !calls.is_empty() => {
                    let before = effects.len();
                    calls::report(done, session, effects);
                    *waiting += effects[before..].iter().map(Effect::bytes).sum::<usize>();
                }
            }
        }
    }
}
