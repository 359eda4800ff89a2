//! `GET /ws`: one task per connection, a thin loop around [`session::Session`].
//!
//! It takes the frames that have arrived, executes their effects, and sends everything that is ready in one write. While
//! the socket is blocked, nothing more is fetched for it: a slow client costs what it holds, and affects nobody else.

mod acks;
mod calls;
mod connection;
mod frames;
mod held;
mod publish_queue;
mod session;
mod source;
mod upstream;

use crate::auth::{Caller, TOKEN_EXPIRED, TOKEN_WITHDRAWN, next_change};
use crate::cluster::Vouched;
use crate::error::ApiError;
use crate::gateway::App;
use crate::memory::Received;
use crate::rate::ConnectionRate;
use crate::serve::Via;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use calls::Calls;
use connection::{Buffers, ConnectionLoop};
use futures::stream::SplitStream;
use futures::{FutureExt, SinkExt, StreamExt};
use prombus_engine::groups::GivenBack;
use session::{Allowance, Peer, Session};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};

/// Maximum number of frames and results that are taken before anything is sent.
const MAX_AT_ONCE: usize = 1_024;
/// How much is read at once at most, and set aside for it as long as the connection is open.
const READ_BYTES: usize = 32 << 10;
/// Frames are written once they come to so much.
const WRITE_BYTES: usize = 64 << 10;
/// How often a silent client is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that is silent for so long is gone.
const SILENT: Duration = Duration::from_secs(90);
/// How long what was asked for may take once the connection is to end, and its answers to leave.
const FINISH_TIME: Duration = Duration::from_secs(4);

/// How long a client may take to say who it is.
const AUTH_TIME: Duration = Duration::from_secs(30);

/// How often the clock is looked at, to see whether a token has expired.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long it may take to send the goodbye, and for a client to answer it where that is its own doing.
const GOODBYE_TIME: Duration = Duration::from_millis(1_500);

/// How long a client may take to come to the goodbye and answer it where the hub ends.
const LONGEST_GOODBYE: Duration = Duration::from_secs(6);

/// Why a connection ends.
#[derive(Debug, PartialEq, Eq)]
struct End {
    code: u16,
    reason: &'static str,
}

impl End {
    const CLOSED: Self = Self { code: close_code::NORMAL, reason: "goodbye" };
    const CLOSING: Self = Self { code: close_code::AWAY, reason: "the hub is closing" };
    const BINARY: Self = Self { code: close_code::UNSUPPORTED, reason: "frames are JSON text" };
    const TOO_LARGE: Self =
        Self { code: close_code::SIZE, reason: "the frame is larger than limits.body_bytes" };
    const NOT_TEXT: Self = Self { code: close_code::INVALID, reason: "the frame is not valid UTF-8" };
    const BROKEN: Self = Self { code: close_code::PROTOCOL, reason: "the connection broke" };
    const NO_TOKEN: Self =
        Self { code: close_code::POLICY, reason: "no AUTH with a valid token arrived in time" };
    const SILENT: Self = Self { code: close_code::POLICY, reason: "the client does not respond" };

    /// The client's token would be refused by now.
    const fn of_token(why: &'static str) -> Self {
        Self { code: close_code::POLICY, reason: why }
    }

    /// What this says about the events that the connection held. Where the hub ends it for no fault of the client, that is
    /// nothing; otherwise the oldest of them may be why the client is gone.
    fn given_back(&self) -> GivenBack {
        let by_the_hub =
            [Self::CLOSING, Self::of_token(TOKEN_EXPIRED), Self::of_token(TOKEN_WITHDRAWN)].contains(self);
        if by_the_hub { GivenBack::Unused } else { GivenBack::ConnectionLost }
    }
}

/// `GET /ws`.
pub(crate) async fn upgrade(
    State(app): State<App>,
    caller: Option<Extension<Caller>>,
    via: Option<Extension<Via>>,
    vouched: Option<Extension<Vouched>>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    app.hub()?;
    let max = app.options.max_body_bytes;
    let upgrade = upgrade.max_message_size(max).max_frame_size(max);
    let upgrade = upgrade.read_buffer_size(READ_BYTES).write_buffer_size(WRITE_BYTES);
    let caller = caller.map(|Extension(caller)| caller);
    let (rate, received, place) = match via {
        Some(Extension(Via { rate, received, place })) => (rate, received, Some(place)),
        None => (ConnectionRate::default(), Received::new(&app.memory), None),
    };
    received.is_of_frames(app.options.body_timeout);
    Ok(upgrade.on_upgrade(async move |socket| {
        let vouched = vouched.map(|Extension(vouched)| vouched);
        connection(socket, app, Client { caller, rate, received, vouched }).await;
        drop(place);
    }))
}

/// A socket that is counted while it is open.
struct Open(App);

impl Open {
    fn new(app: &App) -> Self {
        app.sockets.send_modify(|open| *open += 1);
        Self(app.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.sockets.send_modify(|open| *open -= 1);
    }
}

/// Who is at the other end, and what its connection has.
struct Client {
    caller: Option<Caller>,
    rate: ConnectionRate,
    received: Received,
    /// By what it is believed if it is another hub.
    vouched: Option<Vouched>,
}

async fn connection(socket: WebSocket, app: App, client: Client) {
    let Ok(hub) = app.hub().cloned() else { return };
    let _open = Open::new(&app);
    let name = format!("ws-{:016x}", fastrand::u64(..));
    let Client { caller, rate, received, vouched } = client;
    let is_forwarded = vouched.is_some();
    let peer = Peer { caller, auth: app.auth.clone(), vouched };
    let allowance = Allowance { publish_bytes: hub.limits().commit_bytes, memory: app.memory.clone() };
    let mut session = Session::new(name, peer, allowance);
    let mut calls = Calls::new(app.clone(), rate, hub, is_forwarded);
    let (mut sink, mut stream) = socket.split();
    let buffers = Buffers::new(&app.memory, received);
    let mut connection = ConnectionLoop::new(&mut session, &mut calls, &mut sink, buffers);
    let end = run(&app, &mut connection, &mut stream).await;
    if timeout(FINISH_TIME, connection.finish()).await.is_err() {
        tracing::warn!("closing a connection before all answers were sent: sending them took too long");
    }
    // What it holds is wanted elsewhere.
    drop(connection);
    calls.give_back(session.end(), end.given_back()).await;
    let close =
        Message::Close(Some(CloseFrame { code: end.code, reason: Utf8Bytes::from_static(end.reason) }));
    let goodbye = async {
        // Where the client has said goodbye, the library has answered it, and this only sends that answer.
        let _ = sink.send(close).await;
        let _ = sink.close().await;
    };
    // The client may be gone already.
    let _ = timeout(GOODBYE_TIME, goodbye).await;
    // Whatever a client sends to a socket that is closed takes the goodbye with it, and answers that it has not read yet. So
    // it is heard out until it has answered the goodbye, also where it is busy with something else at first.
    let heard_out = async { while let Some(Ok(_)) = stream.next().await {} };
    let patience = if end == End::CLOSING { LONGEST_GOODBYE } else { GOODBYE_TIME };
    let _ = timeout(patience, heard_out).await;
}

/// Until when it need not be asked whether the client is still welcome.
fn welcome_until(session: &Session, auth_until: Instant) -> Instant {
    match session.caller() {
        None => auth_until,
        // The clock may be changed in the meantime, so it is checked now and then.
        Some(caller) => Instant::now() + caller.time_left().unwrap_or(LOOK_EVERY).min(LOOK_EVERY),
    }
}

async fn run(app: &App, connection: &mut ConnectionLoop<'_>, stream: &mut SplitStream<WebSocket>) -> End {
    let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_seen = Instant::now();
    let (auth_until, mut keys) = (Instant::now() + AUTH_TIME, app.auth.key_changes());
    let mut welcome = pin!(sleep_until(welcome_until(connection.session, auth_until)));
    loop {
        // Calls that are always done at once would otherwise keep the runtime's budget used up, and with it everything
        // from being seen that goes by it: other frames, and that the hub is closing.
        tokio::task::consume_budget().await;
        let (mut ask, mut end) = (false, None);
        tokio::select! {
            () = std::future::ready(()), if connection.has_more_to_do() => {}
            done = connection.calls.next(), if !connection.calls.is_empty() => connection.report(done),
            message = stream.next(), if connection.takes_more() => {
                last_seen = Instant::now();
                end = connection.take(message);
            }
            _ = ping.tick() => match last_seen.elapsed() {
                silent if silent > SILENT && connection.takes_more() => return End::SILENT,
                _ => ask = true,
            },
            () = &mut welcome => match connection.session.caller() {
                None => return End::NO_TOKEN,
                Some(caller) => match caller.ended() {
                    Some(why) => return End::of_token(why),
                    None => welcome.as_mut().reset(welcome_until(connection.session, auth_until)),
                },
            },
            () = next_change(&mut keys) => if let Some(why) = connection.session.caller().and_then(Caller::ended) {
                return End::of_token(why);
            },
            () = app.closing() => return End::CLOSING,
        }
        for _ in 0..MAX_AT_ONCE {
            if end.is_some() || !connection.takes_more() {
                break;
            }
            let Some(message) = stream.next().now_or_never() else { break };
            last_seen = Instant::now();
            end = connection.take(message);
        }
        if let Err(broken) = connection.go_on(ask, end.is_some()).await {
            return end.unwrap_or(broken);
        }
        if let Some(end) = end {
            return end;
        }
        if connection.session.has_new_caller() {
            connection.calls.renew(connection.session.caller());
            welcome.as_mut().reset(welcome_until(connection.session, auth_until));
        }
    }
}
