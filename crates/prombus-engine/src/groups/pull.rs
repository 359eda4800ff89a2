//! Pulls: what is there is delivered, otherwise the pull waits. It is woken by the log itself, so an event reaches a
//! waiting consumer without a polling delay.

mod fetching;
mod presence;
mod turns;

use super::GroupError;
use super::group::Group;
use super::normal::{Raised, Raising};
use super::options::{Mode, check_name};
use super::partition_queue::ReadNeed;
use super::state::{Delivery, PartitionNeed, Take};
use crate::filter::{Cost, Filter};
pub(super) use fetching::Body;
pub use presence::Present;
use prombus_core::error::Retry;
use prombus_core::{Bounds, EventLogExt, Partition, Sequence, Watched};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
pub use turns::{InTurn, PullTurns, Turn};

/// Maximum number of events that are delivered at once.
pub const MAX_BATCH: usize = 10_000;
/// No more events are delivered at once than take so many bytes, and one.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// The longest wait.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// A pull looks for events that match the filter at least so long, even if it was not to wait.
const MIN_SEARCH: Duration = Duration::from_millis(250);

/// What a member asks for.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Who asks; all that give no name are one member.
    pub member: Option<String>,
    /// Maximum number of events.
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    /// Maximum number of open leases of this member.
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

/// Tells others of events that were read and not delivered, and counts them, also when the pull that has read them is
/// given up.
struct ReadAheadGuard<'a> {
    group: &'a Group,
    untold: bool,
}

impl ReadAheadGuard<'_> {
    fn tell(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.group.more.notify_waiters();
        }
    }
}

impl Drop for ReadAheadGuard<'_> {
    fn drop(&mut self) {
        self.tell();
        self.group.locked().trim();
    }
}

impl Group {
    /// Delivers what there is for a member, or waits for it. Empty when the wait is over.
    pub async fn pull(self: &Arc<Self>, pull: &Pull) -> Result<Vec<Delivery>, GroupError> {
        pull.check()?;
        self.enter_call(pull)?.pull(pull).await
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
        let mut found = ReadAheadGuard { group: self, untold: false };
        let mut raising = Raising::default();
        loop {
            let mut more = pin!(self.more.notified());
            // From here on nothing is missed, whenever it happens.
            more.as_mut().enable();
            let turn = match turns {
                // They are never closed.
                Some(turns) => turns.of(self.cost()).clone().acquire_owned().await.ok(),
                None => None,
            };
            raising.raiser = self.raiser(&self.current_topic().await?).await?;
            self.check_home().await?;
            self.until_secured().await?;
            self.fetch(take, true, &mut found).await?;
            let (deliveries, room) = self.take_raised(take, &mut raising, &mut found).await?;
            if !deliveries.is_empty() {
                return Ok((deliveries, turn));
            }
            if room && self.fetch(take, false, &mut found).await? {
                // In the same turn, so that those who wait for theirs leave nothing behind that they have read.
                let (deliveries, _) = self.take_raised(take, &mut raising, &mut found).await?;
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
        self.wake_keeper();
        match self.until_durable(span).await {
            Err(GroupError::Bus(error)) if error.retry() == Retry::WithRoom => Ok(()),
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
        raising: &mut Raising,
        found: &mut ReadAheadGuard<'_>,
    ) -> Result<(Vec<Delivery>, bool), GroupError> {
        loop {
            let Some(raiser) = raising.raiser.clone() else { return self.take_found(take, found) };
            let turn = raiser.turn().await;
            let (taken, room) = self.take_found(take, found)?;
            let is_all = taken.is_empty();
            let Raised { deliveries, is_outdated } = self.raised(raising, &raiser, turn, taken);
            // Behind what has become dead letters there may be more.
            if is_all || !deliveries.is_empty() {
                return Ok((deliveries, room));
            }
            if is_outdated {
                raising.raiser = self.raiser(&self.current_topic().await?).await?;
            }
        }
    }

    /// Takes what was read for a member, and says whether it has room for more.
    fn take_found(
        self: &Arc<Self>,
        take: &Take,
        found: &mut ReadAheadGuard<'_>,
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
        self.wake_keeper();
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
            let known = self.locked().queues.len();
            // Whoever watched before may have gone away with what it was told. Most commits are about other things.
            // What waits for acks is nothing to look for here: those who ack tell of that.
            let grown = self.current_topic().await?.config.partitions as usize > known;
            if grown || self.is_behind(take).await? {
                return Ok(());
            }
            let now = self.hub.log.changed(&watched, seen).await;
            self.seen.fetch_max(now.0, Ordering::AcqRel);
        }
    }

    /// Whether there is something to read for a member.
    async fn is_behind(self: &Arc<Self>, take: &Take) -> Result<bool, GroupError> {
        let needs = self.locked().read_needs(&take.member, false);
        let topic = self.topic.pinned();
        for PartitionNeed { partition, need, .. } in needs {
            let ReadNeed::Page(from) = need else { return Ok(true) };
            let Bounds { first, next } = self.hub.log.bounds(&topic, Partition(partition as u32)).await?;
            // What is open below the first may hold others up.
            if next.0 > from || self.keep_partition_to(partition, first) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
