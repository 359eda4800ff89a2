//! Reading what is to be delivered: pages, and single events that were read before and are not in memory any more.

use super::super::GroupError;
use super::super::group::Group;
use super::super::partition_queue::ReadNeed;
use super::super::state::{GroupFilter, PartitionNeed, Take};
use super::{MAX_BATCH_BYTES, ReadAheadGuard};
use crate::filter;
use crate::schemas::raise::Raiser;
use prombus_core::{Event, Offset, Partition, ReadError, ReadRequest};
use std::sync::Arc;

/// At least so many events are read at once, so that small pulls don't read the same page over and over.
const MIN_READ: usize = 100;
/// About so many bytes are read at once.
const READ_BYTES: usize = 1 << 20;

/// What was read.
#[derive(Default)]
struct Fetched {
    events: usize,
    bytes: usize,
}

impl Group {
    /// Reads what a member waits for. Says whether anything came of it; what did is noted as it comes, because a pull
    /// may be given up in between.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        take: &Take,
        cold: bool,
        noted: &mut ReadAheadGuard<'_>,
    ) -> Result<bool, GroupError> {
        if cold && !self.locked().has_cold() {
            return Ok(false);
        }
        // One at a time, or several would read the same.
        let _fetching = self.fetching.lock().await;
        let needs = self.locked().read_needs(&take.member, cold);
        let cost = self.cost();
        let (mut found, mut left, mut bytes_left) = (false, take.max, MAX_BATCH_BYTES);
        for PartitionNeed { partition, generation, need } in needs {
            let read = match need {
                ReadNeed::Page(from) => self.fetch_page(partition, generation, from, take.max).await?,
                // Boxed, because it is large and rare, and thousands of pulls may wait.
                ReadNeed::Bodies(offsets) => {
                    Box::pin(self.fetch_bodies(partition, generation, offsets)).await?
                }
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
        partition: usize,
        generation: u64,
        from: u64,
        max: usize,
    ) -> Result<Option<Fetched>, GroupError> {
        let (filter, given_up) = self.read_by();
        let has_filter = matches!(&*filter, Ok(Some(_)));
        let limit = if self.hub.read_ahead.is_used_up() { max } else { max.max(MIN_READ) };
        let turn = filter::Turn::at(filter.as_ref().as_ref().ok().and_then(Option::as_ref)).await;
        let page = match self.hub.log.read(self.request(partition, from, limit)).await {
            Ok(page) => page,
            Err(ReadError::Gone { first }) => {
                self.keep_partition_to(partition, first);
                return Ok(Some(Fetched::default()));
            }
            Err(error) => return Err(error.into()),
        };
        if page.next.0 <= from {
            return Ok(None);
        }
        // After the events, so that it knows every version that they are of.
        let raiser = if has_filter { self.filter_raiser().await? } else { None };
        let page = match filter.as_ref().as_ref().map(|filter| filter.as_ref().zip(turn)) {
            Err(error) => return Err(error.clone().into()),
            Ok(None) => page,
            Ok(Some((filter, turn))) => self.filtered((filter, turn), raiser.as_deref(), page).await,
        };
        let bytes = page.events.iter().map(|event| event.payload.len()).sum();
        let fetched = Fetched { events: page.events.len(), bytes };
        let mut state = self.locked();
        let holds = Arc::ptr_eq(&state.filter, &filter) && state.given_up() == given_up;
        let open = state.queue_of(partition, generation).filter(|_| holds);
        let Some(found) = open.map(|queue| queue.offer_page(from, page)) else {
            // The queue has started afresh, the filter is another one now, or events were given up: look again.
            return Ok(Some(Fetched::default()));
        };
        state.note_passed(partition);
        drop(state);
        self.wake_keeper();
        Ok(found.then_some(fetched))
    }

    async fn fetch_bodies(
        self: &Arc<Self>,
        partition: usize,
        generation: u64,
        offsets: Vec<u64>,
    ) -> Result<Option<Fetched>, GroupError> {
        let mut fetched = Fetched::default();
        let (filter, given_up) = self.read_by();
        for offset in offsets {
            if fetched.bytes > READ_BYTES {
                break;
            }
            let body = self.body(partition, offset).await?;
            let wanted = match &body {
                Body::Kept(event) => self.still_wanted(&filter, partition, event).await?,
                Body::Lost(_) | Body::Hole => false,
            };
            let mut state = self.locked();
            let holds = Arc::ptr_eq(&state.filter, &filter) && state.given_up() == given_up;
            let Some(open) = state.queue_of(partition, generation).filter(|_| holds) else { break };
            match body {
                Body::Kept(event) if wanted => {
                    fetched.events += 1;
                    fetched.bytes += event.payload.len();
                    open.offer_body(event);
                }
                Body::Kept(_) | Body::Hole => {
                    open.drop_body(offset);
                    state.note_passed(partition);
                }
                Body::Lost(first) => {
                    let lost = state.move_up(partition, first.0);
                    state.queues[partition].let_go(offset);
                    drop(state);
                    self.warn_of(partition, lost);
                }
            }
        }
        self.wake_keeper();
        Ok(Some(fetched))
    }

    /// Whether an event that was matched before still is, by a filter that may be another one since. What comes back from
    /// the dead letters was asked for by hand, whatever the filter says.
    async fn still_wanted(
        self: &Arc<Self>,
        filter: &GroupFilter,
        partition: usize,
        event: &Event,
    ) -> Result<bool, GroupError> {
        let Some(filter) = filter.as_ref().map_err(Clone::clone)? else { return Ok(true) };
        let record = self.locked().queues[partition].progress.record(event.offset.0);
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
    pub(in super::super) async fn body(&self, partition: usize, offset: u64) -> Result<Body, GroupError> {
        match self.hub.log.read(self.request(partition, offset, 1)).await {
            Ok(page) => {
                let event = page.events.into_iter().next().filter(|event| event.offset.0 == offset);
                Ok(event.map_or(Body::Hole, Body::Kept))
            }
            Err(ReadError::Gone { first }) => Ok(Body::Lost(first)),
            Err(error) => Err(error.into()),
        }
    }

    pub(in super::super) fn request(&self, partition: usize, from: u64, limit: usize) -> ReadRequest {
        let (topic, partition) = (self.topic.pinned(), Partition(partition as u32));
        ReadRequest { topic, partition, from: Offset(from), limit, max_bytes: READ_BYTES }
    }
}

/// What there is of an event that was read before.
#[derive(Debug)]
pub(in super::super) enum Body {
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
