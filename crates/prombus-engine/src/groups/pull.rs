//! Pulls: what is there is delivered, otherwise the pull waits. It is woken by the log itself, so an event reaches a
//! waiting consumer without a polling delay.

use super::GroupError;
use super::group::Group;
use super::options::{Mode, check_name};
use super::partition_queue::Want;
use super::state::{Delivery, GroupFilter, PartitionWant, Take};
use crate::bus::BusError;
use crate::filter::{self, Cost, Filter};
use crate::layers::GivenUpEvents;
use crate::schemas::raise::Raiser;
use prombus_core::{
    Bounds, CommitError, Event, EventLogExt, Offset, Partition, ReadError, ReadRequest, Sequence, Watched,
};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// At most so many events are delivered at once.
pub const MAX_BATCH: usize = 10_000;
/// No more events are delivered at once than take so many bytes, and one.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// The longest wait.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// At least so many events are read at once, so that small pulls don't read the same page over and over.
const MIN_READ: usize = 100;
/// About so many bytes are read at once.
const READ_BYTES: usize = 1 << 20;
/// A pull looks for events that match the filter at least so long, even if it was not to wait.
const MIN_SEARCH: Duration = Duration::from_millis(250);

/// What a member asks for.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Who asks; all that give no name are one member.
    pub member: Option<String>,
    /// At most so many events.
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    /// At most so many open leases of this member.
    pub max_in_flight: usize,
}

impl Default for Pull {
    fn default() -> Self {
        Self { member: None, max: 100, wait: Duration::ZERO, max_in_flight: 1_000 }
    }
}

impl Pull {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), GroupError> {
        self.take().map(drop)
    }

    fn take(&self) -> Result<Take, GroupError> {
        let between = |name: &str, value: u128, min: u128, max: u128| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(GroupError::BadOption(format!("{name} must be between {min} and {max}, not {value}")))
        };
        between("max", self.max as u128, 1, MAX_BATCH as u128)?;
        between("waitMs", self.wait.as_millis(), 0, MAX_WAIT.as_millis())?;
        between("maxInFlight", self.max_in_flight as u128, 1, u128::from(u32::MAX))?;
        if let Some(member) = &self.member {
            check_name("member", member)?;
        }
        let member = Arc::from(self.member.as_deref().unwrap_or_default());
        Ok(Take { member, max: self.max, max_in_flight: self.max_in_flight })
    }
}

/// How a member is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// One of its calls goes on. It may well come back, so it is not gone when the call ends.
    Call,
    /// It is connected, and says so when it goes.
    Connection,
}

/// Says that a member is there for as long as this is kept. A member may be there several times, and is gone when the
/// last of them is dropped.
#[must_use = "it is there for as long as this is kept"]
pub struct Present {
    group: Arc<Group>,
    member: Arc<str>,
    presence: Presence,
}

impl Present {
    /// Delivers what there is for the member, as [`Group::pull`] does; who asks is known already.
    pub async fn pull(&self, pull: &Pull) -> Result<Vec<Delivery>, GroupError> {
        let take = Take { member: self.member.clone(), ..pull.take()? };
        Ok(self.group.deliver_to(&take, pull.wait, None).await?.0)
    }

    /// The same in turn with others: nothing is read before it has one of `turns`, which comes along with what was
    /// delivered. Who waits for events waits without.
    pub async fn pull_in_turn(&self, pull: &Pull, turns: &PullTurns) -> Result<InTurn, GroupError> {
        let take = Take { member: self.member.clone(), ..pull.take()? };
        let (deliveries, turn) = self.group.deliver_to(&take, pull.wait, Some(turns)).await?;
        Ok(InTurn { deliveries, turn })
    }

    /// The group that the member is there for.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }
}

/// What was delivered to one who has a turn.
#[derive(Debug)]
pub struct InTurn {
    /// What there was; empty when the wait is over.
    pub deliveries: Vec<Delivery>,
    /// Others may read when this is dropped.
    pub turn: Turn,
}

/// Turns of those who read what is to be delivered. Groups with a filter have some of their own, and those with a costly one,
/// so that the others do not wait for them.
#[derive(Debug, Clone)]
pub struct PullTurns {
    plain: Arc<Semaphore>,
    cheap: Arc<Semaphore>,
    costly: Arc<Semaphore>,
}

impl PullTurns {
    /// So many turns by what the filter of a group costs.
    pub fn new(turns: impl Fn(Cost) -> usize) -> Self {
        let of = |cost| Arc::new(Semaphore::new(turns(cost)));
        Self { plain: of(Cost::None), cheap: of(Cost::Cheap), costly: of(Cost::Costly) }
    }

    fn of(&self, cost: Cost) -> &Arc<Semaphore> {
        match cost {
            Cost::None => &self.plain,
            Cost::Cheap => &self.cheap,
            Cost::Costly => &self.costly,
        }
    }
}

/// A turn among those who read, where they take turns.
pub type Turn = Option<OwnedSemaphorePermit>;

impl Drop for Present {
    fn drop(&mut self) {
        let now = Instant::now();
        match self.presence {
            Presence::Call => self.group.locked().members.end_call(&self.member, now),
            Presence::Connection => {
                let mut state = self.group.locked();
                state.leave(&self.member, now);
                state.trim();
            }
        }
        self.group.ensure_keeper();
    }
}

/// Tells others of events that were read and not delivered, and counts them, also when the pull that has read them is
/// given up.
struct Found<'a> {
    group: &'a Group,
    untold: bool,
}

impl Found<'_> {
    fn tell(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.group.more.notify_waiters();
        }
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        self.tell();
        self.group.locked().trim();
    }
}

/// What was read.
#[derive(Default)]
struct Fetched {
    events: usize,
    bytes: usize,
}

impl Group {
    /// Delivers what there is for a member, or waits for it. Empty when the wait is over.
    pub async fn pull(self: &Arc<Self>, pull: &Pull) -> Result<Vec<Delivery>, GroupError> {
        pull.check()?;
        self.enter_call(pull)?.pull(pull).await
    }

    /// A member calls: it is there for as long as the call goes on, and a while after it.
    pub fn enter_call(self: &Arc<Self>, pull: &Pull) -> Result<Present, GroupError> {
        self.enter_as(Arc::from(pull.member.as_deref().unwrap_or_default()), Presence::Call)
    }

    /// A member connects: it is there, whether it pulls or not.
    pub fn enter(self: &Arc<Self>, member: &str) -> Result<Present, GroupError> {
        self.enter_as(Arc::from(member), Presence::Connection)
    }

    fn enter_as(self: &Arc<Self>, member: Arc<str>, presence: Presence) -> Result<Present, GroupError> {
        let joined = self.locked().join(&member, Instant::now());
        self.ensure_keeper();
        joined.map(|()| Present { group: self.clone(), member, presence })
    }

    async fn deliver_to(
        self: &Arc<Self>,
        take: &Take,
        wait: Duration,
        turns: Option<&PullTurns>,
    ) -> Result<(Vec<Delivery>, Turn), GroupError> {
        let start = Instant::now();
        let deliveries = self.deliver(take, start + wait, turns).await;
        self.times.pulls.observe(start.elapsed());
        deliveries
    }

    async fn deliver(
        self: &Arc<Self>,
        take: &Take,
        until: Instant,
        turns: Option<&PullTurns>,
    ) -> Result<(Vec<Delivery>, Turn), GroupError> {
        let search_until = until.max(Instant::now() + MIN_SEARCH);
        let mut found = Found { group: self, untold: false };
        loop {
            let mut more = pin!(self.more.notified());
            // From here on nothing is missed, whenever it happens.
            more.as_mut().enable();
            let turn = match turns {
                // They are never closed.
                Some(turns) => turns.of(self.cost()).clone().acquire_owned().await.ok(),
                None => None,
            };
            let raiser = self.raiser(&self.current_topic().await?).await?;
            let raiser = raiser.as_deref();
            self.check_home().await?;
            self.until_secured().await?;
            self.fetch(take, true, &mut found).await?;
            let (deliveries, room) = self.take_raised(take, raiser, &mut found).await?;
            if !deliveries.is_empty() {
                return Ok((deliveries, turn));
            }
            if room && self.fetch(take, false, &mut found).await? {
                // In the same turn, so that those who wait for theirs leave nothing behind that they have read.
                let (deliveries, _) = self.take_raised(take, raiser, &mut found).await?;
                if !deliveries.is_empty() || Instant::now() > search_until {
                    return Ok((deliveries, turn));
                }
                continue;
            }
            if self.hub.closing.load(Ordering::Acquire) {
                // Whoever asks again at once must not keep others from their turn.
                tokio::task::yield_now().await;
                return Ok((Vec::new(), turn));
            }
            if Instant::now() >= until {
                return Ok((Vec::new(), turn));
            }
            // What waits for acks may wait for long.
            self.locked().trim();
            drop(turn);
            tokio::select! {
                // Any order will do; a fixed one lets a simulation be repeated.
                biased;
                () = &mut more => {}
                // The caller's own limit.
                () = tokio::time::sleep_until(until) => {}
                // Whoever can take no more leaves it to others to look.
                looked = self.watch(take), if room => looked?,
            }
        }
    }

    /// Waits until all cursors carry the epoch of the group. Where there is no room for that, nothing is delivered.
    async fn until_secured(self: &Arc<Self>) -> Result<(), GroupError> {
        let span = self.locked().secure();
        if span.upto == 0 || self.durable.has(span) {
            return Ok(());
        }
        self.ensure_keeper();
        match self.until_durable(span).await {
            Err(GroupError::Bus(BusError::Commit(CommitError::NoRoom))) => Ok(()),
            secured => secured,
        }
    }

    /// What its filter may cost.
    fn cost(&self) -> Cost {
        let filter = self.locked().filter.clone();
        Filter::cost_of(filter.as_ref().as_ref().ok().and_then(Option::as_ref))
    }

    /// Takes what was read for a member as the group delivers it, and says whether it has room for more.
    async fn take_raised(
        self: &Arc<Self>,
        take: &Take,
        raiser: Option<&Raiser>,
        found: &mut Found<'_>,
    ) -> Result<(Vec<Delivery>, bool), GroupError> {
        let Some(raiser) = raiser else { return self.take_found(take, found) };
        loop {
            let turn = raiser.turn().await;
            let (taken, room) = self.take_found(take, found)?;
            let is_all = taken.is_empty();
            let raised = self.raised(raiser, turn, taken);
            // Behind what has become dead letters there may be more.
            if is_all || !raised.is_empty() {
                return Ok((raised, room));
            }
        }
    }

    /// Takes what was read for a member, and says whether it has room for more.
    fn take_found(
        self: &Arc<Self>,
        take: &Take,
        found: &mut Found<'_>,
    ) -> Result<(Vec<Delivery>, bool), GroupError> {
        let (deliveries, left, room) = {
            let mut state = self.locked();
            if let Some(error) = self.durable.failure() {
                // What this knows may be out of date by now.
                return Err(error);
            }
            // A hub that was stalled must not deliver what another one may have by now. The next round finds out.
            let deliveries = match self.home.holds() {
                true => state.take(take, self.now()),
                false => Vec::new(),
            };
            (deliveries, state.has_more(), state.room(take) > 0)
        };
        self.ensure_keeper();
        if deliveries.is_empty() {
            // What was read is for others, if it is for anyone.
            found.tell();
        } else {
            found.untold = left;
        }
        Ok((deliveries, room))
    }

    /// Waits until there are more events, and reads none of them. In a shared group one pull at a time does.
    async fn watch(self: &Arc<Self>, take: &Take) -> Result<(), GroupError> {
        let shared = self.locked().options.mode == Mode::Shared;
        let _watching = if shared { Some(self.watching.lock().await) } else { None };
        let watched = Watched::Topic(self.topic.name.clone());
        loop {
            let seen = Sequence(self.seen.load(Ordering::Acquire));
            let lanes = self.locked().lanes.len();
            // Whoever watched before may have gone away with what it was told. Most commits are about other things.
            // What waits for acks is nothing to look for here: those who ack tell of that.
            let grown = self.current_topic().await?.config.partitions as usize > lanes;
            if grown || self.is_behind(take).await? {
                return Ok(());
            }
            let now = self.hub.log.changed(&watched, seen).await;
            self.seen.fetch_max(now.0, Ordering::AcqRel);
        }
    }

    /// Whether there is something to read for a member.
    async fn is_behind(self: &Arc<Self>, take: &Take) -> Result<bool, GroupError> {
        let wants = self.locked().wants(&take.member, false);
        let topic = self.topic.pinned();
        for PartitionWant { lane, want, .. } in wants {
            let Want::Page(from) = want else { return Ok(true) };
            let Bounds { first, next } = self.hub.log.bounds(&topic, Partition(lane as u32)).await?;
            // What is open below the first may hold others up.
            if next.0 > from || self.keep_lane_to(lane, first) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads what a member waits for. Says whether anything came of it; what did is noted as it comes, because a pull
    /// may be given up in between.
    async fn fetch(
        self: &Arc<Self>,
        take: &Take,
        cold: bool,
        noted: &mut Found<'_>,
    ) -> Result<bool, GroupError> {
        if cold && !self.locked().has_cold() {
            return Ok(false);
        }
        // One at a time, or several would read the same.
        let _fetching = self.fetching.lock().await;
        let wants = self.locked().wants(&take.member, cold);
        let cost = self.cost();
        let (mut found, mut left, mut bytes_left) = (false, take.max, MAX_BATCH_BYTES);
        for PartitionWant { lane, generation, want } in wants {
            let read = match want {
                Want::Page(from) => self.fetch_page(lane, generation, from, take.max).await?,
                // Boxed, because it is large and rare, and thousands of pulls may wait.
                Want::Bodies(offsets) => Box::pin(self.fetch_bodies(lane, generation, offsets)).await?,
            };
            found |= read.is_some();
            noted.untold |= read.is_some();
            let Fetched { events, bytes } = read.unwrap_or_default();
            // More than is asked for would only lie in memory.
            left = left.saturating_sub(events);
            bytes_left = bytes_left.saturating_sub(bytes);
            // Where the filter turns out to be costly, the rest has to wait with others of that kind.
            if left == 0 || bytes_left == 0 || self.cost() != cost {
                break;
            }
        }
        Ok(found)
    }

    async fn fetch_page(
        self: &Arc<Self>,
        lane: usize,
        generation: u64,
        from: u64,
        max: usize,
    ) -> Result<Option<Fetched>, GroupError> {
        let (filter, given_up) = self.read_by();
        let has_filter = matches!(&*filter, Ok(Some(_)));
        let raiser = if has_filter { self.filter_raiser().await? } else { None };
        let limit = if self.hub.read_ahead.is_used_up() { max } else { max.max(MIN_READ) };
        let turn = filter::Turn::at(filter.as_ref().as_ref().ok().and_then(Option::as_ref)).await;
        let page = match self.hub.log.read(self.request(lane, from, limit)).await {
            Ok(page) => page,
            Err(ReadError::Gone { first }) => {
                self.keep_lane_to(lane, first);
                return Ok(Some(Fetched::default()));
            }
            Err(error) => return Err(error.into()),
        };
        if page.next.0 <= from {
            return Ok(None);
        }
        let page = match filter.as_ref().as_ref().map(|filter| filter.as_ref().zip(turn)) {
            Err(error) => return Err(error.clone().into()),
            Ok(None) => page,
            Ok(Some((filter, turn))) => self.filtered((filter, turn), raiser.as_deref(), page).await,
        };
        let bytes = page.events.iter().map(|event| event.payload.len()).sum();
        let fetched = Fetched { events: page.events.len(), bytes };
        let mut state = self.locked();
        let holds = Arc::ptr_eq(&state.filter, &filter) && state.given_up() == given_up;
        let open = state.lane_of(lane, generation).filter(|_| holds);
        let Some(found) = open.map(|lane| lane.offer_page(from, page)) else {
            // The lane has started afresh, the filter is another one now, or events were given up: look again.
            return Ok(Some(Fetched::default()));
        };
        state.note_passed(lane);
        drop(state);
        self.ensure_keeper();
        Ok(found.then_some(fetched))
    }

    async fn fetch_bodies(
        self: &Arc<Self>,
        lane: usize,
        generation: u64,
        offsets: Vec<u64>,
    ) -> Result<Option<Fetched>, GroupError> {
        let mut fetched = Fetched::default();
        let (filter, given_up) = self.read_by();
        for offset in offsets {
            if fetched.bytes > READ_BYTES {
                break;
            }
            let body = self.body(lane, offset).await?;
            let wanted = match &body {
                Body::Kept(event) => self.still_wanted(&filter, lane, event).await?,
                Body::Lost(_) | Body::Hole => false,
            };
            let mut state = self.locked();
            let holds = Arc::ptr_eq(&state.filter, &filter) && state.given_up() == given_up;
            let Some(open) = state.lane_of(lane, generation).filter(|_| holds) else { break };
            match body {
                Body::Kept(event) if wanted => {
                    fetched.events += 1;
                    fetched.bytes += event.payload.len();
                    open.offer_body(event);
                }
                Body::Kept(_) | Body::Hole => {
                    open.drop_body(offset);
                    state.note_passed(lane);
                }
                Body::Lost(first) => {
                    let lost = state.move_up(lane, first.0);
                    state.lanes[lane].let_go(offset);
                    drop(state);
                    self.warn_of(lane, lost);
                }
            }
        }
        self.ensure_keeper();
        Ok(Some(fetched))
    }

    /// Whether an event that was matched before still is, by a filter that may be another one since. What comes back from
    /// the dead letters was asked for by hand, whatever the filter says.
    async fn still_wanted(
        self: &Arc<Self>,
        filter: &GroupFilter,
        lane: usize,
        event: &Event,
    ) -> Result<bool, GroupError> {
        let Some(filter) = filter.as_ref().map_err(Clone::clone)? else { return Ok(true) };
        let record = self.locked().lanes[lane].progress.record(event.offset.0);
        if record.is_some_and(|record| record.replays > 0) {
            return Ok(true);
        }
        let raiser = self.filter_raiser().await?;
        Ok(self.is_wanted(filter, raiser.as_deref(), event).await)
    }

    /// What raises events for a filter that is to see them so.
    async fn filter_raiser(self: &Arc<Self>) -> Result<Option<Arc<Raiser>>, GroupError> {
        match self.options().normalize {
            true => self.raiser(&self.current_topic().await?).await,
            false => Ok(None),
        }
    }

    /// What is read goes by these, and must be read again where they are others by then.
    fn read_by(&self) -> (Arc<GroupFilter>, u64) {
        let state = self.locked();
        (state.filter.clone(), state.given_up())
    }

    /// One event, if it is still kept.
    pub(super) async fn body(&self, lane: usize, offset: u64) -> Result<Body, GroupError> {
        match self.hub.log.read(self.request(lane, offset, 1)).await {
            Ok(page) => {
                let event = page.events.into_iter().next().filter(|event| event.offset.0 == offset);
                Ok(event.map_or(Body::Hole, Body::Kept))
            }
            Err(ReadError::Gone { first }) => Ok(Body::Lost(first)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn request(&self, lane: usize, from: u64, limit: usize) -> ReadRequest {
        let (topic, partition) = (self.topic.pinned(), Partition(lane as u32));
        ReadRequest { topic, partition, from: Offset(from), limit, max_bytes: READ_BYTES }
    }

    /// Moves a lane up to the first event that is kept. Whether something is lost by that.
    pub(super) fn keep_lane_to(self: &Arc<Self>, lane: usize, first: Offset) -> bool {
        let lost = {
            let mut state = self.locked();
            if first.0 == 0 || lane >= state.lanes.len() {
                return false;
            }
            state.move_up(lane, first.0)
        };
        self.warn_of(lane, lost);
        self.ensure_keeper();
        lost > 0
    }

    /// Moves the group up to what is kept.
    pub(super) fn keep_to(self: &Arc<Self>, bounds: &[Bounds]) {
        let moved = self.locked().keep_to(bounds);
        moved.into_iter().for_each(|(lane, lost)| self.warn_of(lane, lost));
        self.ensure_keeper();
    }

    /// Events were given up. When this has returned, none of them is delivered that was not before.
    pub(super) fn given_up(self: &Arc<Self>, events: &GivenUpEvents) {
        let lane = events.partition.0 as usize;
        {
            let mut state = self.locked();
            state.give_up(lane, events.single.as_deref());
            state.trim();
        }
        self.keep_lane_to(lane, events.first);
        self.ensure_keeper();
    }

    fn warn_of(&self, lane: usize, lost: u64) {
        if lost > 0 {
            tracing::warn!(
                topic = %self.topic.name, group = %self.name, partition = lane, lost,
                "events were removed by retention before the group reached them"
            );
        }
    }
}

/// What there is of an event that was read before.
#[derive(Debug)]
pub(super) enum Body {
    /// The event.
    Kept(Event),
    /// It was given up, and others before it are kept.
    Hole,
    /// It is below the first offset that is kept, which is this.
    Lost(Offset),
}

impl Body {
    /// The event, if it is still kept.
    pub fn event(self) -> Option<Event> {
        match self {
            Self::Kept(event) => Some(event),
            Self::Hole | Self::Lost(_) => None,
        }
    }
}
