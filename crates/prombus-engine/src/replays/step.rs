//! Steps through a range: some events, those that are wanted as their copies, and how far the replay is then.

use super::ReplayError;
use super::definition::{Left, Origin, Recipe};
use crate::filter::{KEEP_TIME, Turn, off_the_runtime};
use prombus_core::{
    Append, Event, EventLog, Offset, Page, Partition, ReadError, ReadRequest, TopicName, TopicState,
};
use std::time::Instant;

/// How many events are read at once.
pub(super) const READ_EVENTS: usize = 4_096;
/// And about how many bytes of them.
const READ_BYTES: usize = 1 << 20;
/// A step ends once its copies take so many bytes.
const STEP_BYTES: usize = 2 << 20;

/// What is done next: copies that are to be committed, and how far the replay is with them.
#[derive(Default)]
pub(super) struct Step {
    /// The partition that is read; `None` where nothing is left, so that the replay is over.
    pub partition: Option<Partition>,
    /// The first offset of it that is left.
    pub next: u64,
    /// How many events were looked at.
    pub read: u64,
    /// How many offsets were given up before they were read.
    pub lost: u64,
    pub copies: Vec<Append>,
    /// What each is a copy of.
    pub origins: Vec<Origin>,
    /// Events that have no copy.
    pub errors: Vec<ReplayError>,
}

impl Step {
    fn note_error(&mut self, Origin { partition, offset, id }: Origin, error: String) {
        self.errors.push(ReplayError { partition, offset, id, error });
    }

    /// Leaves out those copies that are refused, as `refusals` says of each.
    pub fn leave_out(&mut self, refusals: Vec<Option<String>>) {
        let copies = std::mem::take(&mut self.copies).into_iter().zip(std::mem::take(&mut self.origins));
        for ((copy, origin), refusal) in copies.zip(refusals) {
            match refusal {
                Some(why) => self.note_error(origin, why),
                None => {
                    self.copies.push(copy);
                    self.origins.push(origin);
                }
            }
        }
    }
}

/// What steps are made from.
pub(super) struct Making<'a> {
    pub log: &'a dyn EventLog,
    pub topic: &'a TopicState,
    pub target: &'a TopicName,
    pub recipe: &'a Recipe,
    /// The most events that are looked at.
    pub most: usize,
}

impl Making<'_> {
    /// The next step through what is left.
    pub async fn step(&self, left: &mut [Left]) -> Result<Step, ReadError> {
        let Some(at) = left.iter().position(|left| left.count() > 0) else { return Ok(Step::default()) };
        let mut step = Step { partition: Some(Partition(at as u32)), ..Step::default() };
        self.go(left[at], &mut step).await?;
        left[at].next = step.next;
        Ok(step)
    }

    async fn go(&self, Left { next, end }: Left, step: &mut Step) -> Result<(), ReadError> {
        let partition = step.partition.unwrap_or(Partition(0));
        let turn = Turn::at(self.recipe.filter.as_ref()).await;
        let Page { mut events, next: page_next, end: page_end } =
            match self.read(partition, Offset(next)).await {
                Ok(page) => page,
                Err(ReadError::Gone { first }) => {
                    step.next = first.0.clamp(next, end);
                    step.lost = step.next - next;
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
        events.retain(|event| event.offset.0 < end);
        // Behind the last event there may be nothing but holes.
        step.next = if events.is_empty() && page_next >= page_end { end } else { page_next.0.min(end) };
        let offsets: Vec<u64> = events.iter().map(|event| event.offset.0).collect();
        events.retain(|event| self.recipe.is_in_time(event));
        if let Some((filter, turn)) = self.recipe.filter.as_ref().zip(turn) {
            let stopped_at;
            (events, stopped_at) = filter.keep(events, turn);
            step.next = stopped_at.map_or(step.next, |(_, offset)| offset.0 + 1);
        }
        let turn = Turn::at_projection(self.recipe.is_costly).await;
        off_the_runtime(|| self.map(events, step));
        drop(turn);
        step.read = offsets.partition_point(|offset| *offset < step.next) as u64;
        Ok(())
    }

    async fn read(&self, partition: Partition, from: Offset) -> Result<Page, ReadError> {
        let topic = self.topic.pinned();
        self.log.read(ReadRequest { topic, partition, from, limit: self.most, max_bytes: READ_BYTES }).await
    }

    /// Makes copies of the first of these events, within bounds of memory and time.
    fn map(&self, events: Vec<Event>, step: &mut Step) {
        let (began, mut bytes) = (Instant::now(), 0);
        let mut rest = events.into_iter();
        while bytes < STEP_BYTES
            && began.elapsed() < KEEP_TIME
            && let Some(event) = rest.next()
        {
            match self.recipe.copy(&event) {
                Ok(copy) => {
                    bytes += copy.size();
                    step.copies.push(Append::new(self.target.clone(), copy));
                    step.origins.push(Origin::of(&event));
                }
                Err(why) => step.note_error(Origin::of(&event), why),
            }
        }
        if let Some(event) = rest.as_slice().first() {
            step.next = event.offset.0;
        }
    }
}
