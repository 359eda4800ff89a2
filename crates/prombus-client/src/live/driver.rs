//! The task that owns the socket: a thin loop around [`Session`].
//!
//! Incoming frames are taken many at a time, and outgoing ones are sent in one write. Reading continues while a write is
//! blocked, so that two sides that are both busy sending cannot block each other.

use super::command::Command;
use super::dial::{DialError, Socket, dial};
use super::failure::Failure;
use super::inbox::Inbox;
use super::options::{Backoff, LiveOptions};
use super::session::{Session, SessionOptions};
use super::state::LiveState;
use crate::Client;
use futures::{FutureExt, SinkExt, StreamExt};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::error::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

/// Maximum number of frames that are taken before anything is sent.
const MAX_AT_ONCE: usize = 1_024;
/// How often the hub is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A hub that is silent for so long is gone.
const SILENT: Duration = Duration::from_secs(45);
/// How long what is in flight may take when the connection is closed.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// How long closing may take.
const GOODBYE_TIME: Duration = Duration::from_secs(1);
/// The reason given if the task ended without one.
const BROKEN: &str = "its task ended unexpectedly";

/// The task of a connection.
pub(crate) struct Driver {
    pub client: Client,
    pub options: LiveOptions,
    pub inbox: Inbox,
    /// Users have left, or want what waits to be sent.
    pub left: Arc<Notify>,
    pub closing: watch::Receiver<bool>,
    pub state: watch::Sender<LiveState>,
}

/// Why a connection ended.
enum Disconnect {
    /// Nobody needs it any more.
    Finished,
    Lost {
        why: String,
        /// Because the hub does not take frames that large.
        too_large: bool,
    },
}

impl Disconnect {
    fn lost(why: impl ToString) -> Self {
        Self::Lost { why: why.to_string(), too_large: false }
    }
}

impl Driver {
    /// Keeps the connection up until nobody needs it, or it cannot be. Whatever the end is, everybody is told.
    pub async fn run(mut self, socket: Socket) {
        let mut session = Session::new(SessionOptions {
            renews_token: self.client.token.may_change(),
            give_up_after: self.options.give_up_after,
        });
        let driven = AssertUnwindSafe(self.drive(socket, &mut session)).catch_unwind().await;
        let (end, socket) = driven.unwrap_or_else(|_| (Failure::ended(BROKEN), None));
        // Nothing new is taken, and what was taken is answered.
        self.inbox.close();
        let mut taken = Vec::new();
        self.inbox.take_all(&mut taken);
        refuse(&mut taken, &mut session, &end);
        if let Some(mut socket) = socket {
            drop(timeout(GOODBYE_TIME, goodbye(&mut socket)).await);
        }
        self.set_state(LiveState::Ended { reason: end.to_string() });
        // Who had a place in the queue when it was closed may still send.
        while self.inbox.take(&mut taken, true).await > 0 {
            refuse(&mut taken, &mut session, &end);
        }
    }

    /// Opens one connection after the other; returns why there are no more, and the last one if it is still usable.
    async fn drive(&mut self, mut socket: Socket, session: &mut Session) -> (Failure, Option<Socket>) {
        let mut backoff = Backoff::new(&self.options);
        loop {
            let since = Instant::now();
            session.connected(since);
            self.set_state(LiveState::Connected);
            let (why, too_large) = match self.converse(&mut socket, session).await {
                Disconnect::Finished => return (Failure::Closed, Some(socket)),
                Disconnect::Lost { why, too_large } => (why, too_large),
            };
            // The hub gives what it had delivered over it to others once it is gone.
            drop(socket);
            if too_large {
                session.too_large(Instant::now());
            }
            session.lost(Instant::now());
            backoff.after_line(since.elapsed());
            socket = match self.reconnect(why, &mut backoff, session).await {
                Ok(socket) => socket,
                Err(end) => return (end, None),
            };
        }
    }

    /// Who watches the state is woken only by a new one.
    fn set_state(&self, new: LiveState) {
        self.state.send_if_modified(|state| {
            let changes = *state != new;
            *state = new;
            changes
        });
    }

    /// Moves commands and frames until the connection ends.
    async fn converse(&mut self, socket: &mut Socket, session: &mut Session) -> Disconnect {
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut dirty, mut taken) = (Instant::now(), false, Vec::new());
        // Whether no more commands come, and when everything must be done then.
        let (mut done, mut finish_by) = (false, None);
        loop {
            let deadline = session.deadline().into_iter().chain(finish_by).min();
            let (mut left, room) = (false, session.has_room());
            tokio::select! {
                pumped = poll_fn(|cx| pump(socket, &mut session.outbox, &mut dirty, cx)) => {
                    heard = Instant::now();
                    if let Err(end) = take(pumped, session) {
                        return last_words(end, socket, session).await;
                    }
                }
                count = self.inbox.take(&mut taken, room), if !done => {
                    if count == 0 {
                        done = true;
                        finish_by.get_or_insert(Instant::now() + CLOSE_TIME);
                        session.close(Instant::now());
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
                () = self.left.notified() => {
                    left = true;
                    // What users said before they left counts.
                    self.inbox.take_control(&mut taken);
                }
                Ok(()) = self.closing.changed(), if finish_by.is_none() => {
                    self.inbox.close();
                    finish_by = Some(Instant::now() + CLOSE_TIME);
                }
                _ = ping.tick() => {
                    if heard.elapsed() > SILENT || session.is_stuck(Instant::now()) {
                        return Disconnect::lost("the hub does not respond");
                    }
                    // If it cannot be sent, the connection is broken, which reading reports.
                    let _ = socket.start_send_unpin(Message::Ping(Bytes::new()));
                    dirty = true;
                }
            }
            let now = Instant::now();
            taken.drain(..).for_each(|command| session.command(command, now));
            if left {
                session.sweep(now);
            }
            for _ in 0..MAX_AT_ONCE {
                let Some(message) = socket.next().now_or_never() else { break };
                if let Err(end) = take(message.transpose(), session) {
                    return end;
                }
            }
            session.gather(now);
            if done && session.is_idle() || finish_by.is_some_and(|by| by <= now) {
                return Disconnect::Finished;
            }
        }
    }

    /// Reconnects; returns why that is no longer possible.
    async fn reconnect(
        &mut self,
        mut why: String,
        backoff: &mut Backoff,
        session: &mut Session,
    ) -> Result<Socket, Failure> {
        let (since, mut tries) = (Instant::now(), 0);
        loop {
            self.set_state(LiveState::Reconnecting { reason: why.clone(), tries });
            tries += 1;
            let mut pause = backoff.next(fastrand::f64());
            if let Some(limit) = self.options.give_up_after {
                let left = limit.saturating_sub(since.elapsed());
                if left.is_zero() {
                    return Err(Failure::ended(format!("the client gave up: {why}")));
                }
                pause = pause.min(left);
            }
            let client = self.client.clone();
            let attempt = async move {
                // Many clients that come back at the same moment would keep a hub from starting.
                tokio::time::sleep(pause).await;
                dial(&client).await
            };
            match self.meanwhile(attempt, session).await? {
                Ok(socket) => return Ok(socket),
                Err(error) => {
                    // A source may have a better token the next time.
                    if error.is_final() && !self.client.token.may_change() {
                        return Err(final_failure(error));
                    }
                    why = error.to_string();
                }
            }
        }
    }

    /// Takes commands while disconnected.
    async fn meanwhile<T>(
        &mut self,
        attempt: impl Future<Output = T>,
        session: &mut Session,
    ) -> Result<T, Failure> {
        let mut attempt = pin!(attempt);
        let mut taken = Vec::new();
        loop {
            tokio::select! {
                result = &mut attempt => return Ok(result),
                count = self.inbox.take(&mut taken, session.has_room()) => {
                    if count == 0 {
                        return Err(Failure::Closed);
                    }
                    let now = Instant::now();
                    taken.drain(..).for_each(|command| session.command(command, now));
                }
                () = self.left.notified() => {
                    // What users said before they left counts.
                    self.inbox.take_control(&mut taken);
                    let now = Instant::now();
                    taken.drain(..).for_each(|command| session.command(command, now));
                    session.sweep(now);
                }
                Ok(()) = self.closing.changed() => return Err(Failure::Closed),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The task may have been dropped with its runtime.
        if !self.state.borrow().is_ended() {
            self.set_state(LiveState::Ended { reason: BROKEN.to_owned() });
        }
    }
}

/// Tells those who asked for something that there will be nothing any more.
fn refuse(taken: &mut Vec<Command>, session: &mut Session, end: &Failure) {
    taken.drain(..).for_each(|command| session.command(command, Instant::now()));
    session.end(end);
}

fn final_failure(error: DialError) -> Failure {
    match error {
        DialError::Refused(error) => error.into(),
        DialError::Away(why) | DialError::Wrong(why) => Failure::ended(why),
    }
}

/// Sends what there is, and gives what comes.
fn pump(
    socket: &mut Socket,
    outbox: &mut VecDeque<(u64, Utf8Bytes)>,
    dirty: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Message>, WsError>> {
    loop {
        while !outbox.is_empty() && socket.poll_ready_unpin(cx)?.is_ready() {
            if let Some((_, frame)) = outbox.pop_front() {
                socket.start_send_unpin(Message::Text(frame))?;
                *dirty = true;
            }
        }
        if !*dirty || socket.poll_flush_unpin(cx)?.is_pending() {
            break;
        }
        *dirty = false;
        if outbox.is_empty() {
            break;
        }
    }
    socket.poll_next_unpin(cx).map(Option::transpose)
}

/// Handles what has arrived; returns whether that was the end of the connection.
fn take(message: Result<Option<Message>, WsError>, session: &mut Session) -> Result<(), Disconnect> {
    match message {
        Ok(Some(Message::Text(text))) => {
            session.frame(&text, Instant::now()).map_err(|bad| Disconnect::lost(bad.0))
        }
        Ok(Some(Message::Close(Some(CloseFrame { code, reason })))) => {
            let why = format!("the hub closed it: {reason} ({code})");
            Err(Disconnect::Lost { why, too_large: code == CloseCode::Size })
        }
        Ok(Some(Message::Close(None))) => Err(Disconnect::lost("the hub closed it")),
        // The library answers pings.
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Disconnect::lost("the hub is gone")),
        Err(error) => Err(Disconnect::lost(error)),
    }
}

/// What the hub sent before the connection broke, including a reason, may still be unread.
async fn last_words(end: Disconnect, socket: &mut Socket, session: &mut Session) -> Disconnect {
    let listen = async {
        loop {
            match socket.next().await {
                Some(Ok(message)) => {
                    if let Err(end) = take(Ok(Some(message)), session) {
                        return Some(end);
                    }
                }
                _ => return None,
            }
        }
    };
    match &end {
        // A reason was given, or there is nothing more.
        Disconnect::Lost { too_large: true, .. } | Disconnect::Finished => end,
        Disconnect::Lost { .. } => timeout(GOODBYE_TIME, listen).await.ok().flatten().unwrap_or(end),
    }
}

async fn goodbye(socket: &mut Socket) {
    let close = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("goodbye") };
    if socket.close(Some(close)).await.is_ok() {
        while let Some(Ok(_)) = socket.next().await {}
    }
}
