//! The memory that all connections share: incoming bodies and frames, and answers that wait for their clients.
//!
//! Each connection has its own limits, but ten thousand times a modest limit is more than a machine has. So anything
//! large is reserved here before it is built, and its reservation lasts until its last byte has been sent. If there is no
//! room, a request waits briefly and is then refused; small things need no reservation.
//!
//! While someone has to wait for longer than a moment, memory is *short*: a client whose connection stalls, or nearly so,
//! is disconnected after a few seconds instead of a minute (see `stall_guard.rs` and `body.rs`). So clients that hold
//! memory for nothing make room for the others.

mod connection_reservation;

use crate::body::MIN_BYTES_PER_S;
use crate::error::ApiError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
pub(crate) use connection_reservation::ConnectionReservation;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prombus_engine::Cost;
use prombus_engine::groups::PullTurns;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// How long a request waits for room. Stalled clients are disconnected sooner than that.
const WAIT: Duration = Duration::from_secs(5);
/// A wait shorter than this does not mean that memory is short: much is reserved only briefly.
const GRACE: Duration = Duration::from_millis(500);
/// Anything up to this size is most likely sent in one write, and is not worth counting.
const SMALL_BYTES: usize = 32 << 10;
/// How much is read from a connection at once, at most, and the headers of a request may take as much. A path with a
/// query is never longer.
pub const MAX_READ_BYTES: usize = 64 << 10;
/// Maximum size of incomplete headers while memory is short.
const FREE_HEAD_BYTES: usize = 8 << 10;
/// How many requests at a time may build something of unknown size.
const MAX_TURNS: usize = 32;
/// How many requests at a time may build a report on the whole hub.
const MAX_REPORTS: usize = 1;
/// How many requests at a time may look for the keys of a topic.
const MAX_KEY_ROUNDS: usize = 2;
/// How many requests at a time may find out what a change would do, through as many events as there are.
const MAX_DRY_RUNS: usize = 2;
/// How many pulls at a time may read deliveries, up to a few megabytes each.
const MAX_PULLS: usize = 32;
/// How many more may do so with a filter, and how many may make an answer with one.
const MAX_FILTERED: usize = 8;
/// The same for slow filters.
const MAX_COSTLY: usize = 4;

/// The memory that all connections share. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: AtomicUsize,
    /// What of it connections hold for as long as they are open.
    connection_bytes: AtomicUsize,
    /// How many requests wait for room.
    waiting: AtomicUsize,
    /// How many of them have waited longer than a moment.
    starving: AtomicUsize,
    freed: Notify,
    /// Turns for building something of unknown size.
    turns: Semaphore,
    /// Turns for reading deliveries.
    pulls: PullTurns,
    /// Turns of those who hold room while they evaluate an expression, and a costly one.
    filtered: Semaphore,
    costly: Semaphore,
    /// Turns for building a report on the whole hub.
    reports: Semaphore,
    /// Turns for looking for the keys of a topic.
    key_rounds: Semaphore,
    /// Turns for finding out what a change would do.
    dry_runs: Semaphore,
}

impl Memory {
    /// Room for so many bytes.
    pub fn new(limit: usize) -> Self {
        let (used, connection_bytes, waiting, starving) = Default::default();
        let (freed, turns) = (Notify::new(), Semaphore::new(MAX_TURNS));
        let pulls = PullTurns::new(|cost| match cost {
            Cost::None => MAX_PULLS,
            Cost::Cheap => MAX_FILTERED,
            Cost::Costly => MAX_COSTLY,
        });
        let [filtered, costly] = [MAX_FILTERED, MAX_COSTLY].map(Semaphore::new);
        let [reports, key_rounds, dry_runs] = [MAX_REPORTS, MAX_KEY_ROUNDS, MAX_DRY_RUNS].map(Semaphore::new);
        Self(Arc::new(Shared {
            limit,
            used,
            connection_bytes,
            waiting,
            starving,
            freed,
            turns,
            pulls,
            filtered,
            costly,
            reports,
            key_rounds,
            dry_runs,
        }))
    }

    /// Room for something that is about to be made and takes so many bytes at most. Whoever knows better once it is
    /// made says so by [`Reservation::resize`].
    pub async fn reserve(&self, bytes: usize) -> Result<Reservation, ApiError> {
        if let Some(room) = self.try_reserve(bytes) {
            return Ok(room);
        }
        let _waiting = Waiting::new(&self.0.waiting);
        let (grace, until) = (Instant::now() + GRACE, Instant::now() + WAIT);
        let mut starving = None;
        loop {
            // Registered before checking, so that nothing freed in between is missed.
            let freed = self.0.freed.notified();
            if let Some(room) = self.try_reserve(bytes) {
                return Ok(room);
            }
            match starving {
                None => {
                    if timeout_at(grace, freed).await.is_err() {
                        starving = Some(Waiting::new(&self.0.starving));
                    }
                }
                Some(_) => {
                    if timeout_at(until, freed).await.is_err() {
                        return Err(self.refusal());
                    }
                }
            }
        }
    }

    /// Makes something whose `size` shows only when it is there, to be answered at once. Where it turns out to be large
    /// and there is no room, it is released and made again when there is, so that those who wait hold nothing, and
    /// nobody waits for what is small. Only for what is quickly made: others wait for their turn.
    pub async fn make<T, F>(&self, make: impl Fn() -> F, size: impl Fn(&T) -> usize) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let mut room: Option<Reservation> = None;
        loop {
            let turn = self.0.turns.acquire().await;
            let made = make().await?;
            let bytes = size(&made);
            let enough = room.as_ref().is_some_and(|room| bytes <= room.bytes());
            if bytes <= SMALL_BYTES || enough || self.try_reserve(bytes).is_some() {
                return Ok(made);
            }
            drop((turn, made, room));
            room = Some(self.reserve(bytes).await?);
        }
    }

    /// A turn to make a report on everything there is, which is much work and takes much more memory than its text.
    pub async fn report(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.turn(&self.0.reports).await
    }

    /// A turn to look for the keys of a topic, which takes much room for a while and leaves little of it.
    pub async fn key_round(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.turn(&self.0.key_rounds).await
    }

    /// The same for an answer that has begun.
    pub async fn next_key_round(&self) -> SemaphorePermit<'_> {
        loop {
            if let Ok(turn) = self.key_round().await {
                return turn;
            }
        }
    }

    /// A turn to find out what a change would do, and room for what is read for it. Changes themselves are one at a time for each
    /// topic, or small.
    pub async fn dry_run(&self, bytes: usize) -> Result<InTurn<'_>, ApiError> {
        let turn = self.turn(&self.0.dry_runs).await?;
        Ok(InTurn { room: self.reserve(bytes).await?, turn: Some(turn) })
    }

    /// Turns for reading deliveries.
    pub fn pulls(&self) -> &PullTurns {
        &self.0.pulls
    }

    /// Room for something that an expression decides about, if there is one. Then a turn comes first, so that those who wait
    /// for an evaluation have reserved nothing that others need.
    pub async fn reserve_in_turn(&self, bytes: usize, cost: Cost) -> Result<InTurn<'_>, ApiError> {
        let turn = match cost {
            Cost::None => None,
            Cost::Cheap => Some(self.turn(&self.0.filtered).await?),
            Cost::Costly => Some(self.turn(&self.0.costly).await?),
        };
        Ok(InTurn { room: self.reserve(bytes).await?, turn })
    }

    /// The same for one who need not be answered soon. A turn is not kept for longer than a while without room.
    pub async fn reserve_in_turn_patiently(&self, bytes: usize, cost: Cost) -> InTurn<'_> {
        loop {
            if let Ok(reserved) = self.reserve_in_turn(bytes, cost).await {
                return reserved;
            }
        }
    }

    async fn turn<'a>(&self, turns: &'a Semaphore) -> Result<SemaphorePermit<'a>, ApiError> {
        match timeout_at(Instant::now() + WAIT, turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => {
                Err(ApiError::unavailable("too many requests for this at the same time; try again shortly"))
            }
        }
    }

    /// Room for what was just made, if there is any. What is small has it always.
    pub fn room_for(&self, bytes: usize) -> Option<Reservation> {
        if bytes <= SMALL_BYTES { Some(self.charge(bytes)) } else { self.try_reserve(bytes) }
    }

    /// The refusal if there is no room.
    pub fn refusal(&self) -> ApiError {
        ApiError::unavailable(format!(
            "the requests and answers of all connections have reached limits.buffer_bytes, {} bytes; try again shortly",
            self.0.limit
        ))
    }

    fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let connection_bytes = self.0.connection_bytes.load(Ordering::SeqCst);
        let fits = |used: usize| {
            let after = used.checked_add(bytes)?;
            // What is larger than all the room there is has its turn when nothing else is there that will go.
            (after <= self.0.limit || used <= connection_bytes).then_some(after)
        };
        self.0.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).ok()?;
        Some(Reservation { memory: self.clone(), bytes })
    }

    /// The same for one who need not be answered soon, and waits until there is room.
    pub async fn reserve_patiently(&self, bytes: usize) -> Reservation {
        loop {
            if let Ok(room) = self.reserve(bytes).await {
                return room;
            }
        }
    }

    /// Counts what is there already, whether there is room or not.
    pub fn charge(&self, bytes: usize) -> Reservation {
        self.0.used.fetch_add(bytes, Ordering::SeqCst);
        Reservation { memory: self.clone(), bytes }
    }

    /// Whether somebody waits for room in vain, or would have to.
    pub fn is_short(&self) -> bool {
        self.0.starving.load(Ordering::SeqCst) > 0 || self.used() > self.0.limit
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::SeqCst)
    }

    /// Counts a body that is there as a whole, until it has left. One that is made as it is sent counts itself.
    pub async fn cover(&self, body: Body) -> Body {
        let Some(bytes) = body.size_hint().exact().filter(|bytes| *bytes > SMALL_BYTES as u64) else {
            return body;
        };
        let room = self.charge(bytes as usize);
        match body.collect().await {
            Ok(whole) => Body::from(held(whole.to_bytes(), room)),
            Err(error) => Body::from_stream(futures::stream::iter([Err::<Bytes, _>(error)])),
        }
    }
}

/// A reservation, and the turn to use it where that takes long.
pub(crate) struct InTurn<'a> {
    pub room: Reservation,
    pub turn: Option<SemaphorePermit<'a>>,
}

/// One who waits for room, and is counted.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that are counted as held, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Memory,
    bytes: usize,
}

impl Reservation {
    /// How many bytes it counts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the reserved size, whether there is room for more or not.
    pub fn resize(&mut self, bytes: usize) {
        let shared = &self.memory.0;
        if bytes > self.bytes {
            shared.used.fetch_add(bytes - self.bytes, Ordering::SeqCst);
        } else if bytes < self.bytes {
            shared.used.fetch_sub(self.bytes - bytes, Ordering::SeqCst);
            if shared.waiting.load(Ordering::SeqCst) > 0 {
                shared.freed.notify_waiters();
            }
        }
        self.bytes = bytes;
    }

    /// Splits off a part of it as a separate reservation.
    pub fn split_off(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { memory: self.memory.clone(), bytes }
    }

    /// Bytes that hold this reservation until they are dropped.
    pub fn hold(self, bytes: Vec<u8>) -> Bytes {
        let capacity = bytes.capacity();
        self.hold_as(bytes.into(), capacity)
    }

    /// The same for bytes that take so much.
    pub fn hold_as(mut self, bytes: Bytes, capacity: usize) -> Bytes {
        self.resize(capacity);
        held(bytes, self)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Bytes with their reservation.
struct Held(Bytes, #[expect(dead_code, reason = "it is there to be dropped")] Reservation);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn held(bytes: Bytes, room: Reservation) -> Bytes {
    Bytes::from_owner(Held(bytes, room))
}

/// What a connection has received and nobody has processed yet: a partial body, line or frame. Cheap to clone; clones
/// refer to the same connection.
#[derive(Debug, Clone)]
pub(crate) struct Received(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    memory: Memory,
    taken: Mutex<Taken>,
    /// How long a frame may take, if the connection carries frames instead of requests.
    frames: OnceLock<Duration>,
    /// Whether a request whose headers have arrived is being handled.
    in_request: AtomicBool,
}

#[derive(Debug)]
struct Taken {
    /// How many bytes have arrived.
    came: usize,
    /// What they take.
    room: Reservation,
}

impl Taken {
    /// This many bytes have arrived by now, in addition to the used part of the `buffers` that they were read into.
    fn set(&mut self, came: usize, buffers: usize) {
        self.came = came;
        self.room.resize(came + came.min(buffers));
    }
}

impl Received {
    pub fn new(memory: &Memory) -> Self {
        let taken = Mutex::new(Taken { came: 0, room: memory.charge(0) });
        let (frames, in_request) = Default::default();
        Self(Arc::new(Connection { memory: memory.clone(), taken, frames, in_request }))
    }

    /// From here on the connection carries frames, each of which may take `timeout`, and longer if it is large.
    pub fn is_of_frames(&self, timeout: Duration) {
        // It is said once.
        let _ = self.0.frames.set(timeout);
    }

    /// How long a frame may stall, if the connection carries frames.
    pub fn frame_timeout(&self) -> Option<Duration> {
        self.0.frames.get().copied()
    }

    /// How long a large frame that has not arrived as a whole may have taken so far, as a body of a request may.
    pub fn time_for_frame(&self) -> Option<Duration> {
        let timeout = self.frame_timeout()?;
        let came = self.0.taken.lock().came;
        (came > SMALL_BYTES).then(|| timeout + Duration::from_secs(came as u64 / MIN_BYTES_PER_S))
    }

    /// The headers of a request have arrived; its handler takes care of the body.
    pub fn is_in_request(&self) {
        self.0.in_request.store(true, Ordering::Release);
    }

    /// A request was handled, and the headers of the next one may arrive.
    pub fn is_done_with_request(&self) {
        self.is_dealt_with();
        self.0.in_request.store(false, Ordering::Release);
    }

    /// What is read into, at most: of a body one buffer is filled while another one is on its way to whoever takes it. A
    /// message in fragments is there twice, as it was read and as far as it is put together.
    fn buffers(&self) -> usize {
        if self.brings_frames() { usize::MAX } else { 2 * MAX_READ_BYTES }
    }

    fn brings_frames(&self) -> bool {
        self.0.frames.get().is_some()
    }

    /// Whether only the connection itself handles what has arrived: frames, and headers of requests.
    pub fn is_unattended(&self) -> bool {
        self.brings_frames() || !self.0.in_request.load(Ordering::Acquire)
    }

    /// This many bytes have arrived.
    pub fn add(&self, bytes: usize) {
        let mut taken = self.0.taken.lock();
        let now = taken.came + bytes;
        taken.set(now, self.buffers());
    }

    /// This many of the bytes that have arrived were processed.
    pub fn subtract(&self, bytes: usize) {
        let mut taken = self.0.taken.lock();
        let now = taken.came.saturating_sub(bytes);
        taken.set(now, self.buffers());
    }

    /// Everything that has arrived was processed or is counted elsewhere, except for this many bytes.
    pub fn is_dealt_with_but_for(&self, bytes: usize) {
        self.0.taken.lock().set(bytes, self.buffers());
    }

    /// Everything that has arrived was processed or is counted elsewhere.
    pub fn is_dealt_with(&self) {
        self.is_dealt_with_but_for(0);
    }

    /// Whether it is more than a little, for what it is.
    pub fn is_much(&self) -> bool {
        let is_head = !self.brings_frames() && self.is_unattended();
        self.0.taken.lock().came > if is_head { FREE_HEAD_BYTES } else { SMALL_BYTES }
    }

    pub fn memory_is_short(&self) -> bool {
        self.0.memory.is_short()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_for_it_and_not_for_ever() {
        let memory = Memory::new(100);
        let first = memory.reserve(60).await.unwrap();
        assert!(!memory.is_short());
        let (begun, second) = (Instant::now(), memory.clone());
        let second = tokio::spawn(async move { second.reserve(60).await });
        tokio::task::yield_now().await;
        assert!(!memory.is_short(), "somebody waits, but not for long");
        // The clock is held.
        tokio::time::sleep(GRACE * 2).await;
        assert!(memory.is_short());
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert_eq!((memory.used(), begun.elapsed()), (60, GRACE * 2));
        let begun = Instant::now();
        let refused = memory.reserve(41).await.unwrap_err();
        assert!(refused.message().contains("limits.buffer_bytes"), "{refused:?}");
        assert_eq!(begun.elapsed(), WAIT);
        drop(second);
        assert!(!memory.is_short());
    }

    #[tokio::test(start_paused = true)]
    async fn few_dry_runs_and_looks_for_keys_happen_at_a_time() {
        let memory = Memory::new(100);
        let dry_runs = [memory.dry_run(10).await.unwrap(), memory.dry_run(10).await.unwrap()];
        assert_eq!(memory.used(), 20);
        assert!(memory.dry_run(10).await.is_err());
        drop(dry_runs);
        let first = memory.dry_run(10).await.unwrap();
        let rounds = [memory.key_round().await.unwrap(), memory.key_round().await.unwrap()];
        assert!(memory.key_round().await.is_err());
        assert!(memory.next_key_round().now_or_never().is_none());
        drop((first, rounds));
        drop(memory.next_key_round().await);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_larger_than_all_room_is_made_alone() {
        let memory = Memory::new(100);
        let one = memory.reserve(1).await.unwrap();
        assert!(memory.reserve(1_000).now_or_never().is_none());
        drop(one);
        let large = memory.reserve(1_000).await.unwrap();
        assert!(memory.is_short());
        assert!(memory.reserve(0).now_or_never().is_none());
        drop(large);
        memory.reserve(0).await.unwrap();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn what_was_made_keeps_its_room_until_the_last_byte_is_let_go() {
        let memory = Memory::new(1 << 20);
        let room = memory.reserve(1 << 20).await.unwrap();
        let bytes = room.hold(Vec::with_capacity(1_000));
        assert_eq!(memory.used(), 1_000);
        drop(bytes);
        assert_eq!(memory.used(), 0);
        for (size, counted) in [(SMALL_BYTES, 0), (SMALL_BYTES + 1, SMALL_BYTES + 1)] {
            let mut body = memory.cover(Body::from(vec![b'x'; size])).await;
            assert_eq!((body.size_hint().exact(), memory.used()), (Some(size as u64), counted));
            let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
            // The server has it now, and the body is done; the client has not taken a byte.
            drop(body);
            assert_eq!((data.len(), memory.used()), (size, counted));
            let rest = data.slice(size - 1..);
            drop(data);
            assert_eq!(memory.used(), counted);
            drop(rest);
            assert_eq!(memory.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_small_waits_for_nobody_and_what_is_large_holds_nothing_while_it_waits() {
        let memory = Memory::new(SMALL_BYTES);
        let others = memory.charge(SMALL_BYTES);
        let made = AtomicUsize::new(0);
        let make = |bytes: usize| {
            let made = &made;
            let make = move || async move {
                made.fetch_add(1, Ordering::Relaxed);
                Ok(bytes)
            };
            memory.make(make, |bytes| *bytes)
        };
        assert_eq!(make(SMALL_BYTES).await.unwrap(), SMALL_BYTES);
        let large = futures::future::join_all((0..2 * MAX_TURNS).map(|_| make(SMALL_BYTES + 1)));
        let mut large = std::pin::pin!(large);
        assert!(large.as_mut().now_or_never().is_none());
        assert_eq!(made.load(Ordering::Relaxed), 1 + 2 * MAX_TURNS, "their turns are free again");
        assert_eq!((memory.used(), make(1).await.unwrap()), (SMALL_BYTES, 1));
        drop(others);
        assert!(large.await.iter().all(Result::is_ok));
        assert_eq!(memory.used(), 0);
    }
}
