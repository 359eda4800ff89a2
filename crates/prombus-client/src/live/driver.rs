//! The task that owns the socket: a thin loop around [`Session`].
//!
//! What has come is taken, many at a time; what is to be sent is put together and leaves in one write. Reading goes on
//! while a write waits, so that two sides that are both busy sending cannot block each other.

use super::command::Command;
use super::dial::{DialError, Line, dial};
use super::failure::Failure;
use super::options::{Backoff, LiveOptions};
use super::session::Session;
use super::state::LiveState;
use crate::Client;
use futures::{FutureExt, SinkExt, StreamExt};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::error::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

/// So many commands or frames are taken before anything is sent.
const MAX_AT_ONCE: usize = 1_024;
/// How often the hub is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A hub that is silent for so long is gone.
const SILENT: Duration = Duration::from_secs(45);
/// A line that held for so long was a good one: the next pause is a short one again.
const GOOD_LINE: Duration = Duration::from_secs(5);
/// How long what is under way may take when the connection is closed.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// How long a goodbye may take.
const GOODBYE_TIME: Duration = Duration::from_secs(1);
/// How often a hub may refuse tokens of a source in a row: the source may have been late with the new one.
const MAX_REFUSALS: u32 = 5;

/// The task of a connection.
pub(crate) struct Driver {
    pub client: Client,
    pub options: LiveOptions,
    pub commands: mpsc::Receiver<Command>,
    /// Users have left.
    pub left: Arc<Notify>,
    pub closing: watch::Receiver<bool>,
    pub state: watch::Sender<LiveState>,
}

/// Why a line ended.
enum LineEnd {
    /// Nobody needs it any more.
    Finished,
    Lost {
        why: String,
        /// Because the hub does not take frames that large.
        too_large: bool,
    },
}

impl LineEnd {
    fn lost(why: impl ToString) -> Self {
        Self::Lost { why: why.to_string(), too_large: false }
    }
}

impl Driver {
    /// Keeps the connection up until nobody needs it, or it cannot be.
    pub async fn run(mut self, mut line: Line) {
        let mut session = Session::new(self.client.token.may_change());
        let mut backoff = Backoff::new(&self.options);
        let end = loop {
            let since = Instant::now();
            session.connected(since);
            self.set_state(LiveState::Connected);
            let (why, too_large) = match self.converse(&mut line, &mut session).await {
                LineEnd::Finished => break Failure::ended("it was closed"),
                LineEnd::Lost { why, too_large } => (why, too_large),
            };
            session.lost(&why, Instant::now());
            if too_large {
                session.refuse_largest();
            }
            if since.elapsed() > GOOD_LINE {
                backoff.reset();
            }
            line = match self.reconnect(why, &mut backoff, &mut session).await {
                Ok(line) => line,
                Err(end) => break end,
            };
        };
        // Nothing new is taken, and what was taken is answered.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            session.command(command, Instant::now());
        }
        session.end(&end);
        let reason = match &end {
            Failure::Hub(error) => error.to_string(),
            Failure::Lost(why) | Failure::Ended(why) => (**why).to_owned(),
        };
        self.set_state(LiveState::Ended { reason });
        drop(timeout(GOODBYE_TIME, goodbye(&mut line)).await);
    }

    /// Who watches the state is woken only by a new one.
    fn set_state(&self, new: LiveState) {
        self.state.send_if_modified(|state| {
            let changes = *state != new;
            *state = new;
            changes
        });
    }

    /// Moves commands and frames until the line ends.
    async fn converse(&mut self, line: &mut Line, session: &mut Session) -> LineEnd {
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut dirty, mut taken) = (Instant::now(), false, Vec::new());
        // When everything must be done, once no more commands come.
        let mut finish_by = None;
        loop {
            let deadline = session.deadline().into_iter().chain(finish_by).min();
            tokio::select! {
                pumped = poll_fn(|cx| pump(line, &mut session.outbox, &mut dirty, cx)) => {
                    heard = Instant::now();
                    if let Err(end) = take(pumped, session) {
                        return last_words(end, line, session).await;
                    }
                }
                count = self.commands.recv_many(&mut taken, MAX_AT_ONCE),
                    if finish_by.is_none() && session.has_room() =>
                {
                    if count == 0 {
                        finish_by = Some(Instant::now() + CLOSE_TIME);
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
                () = self.left.notified() => {}
                Ok(()) = self.closing.changed(), if finish_by.is_none() => {
                    self.commands.close();
                }
                _ = ping.tick() => {
                    if heard.elapsed() > SILENT || session.is_stuck(Instant::now()) {
                        return LineEnd::lost("the hub gives no sign of life");
                    }
                    // Where it cannot be sent, the line is broken, and reading from it says so.
                    let _ = line.start_send_unpin(Message::Ping(Bytes::new()));
                    dirty = true;
                }
            }
            let now = Instant::now();
            session.sweep(now);
            taken.drain(..).for_each(|command| session.command(command, now));
            for _ in 0..MAX_AT_ONCE {
                let Some(message) = line.next().now_or_never() else { break };
                if let Err(end) = take(message.transpose(), session) {
                    return end;
                }
            }
            session.gather(now);
            if finish_by.is_some_and(|by| session.is_idle() || by <= now) {
                return LineEnd::Finished;
            }
        }
    }

    /// Makes a new line; says why there will be none.
    async fn reconnect(
        &mut self,
        mut why: String,
        backoff: &mut Backoff,
        session: &mut Session,
    ) -> Result<Line, Failure> {
        let since = Instant::now();
        let mut refusals = 0;
        loop {
            self.set_state(LiveState::Reconnecting { reason: why.clone(), tries: backoff.tries() });
            let pause = backoff.next(fastrand::f64());
            if self.options.give_up_after.is_some_and(|limit| since.elapsed() + pause > limit) {
                return Err(Failure::ended(format!("it was given up: {why}")));
            }
            let client = self.client.clone();
            let attempt = async move {
                // Many clients that come back at the same moment would keep a hub from starting.
                tokio::time::sleep(pause).await;
                dial(&client).await
            };
            match self.meanwhile(attempt, session).await? {
                Ok(line) => return Ok(line),
                Err(error) => {
                    refusals = if error.is_about_the_token() { refusals + 1 } else { 0 };
                    let may_heal = self.client.token.may_change() && refusals < MAX_REFUSALS;
                    if error.is_final() && !may_heal {
                        return Err(final_failure(error));
                    }
                    why = error.to_string();
                }
            }
        }
    }

    /// Takes commands while there is no line.
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
                count = self.commands.recv_many(&mut taken, MAX_AT_ONCE), if session.has_room() => {
                    if count == 0 {
                        return Err(Failure::ended("it was closed"));
                    }
                    let now = Instant::now();
                    taken.drain(..).for_each(|command| session.command(command, now));
                }
                () = self.left.notified() => session.sweep(Instant::now()),
                Ok(()) = self.closing.changed() => return Err(Failure::ended("it was closed")),
            }
        }
    }
}

fn final_failure(error: DialError) -> Failure {
    match error {
        DialError::Refused(error) => error.into(),
        DialError::Away(why) | DialError::Wrong(why) => Failure::ended(why),
    }
}

/// Sends what there is, and gives what comes.
fn pump(
    line: &mut Line,
    outbox: &mut VecDeque<Utf8Bytes>,
    dirty: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Message>, WsError>> {
    loop {
        while !outbox.is_empty() && line.poll_ready_unpin(cx)?.is_ready() {
            if let Some(frame) = outbox.pop_front() {
                line.start_send_unpin(Message::Text(frame))?;
                *dirty = true;
            }
        }
        if !*dirty || line.poll_flush_unpin(cx)?.is_pending() {
            break;
        }
        *dirty = false;
        if outbox.is_empty() {
            break;
        }
    }
    line.poll_next_unpin(cx).map(Option::transpose)
}

/// Takes what came over the line; says whether that was its end.
fn take(message: Result<Option<Message>, WsError>, session: &mut Session) -> Result<(), LineEnd> {
    match message {
        Ok(Some(Message::Text(text))) => {
            session.frame(&text, Instant::now()).map_err(|bad| LineEnd::lost(bad.0))
        }
        Ok(Some(Message::Close(Some(CloseFrame { code, reason })))) => {
            let why = format!("the hub closed it: {reason} ({code})");
            Err(LineEnd::Lost { why, too_large: code == CloseCode::Size })
        }
        Ok(Some(Message::Close(None))) => Err(LineEnd::lost("the hub closed it")),
        // The library answers pings.
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(LineEnd::lost("the hub is gone")),
        Err(error) => Err(LineEnd::lost(error)),
    }
}

/// What the hub said before the line broke, a reason among it, may still be unread.
async fn last_words(end: LineEnd, line: &mut Line, session: &mut Session) -> LineEnd {
    let listen = async {
        loop {
            match line.next().await {
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
        LineEnd::Lost { too_large: true, .. } | LineEnd::Finished => end,
        LineEnd::Lost { .. } => timeout(GOODBYE_TIME, listen).await.ok().flatten().unwrap_or(end),
    }
}

async fn goodbye(line: &mut Line) {
    let close = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("goodbye") };
    if line.close(Some(close)).await.is_ok() {
        while let Some(Ok(_)) = line.next().await {}
    }
}
