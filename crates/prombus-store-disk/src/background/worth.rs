//! Which parts of the journal are worth being rewritten or dropped, by what is known of them without reading them.

use crate::background::failures::Failures;
use crate::journal::part::{Index, Part};
use crate::journal::position::PartitionRef;
use crate::shared::Shared;
use crate::state::view::View;
use hashbrown::HashMap;
use prombus_core::Offset;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A part with less than this share of the size of a part in it is put together with its neighbours.
const SMALL: u64 = 8;
/// How many small neighbours are worth it even where nothing in them is dead.
const SMALL_PARTS: usize = 8;
/// Parts that a checkpoint still needs are worth another one if dead events take one in so many bytes of the size of a
/// part, or as much as is reserved at a time.
const EARLY: u64 = 4;

/// What is known of a part without reading it.
pub struct Worth {
    /// The part.
    pub part: Arc<Part>,
    bytes: u64,
    /// What its kept events take, about.
    live: u64,
    /// How many events it has.
    events: u64,
    /// How many of them are kept.
    kept: u64,
    /// What the others take, about.
    dead_events: u64,
    /// Whether nothing of it is needed.
    is_over: bool,
}

impl Worth {
    fn is_mostly_dead(&self) -> bool {
        let is_mostly_dead = match self.part.name.rewrite {
            0 => self.live < self.bytes / 2,
            // It holds nothing but events and what is left of some, which would only be copied.
            _ => self.kept < self.events.div_ceil(2),
        };
        self.is_over || is_mostly_dead
    }

    fn is_small(&self, part_bytes: u64) -> bool {
        self.live < part_bytes / SMALL
    }
}

fn worth(shared: &Shared, view: &View, part: &Arc<Part>) -> Worth {
    let (mut events, mut kept) = (0, 0);
    let windows = windows(view);
    let mut count = |partition: PartitionRef, offsets: Range<u64>, in_run: u64| {
        events += in_run;
        if windows.contains_key(&partition.topic) {
            kept += kept_within(view, partition, offsets.start, offsets.end);
        }
    };
    let (bytes, event_bytes, last_recorded_ts) = match &*part.index() {
        Index::Sealed(sidecar) => {
            for (partition, run) in sidecar.runs() {
                count(partition, run.first..run.end, run.count);
            }
            (u64::from(sidecar.part_end), sidecar.event_bytes, sidecar.last_recorded_ts)
        }
        Index::Active(index) => {
            let index = index.read();
            for run in &index.runs {
                count(run.partition, run.first..run.end(), run.ats.len() as u64);
            }
            let end = part.end().unwrap_or(view.end.at);
            (u64::from(end), index.event_bytes(), view.last_recorded_ts)
        }
    };
    let share = kept as f64 / events.max(1) as f64;
    let live = (event_bytes as f64 * share) as u64;
    let dead_events = event_bytes.saturating_sub(live);
    // Ids are recognised for as long as any topic asks for: what is left of events may be of one that has none here.
    let longest = windows.values().copied().max().unwrap_or(0);
    let is_forgotten = last_recorded_ts < shared.clock.now_ms().saturating_sub(longest);
    let is_over = kept == 0 && (is_forgotten || windows.is_empty());
    Worth { part: part.clone(), bytes, live, events, kept, dead_events, is_over }
}

/// How long each topic recognises ids, by its number.
pub fn windows(view: &View) -> HashMap<u32, u64> {
    view.topics.values().map(|topic| (topic.number.0, topic.config.dedupe_window_ms)).collect()
}

/// How many events of a partition are kept within these offsets.
fn kept_within(view: &View, partition: PartitionRef, first: u64, end: u64) -> u64 {
    let first = first.max(view.extent(partition).first);
    let holes = view.holes.get(&partition).map_or(0, |holes| holes.count_within(Offset(first), Offset(end)));
    end.saturating_sub(first).saturating_sub(holes)
}

/// What a rewrite of these leaves, in bytes.
pub fn live(group: &[Worth]) -> u64 {
    group.iter().map(|worth| worth.live).sum()
}

/// Whether nothing of a part is needed, not even the ids of its events.
pub fn is_over(shared: &Shared, view: &View, part: &Arc<Part>) -> bool {
    worth(shared, view, part).is_over
}

/// What is looked for, and where.
pub struct Search<'a> {
    /// The store.
    pub shared: &'a Shared,
    /// Its state.
    pub view: &'a View,
    /// Parts to be left alone.
    pub failures: &'a Failures,
    /// How much may be left of neighbours that become one part, in bytes.
    pub most_live: u64,
}

/// Neighbours that are worth being rewritten as one part each; or a single one, whatever is left of it. Only parts before
/// the last checkpoint are.
pub fn worth_it(search: Search<'_>) -> Vec<Vec<Worth>> {
    let Search { shared, view, failures, most_live } = search;
    if !shared.options.reclaims {
        return Vec::new();
    }
    let safe = shared.checkpointed_part.load(Ordering::Relaxed);
    let part_bytes = shared.options.part_bytes;
    let older = view.parts.iter().take_while(|part| part.number() < safe);
    // One that has no index on disk yet cannot be rewritten.
    let sealed = |part: &Arc<Part>| part.sealed_end().map(|_| worth(shared, view, part));
    let mut worths: Vec<Option<Worth>> = older.map(sealed).collect();
    let dead = worths.iter().flatten().map(|worth| worth.bytes.saturating_sub(worth.live)).sum();
    shared.dead_bytes.store(dead, Ordering::Relaxed);
    worths.push(None);
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for worth in worths {
        let is_worth_it = |worth: &Worth| worth.is_mostly_dead() || worth.is_small(part_bytes);
        let worth = worth.filter(|worth| is_worth_it(worth) && !failures.is_paused(worth.part.name));
        if worth.as_ref().is_none_or(|worth| live(&group) + worth.live > most_live) {
            groups.push(std::mem::take(&mut group));
        }
        group.extend(worth);
    }
    groups.retain(|group| group.iter().any(Worth::is_mostly_dead) || group.len() >= SMALL_PARTS);
    groups
}

/// Whether enough events are dead in one of the parts that a checkpoint still needs.
pub fn is_worth_a_checkpoint(shared: &Shared, view: &View) -> bool {
    let safe = shared.checkpointed_part.load(Ordering::Relaxed);
    let least = shared.options.reserve_step().min(shared.options.part_bytes / EARLY);
    let recent = view.parts.iter().filter(|part| part.number() >= safe);
    // What else is in them, like documents, is dead with the next checkpoint anyway, and no reason to take one.
    recent
        .map(|part| worth(shared, view, part))
        .any(|worth| worth.is_mostly_dead() && worth.dead_events >= least)
}
