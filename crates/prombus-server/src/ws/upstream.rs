//! Subscriptions of this hub at others, in the name of a client of its own: for each connection of a client, one WebSocket to
//! each hub where topics are at home that it has subscribed to. It goes with the client's connection, and so do its leases.
//!
//! The other hub is spoken to as any client speaks to it, but for the headers of the upgrade. While a client is behind, no
//! more is read for it.

use super::session::Key;
use super::source::Wanted;
use crate::auth::Caller;
use crate::cluster::{Cluster, Forward, OpenedSocket, Voucher};
use crate::error::ApiError;
use crate::memory::{Memory, Reservation};
use crate::routes::groups::options_of;
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt, StreamExt};
use parking_lot::Mutex;
use prombus_core::{Event, Json, LiveHub, Offset, Partition, TopicName};
use prombus_engine::Hub;
use prombus_engine::groups::{Delivery, GroupCall, GroupName, Mode, Settle, SettleResult};
use prombus_engine::homes::Place;
use prombus_wire::{DeliveryContext, ErrorCode, SubscribeOptions, Text};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use uuid::Uuid;

/// What has come and is not wanted yet, of all subscriptions that are not paused; then no more is read.
const MAX_AHEAD_BYTES: usize = 1 << 20;
/// How long the other hub may take to answer a frame that says something of leases.
const SETTLE_TIME: Duration = Duration::from_secs(30);
/// How long it may take to subscribe.
const SUBSCRIBE_TIME: Duration = Duration::from_secs(15);
/// A hub that is the home no more has so long to say so.
const MOVE_GRACE: Duration = Duration::from_secs(1);
/// What frames may say of leases at a time, on their way to the other hub.
const MAX_FRAMES: usize = 4_096;

type OtherHub<'a> = (&'a Cluster, &'a Hub, &'a LiveHub);
/// What came of what was said of leases, one by one.
pub(super) type Settled = Result<Vec<SettleResult>, ApiError>;
type Answer = oneshot::Sender<Result<(), ApiError>>;

/// The connections to other hubs that one connection of a client has.
pub(super) struct Upstreams {
    memory: Memory,
    by_hub: tokio::sync::Mutex<HashMap<LiveHubKey, Arc<Upstream>>>,
    /// Those that are open, to whom it is told when the client says anew who it is.
    open: Mutex<Vec<Weak<Upstream>>>,
}

/// Which life of which hub.
type LiveHubKey = (Arc<str>, Arc<str>);

/// One connection.
struct Upstream {
    frames: mpsc::Sender<String>,
    voucher: Mutex<Voucher>,
    home: LiveHub,
    shared: Arc<Shared>,
}

/// What the reader and the subscriptions of a connection share.
struct Shared {
    memory: Memory,
    /// Weak, because each of them holds the connection.
    remotes: Mutex<HashMap<Key, Weak<Remote>>>,
    answers: Mutex<HashMap<u64, Answer>>,
    count: AtomicU64,
    /// How much has come and is not wanted yet.
    ahead: AtomicUsize,
    /// Something that had come was taken, or is not counted any more.
    taken: Notify,
    /// Why the connection is no more.
    ended: watch::Sender<Option<ApiError>>,
}

/// A subscription at another hub.
pub(super) struct Remote {
    key: Key,
    home: LiveHub,
    hub: Hub,
    upstream: Arc<Upstream>,
    state: Mutex<RemoteState>,
    /// Counts what has come.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct RemoteState {
    batches: VecDeque<Batch>,
    assigned: Vec<Partition>,
    is_paused: bool,
    /// How much of what waits is counted: nothing while it is paused, so that the others go on.
    counted: usize,
    ended: Option<ApiError>,
}

/// Deliveries that have come together.
pub(super) struct Batch {
    pub deliveries: Vec<Delivery>,
    pub max_attempts: u32,
    pub room: Reservation,
}

/// A frame of the other hub.
#[derive(Deserialize)]
struct HubFrame<'a> {
    #[serde(borrow)]
    op: Text<'a>,
    #[serde(default)]
    corr: Option<u64>,
    #[serde(borrow, default)]
    topic: Option<Text<'a>>,
    #[serde(borrow, default)]
    group: Option<Text<'a>>,
    #[serde(borrow, default)]
    deliveries: Option<Vec<ToldDelivery<'a>>>,
    #[serde(default)]
    partitions: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct ToldDelivery<'a> {
    #[serde(borrow)]
    event: ToldEvent<'a>,
    ctx: DeliveryContext,
}

/// An event of which the texts stay as they are.
#[derive(Deserialize)]
struct ToldEvent<'a> {
    id: Uuid,
    ts: u64,
    recorded_ts: Option<u64>,
    key: Option<String>,
    partition: u32,
    offset: u64,
    #[serde(borrow, default)]
    sid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default)]
    caused_by: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tags: Option<&'a RawValue>,
}

impl ToldDelivery<'_> {
    fn delivery(self, key: &Key, frame: &Bytes) -> Option<Delivery> {
        let Self { event, ctx } = self;
        let json = |raw: &RawValue| Json::from_raw(raw, frame).ok();
        let optional = |raw: Option<&RawValue>| raw.and_then(json).map(Box::new);
        Some(Delivery {
            event: Event {
                id: event.id,
                ts: event.ts,
                recorded_ts: event.recorded_ts.unwrap_or(event.ts),
                topic: key.topic.clone(),
                key: event.key.map(Into::into),
                partition: Partition(event.partition),
                offset: Offset(event.offset),
                sid: optional(event.sid),
                headers: optional(event.headers),
                payload: json(event.payload)?,
                caused_by: optional(event.caused_by),
                tags: optional(event.tags),
            },
            lease: ctx.lease.parse().ok()?,
            attempt: ctx.attempt,
            deadline: Instant::now() + Duration::from_millis(ctx.ack_deadline_ms),
        })
    }
}

/// The error that a frame tells.
fn error_in(text: &str) -> ApiError {
    let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let code = fields.remove("code").and_then(|code| serde_json::from_value::<ErrorCode>(code).ok());
    let message = fields.remove("msg");
    let message = message.as_ref().and_then(Value::as_str).unwrap_or("the other hub refused it");
    let error = ApiError::with_code(code.unwrap_or(ErrorCode::Unavailable), message);
    // The client is told those by its own session.
    let own = ["op", "corr", "topic", "group"];
    let details = fields.into_iter().filter(|(name, _)| !own.contains(&name.as_str()));
    details.fold(error, |error, (name, value)| error.with(&name, value))
}

fn gone(home: &LiveHub) -> ApiError {
    ApiError::unavailable(format!(
        "the connection to hub {}, where this is at home, broke; try again",
        home.id
    ))
}

impl Upstreams {
    pub fn new(memory: Memory) -> Self {
        Self { memory, by_hub: tokio::sync::Mutex::default(), open: Mutex::default() }
    }

    /// Subscribes a client at another hub.
    pub async fn subscribe(
        &self,
        other: OtherHub<'_>,
        key: &Key,
        wanted: &Wanted,
    ) -> Result<Arc<Remote>, ApiError> {
        let (_, hub, home) = other;
        let upstream = self.upstream(other, &wanted.caller).await?;
        let remote = Arc::new(Remote {
            key: key.clone(),
            home: home.clone(),
            hub: hub.clone(),
            upstream: upstream.clone(),
            state: Mutex::default(),
            news: watch::Sender::new(0),
        });
        // Before it is asked for: deliveries come right behind the answer.
        upstream.shared.remotes.lock().insert(key.clone(), Arc::downgrade(&remote));
        let Wanted { call, pull, .. } = wanted;
        let opts = SubscribeOptions {
            batch: Some(true),
            member: pull.member.clone(),
            batch_size: Some(pull.max),
            max_in_flight: Some(pull.max_in_flight),
            ..options_of(call).into()
        };
        let frame = json!({"op": "SUBSCRIBE", "topic": key.topic.as_str(), "group": key.group.as_str(), "opts": opts});
        let asked = upstream.ask(frame, home);
        let subscribed =
            tokio::time::timeout(SUBSCRIBE_TIME, asked).await.unwrap_or_else(|_| Err(gone(home)));
        if let Err(error) = subscribed {
            upstream.forget(&remote);
            return Err(error);
        }
        Ok(remote)
    }

    async fn upstream(&self, other: OtherHub<'_>, caller: &Caller) -> Result<Arc<Upstream>, ApiError> {
        let (_, _, home) = other;
        let mut by_hub = self.by_hub.lock().await;
        by_hub.retain(|_, upstream| upstream.shared.ended.borrow().is_none());
        let key = (home.id.0.clone(), home.about.url.clone());
        if let Some(upstream) = by_hub.get(&key) {
            return Ok(upstream.clone());
        }
        let upstream = Arc::new(Upstream::open(other, caller, &self.memory).await?);
        let mut open = self.open.lock();
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&upstream));
        by_hub.insert(key, upstream.clone());
        Ok(upstream)
    }

    /// The client has said anew who it is.
    pub fn renew(&self, caller: &Caller) {
        for upstream in self.open.lock().iter().filter_map(Weak::upgrade) {
            // In the order of their numbers.
            let mut voucher = upstream.voucher.lock();
            let frame = voucher.frame(caller);
            if upstream.frames.try_send(frame.to_string()).is_err() {
                // One that does not listen is connected to anew, in the new name.
                upstream.shared.end(&gone(&upstream.home));
            }
        }
    }

    /// The client's connection ends, through no fault of its own where `unused`: then nothing that it held counts as tried.
    pub async fn close(&self, unused: bool) {
        let upstreams = std::mem::take(&mut *self.by_hub.lock().await);
        for upstream in upstreams.into_values().filter(|_| unused) {
            let remotes: Vec<Arc<Remote>> = upstream.shared.all();
            remotes.iter().for_each(|remote| remote.leave());
        }
    }
}

impl Upstream {
    async fn open(
        (cluster, hub, home): OtherHub<'_>,
        caller: &Caller,
        memory: &Memory,
    ) -> Result<Self, ApiError> {
        let headers = HeaderMap::new();
        let forward =
            Forward { method: &Method::GET, target: "/ws", headers: &headers, body: Bytes::new(), caller };
        let OpenedSocket { socket, voucher } = cluster.open_socket(hub, home, forward).await?;
        let (frames, to_send) = mpsc::channel(MAX_FRAMES);
        let shared = Arc::new(Shared {
            memory: memory.clone(),
            remotes: Mutex::default(),
            answers: Mutex::default(),
            count: AtomicU64::new(0),
            ahead: AtomicUsize::new(0),
            taken: Notify::new(),
            ended: watch::Sender::new(None),
        });
        tokio::spawn(carry(socket, to_send, shared.clone(), home.clone()));
        Ok(Self { frames, voucher: Mutex::new(voucher), home: home.clone(), shared })
    }

    /// Sends a request, which is before all that is sent later; what is answered is waited for.
    fn ask(
        &self,
        mut frame: Value,
        home: &LiveHub,
    ) -> impl Future<Output = Result<(), ApiError>> + Send + use<> {
        let corr = self.shared.count.fetch_add(1, Ordering::Relaxed);
        frame["corr"] = corr.into();
        let (answer, answered) = oneshot::channel();
        self.shared.answers.lock().insert(corr, answer);
        let sent = self.frames.try_send(frame.to_string());
        if sent.is_err() || self.shared.ended.borrow().is_some() {
            self.shared.answers.lock().remove(&corr);
        }
        let gone = gone(home);
        async move { answered.await.unwrap_or(Err(gone)) }
    }

    /// Sends a request whose answer nobody waits for. What finds no room is not sent: the other hub does not listen.
    fn tell(&self, frame: &Value) {
        if self.frames.try_send(frame.to_string()).is_err() {
            tracing::debug!("a hub was not told of the end or the pause of a subscription");
        }
    }

    fn forget(&self, remote: &Remote) {
        let mut remotes = self.shared.remotes.lock();
        if remotes.get(&remote.key).is_some_and(|known| std::ptr::eq(known.as_ptr(), remote)) {
            remotes.remove(&remote.key);
        }
        drop(remotes);
        self.shared.taken.notify_one();
    }
}

impl Shared {
    fn all(&self) -> Vec<Arc<Remote>> {
        self.remotes.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn take(&self, text: &Bytes, home: &LiveHub) {
        let Ok(as_text) = std::str::from_utf8(text) else { return };
        let Ok(frame) = serde_json::from_slice::<HubFrame<'_>>(text) else {
            tracing::warn!(hub = %home.id, "a hub has sent a frame that makes no sense");
            return;
        };
        if let Some(answer) = frame.corr.and_then(|corr| self.answers.lock().remove(&corr)) {
            let answered = if &*frame.op == "ERR" { Err(error_in(as_text)) } else { Ok(()) };
            let _ = answer.send(answered);
            return;
        }
        let (Some(topic), Some(group)) = (&frame.topic, &frame.group) else { return };
        let (Ok(topic), Ok(group)) = (TopicName::parse(topic), GroupName::parse(group)) else { return };
        let remote = self.remotes.lock().get(&Key { topic, group }).and_then(Weak::upgrade);
        let Some(remote) = remote else { return };
        let mut state = remote.state.lock();
        match &*frame.op {
            "ERR" => state.ended = Some(error_in(as_text)),
            "ASSIGNED" => {
                state.assigned = frame.partitions.unwrap_or_default().into_iter().map(Partition).collect();
            }
            "EVENTS" => {
                let told = frame.deliveries.unwrap_or_default();
                let max_attempts = told.first().map_or(0, |first| first.ctx.max_attempts);
                let deliveries = told.into_iter().filter_map(|one| one.delivery(&remote.key, text)).collect();
                let room = self.memory.charge(text.len());
                state.batches.push_back(Batch { deliveries, max_attempts, room });
                remote.count(&mut state);
            }
            _ => {}
        }
        drop(state);
        remote.news.send_modify(|news| *news += 1);
    }

    fn end(&self, error: &ApiError) {
        self.ended.send_replace(Some(error.clone()));
        self.answers.lock().clear();
        let remotes = self.all();
        self.remotes.lock().clear();
        for remote in remotes {
            remote.state.lock().ended.get_or_insert_with(|| error.clone());
            remote.news.send_modify(|news| *news += 1);
        }
    }
}

/// Carries frames to and from another hub until either end is gone.
async fn carry(
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    mut to_send: mpsc::Receiver<String>,
    shared: Arc<Shared>,
    home: LiveHub,
) {
    let (mut sink, mut stream) = socket.split();
    loop {
        let has_room = shared.ahead.load(Ordering::Acquire) < MAX_AHEAD_BYTES;
        tokio::select! {
            frame = to_send.recv() => {
                let Some(frame) = frame else { break };
                let mut sent = sink.feed(Message::Text(frame.into())).await;
                while let (Ok(()), Ok(frame)) = (&sent, to_send.try_recv()) {
                    sent = sink.feed(Message::Text(frame.into())).await;
                }
                if sent.is_err() || sink.flush().await.is_err() {
                    break;
                }
            }
            message = stream.next(), if has_room => match message {
                Some(Ok(Message::Text(text))) => shared.take(&Bytes::from(text), &home),
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
            () = shared.taken.notified(), if !has_room => {}
        }
    }
    shared.end(&gone(&home));
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.upstream.shared.ahead.fetch_sub(self.state.get_mut().counted, Ordering::AcqRel);
        self.upstream.forget(self);
    }
}

impl Remote {
    /// The next deliveries, in a subscription that goes on; an error if it does not.
    pub async fn next(&self) -> Result<Batch, ApiError> {
        self.go_on();
        let mut news = self.news.subscribe();
        let mut moved = std::pin::pin!(self.until_moved());
        loop {
            if let Some(batch) = self.taken()? {
                return Ok(batch);
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return Err(gone(&self.home)) },
                () = &mut moved => {
                    // It may come back here, and is asked for anew then.
                    self.leave();
                    return Err(gone(&self.home));
                }
            }
        }
    }

    fn taken(&self) -> Result<Option<Batch>, ApiError> {
        let mut state = self.state.lock();
        let batch = state.batches.pop_front();
        self.count(&mut state);
        match (batch, &state.ended) {
            (Some(batch), _) => Ok(Some(batch)),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Counts what waits now.
    fn count(&self, state: &mut RemoteState) {
        let waits = state.batches.iter().map(|batch| batch.room.bytes()).sum::<usize>();
        let now = if state.is_paused { 0 } else { waits };
        let before = std::mem::replace(&mut state.counted, now);
        let shared = &self.upstream.shared;
        shared.ahead.fetch_add(now, Ordering::AcqRel);
        shared.ahead.fetch_sub(before, Ordering::AcqRel);
        shared.taken.notify_one();
    }

    /// Waits until the topic has been at home elsewhere for a while.
    async fn until_moved(&self) {
        let mut hubs = self.hub.hubs();
        while self.hub.place(&self.key.topic) == Place::At(self.home.clone()) {
            if hubs.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        // There is nothing to wait for but the time.
        tokio::time::sleep(MOVE_GRACE).await;
    }

    fn frame(&self, op: &str) -> Value {
        json!({"op": op, "topic": self.key.topic.as_str(), "group": self.key.group.as_str()})
    }

    fn go_on(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_paused, false) {
            self.count(&mut state);
            self.upstream.tell(&self.frame("RESUME"));
        }
    }

    /// Nothing is wanted for now. What is on its way is kept.
    pub fn pause(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.is_paused, true) {
            self.count(&mut state);
            self.upstream.tell(&self.frame("PAUSE"));
        }
    }

    /// The client wants no more: all that it holds goes back.
    pub fn leave(&self) {
        self.upstream.tell(&self.frame("UNSUBSCRIBE"));
        self.upstream.forget(self);
    }

    /// The partitions that the member has now.
    pub fn owned(&self) -> Vec<Partition> {
        self.state.lock().assigned.clone()
    }

    /// Word of whatever comes.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Says the same of several leases, as one frame of the client did. Leases that the connection there does not hold any more
    /// are spent.
    pub fn settle(self: &Arc<Self>, settles: &[Option<Settle>]) -> BoxFuture<'static, Settled> {
        let count = settles.len();
        let Some(frame) = self.settle_frame(settles) else {
            return std::future::ready(Ok(vec![SettleResult::Expired; count])).boxed();
        };
        let asked = self.upstream.ask(frame, &self.home);
        let remote = self.clone();
        async move { remote.settled(count, asked).await }.boxed()
    }

    async fn settled(&self, count: usize, asked: impl Future<Output = Result<(), ApiError>>) -> Settled {
        let all = |result: SettleResult| Ok(vec![result; count]);
        let answered = tokio::select! {
            answered = tokio::time::timeout(SETTLE_TIME, asked) => answered.unwrap_or_else(|_| Err(gone(&self.home))),
            () = self.until_moved() => Err(gone(&self.home)),
        };
        match answered {
            Ok(()) => all(SettleResult::Done),
            Err(error) => match error.code() {
                ErrorCode::DiskFull => all(SettleResult::NoRoom),
                // With the connection or the home, the leases went as well.
                ErrorCode::LeaseExpired | ErrorCode::Unavailable | ErrorCode::NotSubscribed => {
                    all(SettleResult::Expired)
                }
                _ => Err(error),
            },
        }
    }

    fn settle_frame(&self, settles: &[Option<Settle>]) -> Option<Value> {
        let lease = |settle: &Option<Settle>| match settle.as_ref()? {
            Settle::Ack(lease)
            | Settle::Nack { lease, .. }
            | Settle::Bury { lease, .. }
            | Settle::Extend { lease, .. } => Some(lease.to_string()),
        };
        let leases: Vec<String> = settles.iter().map(lease).collect::<Option<_>>()?;
        let mut frame = match settles.first()?.as_ref()? {
            Settle::Ack(_) => self.frame("ACK"),
            Settle::Nack { reason, delay, .. } => {
                let mut frame = self.frame("NACK");
                if let Some(reason) = reason {
                    frame["reason"] = (**reason).into();
                }
                if let Some(delay) = delay {
                    frame["delay_ms"] = (delay.as_millis() as u64).into();
                }
                frame
            }
            Settle::Extend { by, .. } => {
                let mut frame = self.frame("MODACK");
                if let Some(by) = by {
                    frame["extend_ms"] = (by.as_millis() as u64).into();
                }
                frame
            }
            // Clients cannot say that.
            Settle::Bury { .. } => return None,
        };
        frame["leases"] = leases.into();
        Some(frame)
    }

    /// Whether the group hands out partitions, as far as the options of its subscription say.
    pub fn may_assign(call: &GroupCall) -> bool {
        call.options.mode != Some(Mode::Shared)
    }
}
